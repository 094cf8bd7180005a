// One rank's log file: stdout and stderr in order. Owned by the rank group, agent thread only.
//
// The file never takes much more than limits::kLogBytes of disk: the first kLogHeadBytes and the
// newest bytes stay, what lies between is given back with FALLOC_FL_PUNCH_HOLE. The file's size and
// every offset stay those of the whole output, readers skip the hole with lseek(SEEK_DATA). Where
// the file system cannot punch, writing stops at the cap with one line that says so.
// A full disk loses bytes, which are counted and said in the log as soon as there is room again, at
// the end of the output at the latest.
#pragma once

#include "job/agent/ranks/log_marker.hpp"
#include "job/agent/ranks/secret_mask.hpp"
#include "job/base/clock.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

class RankLog {
  public:
    struct Caps {
        std::int64_t total = limits::kLogBytes;
        std::int64_t head = limits::kLogHeadBytes;
        std::int64_t chunk = 4LL << 20U;  // punched at a time; part of `total`
        std::size_t tail = limits::kLogTailBytes;
        bool may_punch = true;  // tests: a file system that cannot
    };

    // Opens or creates the file; a log of an earlier generation is continued. What is appended is
    // noted as output of `generation`.
    static Result<RankLog> open(const std::filesystem::path& path, const Caps& caps,
                                std::int32_t generation);
    static Result<RankLog> open(const std::filesystem::path& path, std::int32_t generation) {
        return open(path, Caps(), generation);
    }

    // What is appended from now on goes through it; null: as it is.
    void mask(const std::shared_ptr<const SecretMask>& mask);
    // `now`: the node's clock, noted beside the log (log_marker.hpp).
    void append(std::string_view bytes, UnixMillis now = SystemClock{}.wall());
    // No more comes of this output: what a mask has held back is written, and what was lost is
    // said.
    void end();
    // The newest caps.tail bytes that were appended, printable() applied.
    std::string tail() const;
    std::int64_t size() const { return size_; }
    std::int64_t lost_bytes() const { return lost_; }
    // Why the last of them were lost, as a clause; "" = none was.
    std::string lost_why() const;
    // What the job's user is told of it; "" = none was.
    std::string loss_warning(std::int32_t rank) const;

  private:
    RankLog(UniqueFd fd, std::int64_t size, const Caps& caps, LogMarker marker,
            std::int32_t generation)
        : fd_(std::move(fd)),
          marker_(std::move(marker)),
          generation_(generation),
          caps_(caps),
          size_(size),
          punched_(caps.head) {}

    void write(std::string_view bytes, UnixMillis now);
    void look_at_size();
    bool write_all(std::string_view bytes);
    std::string loss_mark() const;
    void keep_tail(std::string_view bytes);
    void free_middle();

    UniqueFd fd_;
    LogMarker marker_;
    std::int32_t generation_ = 1;
    Caps caps_;
    std::int64_t size_ = 0;
    std::int64_t punched_ = 0;  // everything between the head and here is a hole
    std::int64_t lost_ = 0;
    std::int64_t unsaid_ = 0;  // lost bytes that no line in the log speaks of yet
    int write_error_ = 0;      // errno of the last write that failed
    bool full_ = false;        // cannot punch and the cap is reached
    std::string tail_;
    std::optional<MaskedStream> masked_;
};

}  // namespace lockstep
