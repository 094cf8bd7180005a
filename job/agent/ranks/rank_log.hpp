// One rank's log: stdout and stderr in order. Owned by the rank group, agent thread only.
//
// The file never takes much more than limits::kLogBytes of disk: the first kLogHeadBytes and the
// newest bytes stay, what lies between is given back with FALLOC_FL_PUNCH_HOLE. The file's size and
// every offset stay those of the whole output, readers skip the hole with lseek(SEEK_DATA). Where
// the file system cannot punch, writing stops at the cap with one line that says so.
// A full disk loses bytes, and so does a file system that does not answer (log_writer.hpp). They
// are counted and said in the log as soon as it takes some again, at the end of the output at the
// latest.
#pragma once

#include "job/agent/ranks/log_file.hpp"
#include "job/agent/ranks/log_writer.hpp"
#include "job/agent/ranks/secret_mask.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

class RankLog {
  public:
    using Caps = LogCaps;

    // Opens or creates the file, here and now; a log of an earlier generation is continued. What is
    // appended is noted as output of `generation`. With a writer nothing after this waits for the
    // file system longer than LogWriter::kPatience; without one each append does.
    static Result<RankLog> open(const std::filesystem::path& path, const Caps& caps,
                                std::int32_t generation,
                                std::shared_ptr<LogWriter> writer = nullptr);
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
    // Of what has been written so far.
    std::int64_t size() const { return file_->state().size; }
    std::int64_t lost_bytes() const { return file_->state().lost; }
    // Why the last of them were lost, as a clause; "" = none was.
    std::string lost_why() const { return file_->state().lost_why; }
    // What the job's user is told of it after end(); "" = all of it is in the log.
    std::string loss_warning(std::int32_t rank) const;

  private:
    RankLog(std::shared_ptr<LogFile> file, std::shared_ptr<LogWriter> writer, std::size_t tail)
        : writer_(std::move(writer)), file_(std::move(file)), tail_bytes_(tail) {}

    void write(std::string_view bytes, UnixMillis now);
    void keep_tail(std::string_view bytes);

    std::shared_ptr<LogWriter> writer_;  // null: this thread writes
    std::shared_ptr<LogFile> file_;
    std::size_t waiting_ = 0;  // bytes that were still to be written at end()
    std::size_t tail_bytes_;
    std::string tail_;
    std::optional<MaskedStream> masked_;
};

}  // namespace lockstep
