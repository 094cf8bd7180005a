// The file of a rank's log (rank_log.hpp): what goes in, what is given back, what was lost. Its
// calls wait for the file system. One thread at a time; miss(), missed() and state() any thread.
#pragma once

#include "job/agent/ranks/log_marker.hpp"
#include "job/base/clock.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

struct LogCaps {
    std::int64_t total = limits::kLogBytes;
    std::int64_t head = limits::kLogHeadBytes;
    std::int64_t chunk = 4LL << 20U;  // punched at a time; part of `total`
    std::size_t tail = limits::kLogTailBytes;
    bool may_punch = true;  // tests: a file system that cannot
};

class LogFile {
  public:
    struct State {
        std::int64_t size = 0;
        std::int64_t lost = 0;  // bytes that are not in it
        std::string lost_why;   // why the last of them were lost, as a clause; "" = none was
    };

    static Result<std::unique_ptr<LogFile>> open(const std::filesystem::path& path,
                                                 const LogCaps& caps, std::int32_t generation);

    // `missed`: what missed() was when this was to be done.
    void append(std::string_view bytes, UnixMillis now, std::int64_t missed = 0);
    // No more comes: what was lost and is not said yet is said.
    void end(std::int64_t missed = 0);
    // So many bytes were not waited for, because the file system does not answer.
    void miss(std::int64_t bytes);
    // All of them so far.
    std::int64_t missed() const;
    State state() const;

  private:
    LogFile(UniqueFd fd, std::int64_t size, const LogCaps& caps, LogMarker marker,
            std::int32_t generation)
        : fd_(std::move(fd)),
          marker_(std::move(marker)),
          generation_(generation),
          caps_(caps),
          size_(size),
          punched_(caps.head) {
        known_.size = size;
    }

    void write(std::string_view bytes, UnixMillis now);
    void count_missed(std::int64_t missed);
    void look_at_size();
    bool write_all(std::string_view bytes);
    std::string lost_why() const;
    std::string loss_mark() const;
    void free_middle();
    void tell();

    UniqueFd fd_;
    LogMarker marker_;
    std::int32_t generation_;
    LogCaps caps_;
    std::int64_t size_ = 0;
    std::int64_t punched_ = 0;  // everything between the head and here is a hole
    std::int64_t lost_ = 0;
    std::int64_t unsaid_ = 0;  // lost bytes that no line in the log speaks of yet
    int write_error_ = 0;  // errno of the last write that failed; ETIMEDOUT: it did not come back
    bool full_ = false;    // cannot punch and the cap is reached
    std::int64_t counted_ = 0;  // of what was missed, in lost_

    mutable std::mutex mutex_;  // of what follows
    State known_;
    std::int64_t known_counted_ = 0;
    std::int64_t missed_ = 0;
};

}  // namespace lockstep
