#include "job/agent/ranks/log_file.hpp"

#include "job/base/files.hpp"
#include "job/base/log.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace lockstep {
namespace {
constexpr std::int64_t kBlock = 4096;  // partial blocks are zeroed, not freed: punch whole ones
constexpr const char* kNoAnswer = "the file system did not answer in time";
}  // namespace

Result<std::unique_ptr<LogFile>> LogFile::open(const std::filesystem::path& path,
                                               const LogCaps& caps, std::int32_t generation) {
    UniqueFd fd{::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)};
    struct stat info{};
    if (!fd || ::fstat(fd.get(), &info) != 0) {
        return fail(file_error("open", path, errno));
    }
    return std::unique_ptr<LogFile>{
        new LogFile{std::move(fd), info.st_size, caps, LogMarker::open(path), generation}};
}

void LogFile::append(std::string_view bytes, UnixMillis now, std::int64_t missed) {
    count_missed(missed);
    write(bytes, now);
    tell();
}

void LogFile::end(std::int64_t missed) {
    count_missed(missed);
    if (unsaid_ > 0 && !full_) {
        look_at_size();
        if (write_all(loss_mark())) {
            unsaid_ = 0;
        }
    }
    tell();
}

void LogFile::miss(std::int64_t bytes) {
    const std::lock_guard lock{mutex_};
    missed_ += bytes;
}

std::int64_t LogFile::missed() const {
    const std::lock_guard lock{mutex_};
    return missed_;
}

LogFile::State LogFile::state() const {
    const std::lock_guard lock{mutex_};
    State out = known_;
    if (missed_ > known_counted_) {
        out.lost += missed_ - known_counted_;
        out.lost_why = kNoAnswer;
    }
    return out;
}

void LogFile::tell() {
    const std::lock_guard lock{mutex_};
    known_ = {size_, lost_, lost_why()};
    known_counted_ = counted_;
}

// They lie between what was written before and what is written now.
void LogFile::count_missed(std::int64_t missed) {
    if (missed > counted_) {
        lost_ += missed - counted_;
        unsaid_ += missed - counted_;
        counted_ = missed;
        write_error_ = ETIMEDOUT;
    }
}

std::string LogFile::lost_why() const {
    if (lost_ == 0) {
        return "";
    }
    if (full_) {
        return "the log had reached " + std::to_string(caps_.total) +
               " bytes and its file system cannot free the middle of a file";
    }
    switch (write_error_) {
        case ENOSPC:
            return "the disk was full";
        case ETIMEDOUT:
            return kNoAnswer;
        default:
            return errno_error("write", write_error_).message;
    }
}

std::string LogFile::loss_mark() const {
    return "\n[lockstep: " + std::to_string(unsaid_) + " bytes were lost, " + lost_why() + "]\n";
}

void LogFile::write(std::string_view bytes, UnixMillis now) {
    look_at_size();
    marker_.mark(size_, now, generation_);
    bool written = false;
    if (!full_ && unsaid_ > 0) {
        // Together with the bytes: on a disk that is still full there is no notice per piece.
        written = write_all(loss_mark() + std::string{bytes});
    } else if (!full_) {
        written = write_all(bytes);
    }
    if (written) {
        unsaid_ = 0;
    } else {
        lost_ += static_cast<std::int64_t>(bytes.size());
        unsaid_ += static_cast<std::int64_t>(bytes.size());
    }
    free_middle();
}

// A rank may have moved to another node, whose agent writes to the same file: what it has written
// stays when this one, thought lost, goes on.
void LogFile::look_at_size() {
    struct stat info{};
    if (::fstat(fd_.get(), &info) == 0) {
        size_ = info.st_size;
    }
}

bool LogFile::write_all(std::string_view bytes) {
    std::int64_t at = size_;
    while (!bytes.empty()) {
        const auto put = ::write(fd_.get(), bytes.data(), bytes.size());
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            write_error_ = put < 0 ? errno : EIO;
            // Whole pieces or nothing: what was half written must not be taken for output.
            if (at > size_ && ::ftruncate(fd_.get(), size_) != 0) {
                log::debug("cannot cut a rank's log", {{"size", size_}});
            }
            return false;
        }
        at += put;
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    size_ = at;
    return true;
}

void LogFile::free_middle() {
    const std::int64_t newest = caps_.total - caps_.head - caps_.chunk;
    if (full_ || size_ - newest - punched_ < caps_.chunk) {
        return;
    }
    const std::int64_t end = (size_ - newest) / kBlock * kBlock;
    if (caps_.may_punch && ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                       punched_, end - punched_) == 0) {
        punched_ = end;
        return;
    }
    if (caps_.may_punch && errno == EINTR) {
        return;  // the next append tries again
    }
    const std::string notice = "\n[lockstep: the log has reached " + std::to_string(caps_.total) +
                               " bytes and this file system cannot free the middle of a file: "
                               "the rest is not kept]\n";
    write_all(notice);
    full_ = true;
}

}  // namespace lockstep
