#include "daemon/control/disk_watch.hpp"

#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <sys/statvfs.h>

#include <cerrno>
#include <functional>
#include <utility>

namespace lockstep {
namespace {

using telemetry::DiskRoom;

}  // namespace

Result<DiskRoom> disk_room(const std::filesystem::path& folder) {
    struct statvfs info{};
    if (::statvfs(folder.c_str(), &info) != 0) {
        return fail(errno_error("ask the file system of " + folder.string(), errno));
    }
    const auto block = static_cast<std::int64_t>(info.f_frsize);
    DiskRoom out;
    out.size = static_cast<std::int64_t>(info.f_blocks) * block;
    out.free = static_cast<std::int64_t>(info.f_bavail) * block;
    out.inodes = static_cast<std::int64_t>(info.f_files);
    out.inodes_free = static_cast<std::int64_t>(info.f_favail);
    return out;
}

DiskWatch::DiskWatch(net::io_context& io, telemetry::DiskMetrics& metrics,
                     const std::vector<std::filesystem::path>& folders)
    : metrics_(metrics), asking_(io, folders.size()), timer_(io) {
    for (const auto& folder : folders) {
        watched_.push_back({folder, false, ""});
    }
}

Task<void> DiskWatch::watch(std::chrono::milliseconds period) {
    while (!ending_) {
        for (std::size_t i = 0; i < watched_.size(); ++i) {
            const std::function<Result<DiskRoom>()> ask = [path = watched_[i].folder] {
                return disk_room(path);
            };
            const auto until = std::chrono::steady_clock::now() + limits::kDiskPatience;
            const auto room = co_await asking_.run<Result<DiskRoom>>(ask, until);
            if (ending_) {
                co_return;
            }
            const std::string problem = !room   ? "it does not answer"
                                        : *room ? ""
                                                : room->error().message;
            if (problem.empty()) {
                note(i, **room);
            } else if (problem != watched_[i].problem) {
                log::warn("how full a folder's file system is, is not known",
                          {{"folder", watched_[i].folder.string()}, {"what", problem}});
            }
            watched_[i].problem = problem;
        }
        co_await sleep_on(timer_, period);
    }
}

void DiskWatch::note(std::size_t index, const DiskRoom& room) {
    metrics_.set(index, room);
    Watched& one = watched_[index];
    if (!room.nearly_full()) {
        one.told = false;
    } else if (!std::exchange(one.told, true)) {
        log::warn("the file system is nearly full", {{"folder", one.folder.string()},
                                                     {"free_bytes", room.free},
                                                     {"free_files", room.inodes_free}});
    }
}

void DiskWatch::halt() {
    ending_ = true;
    timer_.cancel();
    asking_.let_go();
}

}  // namespace lockstep
