#include "job/agent/ranks/log_marker.hpp"

#include "job/model/log_marks.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep {

LogMarker LogMarker::open(const std::filesystem::path& log) {
    LogMarker marker;
    marker.fd_ = UniqueFd{
        ::open(log_marks_path(log).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)};
    struct stat info{};
    if (!marker.fd_ || ::fstat(marker.fd_.get(), &info) != 0) {
        marker.fd_ = UniqueFd{};
        return marker;
    }
    marker.rows_ = info.st_size / static_cast<std::int64_t>(kLogMarkBytes);
    return marker;
}

void LogMarker::mark(std::int64_t offset, UnixMillis now, std::int32_t generation) {
    constexpr std::int64_t kMostDoublings = 20;
    const auto apart = kApart.count() << std::min(rows_ / kRows, kMostDoublings);
    if (!fd_ || (generation == generation_ && now >= last_ && now - last_ < apart)) {
        return;
    }
    struct stat info{};
    if (::fstat(fd_.get(), &info) == 0) {  // another node's agent may have marked meanwhile
        rows_ = info.st_size / static_cast<std::int64_t>(kLogMarkBytes);
    }
    const auto row = encode_log_mark({offset, now, generation});
    const auto at = static_cast<off_t>(rows_ * static_cast<std::int64_t>(kLogMarkBytes));
    if (::pwrite(fd_.get(), row.data(), row.size(), at) != static_cast<ssize_t>(row.size())) {
        return;  // a full disk: the next one is written over what was cut short
    }
    ++rows_;
    last_ = now;
    generation_ = generation;
}

}  // namespace lockstep
