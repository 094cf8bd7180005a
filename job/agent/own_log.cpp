#include "job/agent/own_log.hpp"

#include "job/base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {

struct OwnLog::Queue {
    explicit Queue(int to) : fd(to) {}

    void put(std::string_view line) {
        const std::lock_guard lock{mutex};
        if (closed || waiting.size() + line.size() > kQueueBytes) {
            ++lost;
            return;
        }
        if (lost > 0) {
            waiting += line.substr(0, std::min(line.find("level="), line.size()));  // when and who
            waiting +=
                "level=warn msg=\"lines of this log were lost: they could not be written in "
                "time\" lines=" +
                std::to_string(std::exchange(lost, 0)) + "\n";
        }
        waiting += line;
        wanted.notify_one();
    }
    void serve() {
        std::unique_lock lock{mutex};
        for (;;) {
            wanted.wait(lock, [this] { return closed || !waiting.empty(); });
            if (waiting.empty()) {
                return;
            }
            const std::string bytes = std::exchange(waiting, {});
            lock.unlock();
            write_out(bytes);
            lock.lock();
        }
    }
    // A log that cannot be written is no reason to stop.
    void write_out(std::string_view bytes) const {
        while (!bytes.empty()) {
            const auto written = ::write(fd, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written <= 0) {
                return;
            }
            bytes.remove_prefix(static_cast<std::size_t>(written));
        }
    }

    const int fd;
    std::mutex mutex;  // of all below
    std::condition_variable wanted;
    std::string waiting;
    std::size_t lost = 0;  // lines, since the last that found room
    bool closed = false;
};

OwnLog::OwnLog(int fd) : queue_(std::make_shared<Queue>(fd)) {
    try {
        thread_.emplace([queue = queue_] { queue->serve(); });
    } catch (const std::system_error& error) {
        log::warn("no thread for the agent's log", {{"why", error.what()}});
        return;
    }
    log::redirect([queue = queue_](std::string_view line) { queue->put(line); });
}

OwnLog::~OwnLog() {
    if (!thread_) {
        return;
    }
    {
        const std::lock_guard lock{queue_->mutex};
        queue_->closed = true;
    }
    queue_->wanted.notify_all();
    if (thread_->finish(kFlushWait)) {
        log::redirect({});
    }
}

}  // namespace lockstep
