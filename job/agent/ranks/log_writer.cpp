#include "job/agent/ranks/log_writer.hpp"

#include "job/base/log.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {
constexpr std::chrono::milliseconds kLogFlushWait{1'000};
}

struct LogWriter::Shared {
    // What is to be done with a file, and the bytes that it writes. The file itself: to be closed.
    struct Item {
        std::shared_ptr<LogFile> file;
        std::string bytes;
        UnixMillis now = 0;
        std::int64_t missed = 0;
        bool end = false;
        std::unique_ptr<LogFile> closed;
    };
    struct Place {
        std::size_t bytes = 0;
        std::size_t items = 0;
    };

    bool has_room(const LogFile* file, std::size_t bytes) const {
        const auto place = places.find(file);
        return place == places.end() || place->second.bytes + bytes <= kQueueBytes;
    }
    // Whether `good` holds, after a while if need be.
    bool wait(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds patience,
              const std::function<bool()>& good) {
        if (stuck) {
            return good();
        }
        stuck = !written.wait_for(lock, patience, good);
        return !stuck;
    }
    void put(Item item) {
        if (item.file) {
            Place& place = places[item.file.get()];
            place.bytes += item.bytes.size();
            ++place.items;
            item.missed = item.file->missed();
        }
        queue.push_back(std::move(item));
        wanted.notify_one();
    }
    void done(const LogFile* file, std::size_t bytes) {
        const auto place = places.find(file);
        place->second.bytes -= bytes;
        if (--place->second.items == 0) {
            places.erase(place);
        }
        stuck = false;
        written.notify_all();
    }

    std::mutex mutex;  // of all below
    std::condition_variable wanted;
    std::condition_variable written;
    std::deque<Item> queue;
    std::map<const LogFile*, Place> places;  // of files with items, the one in work among them
    bool stuck = false;                      // somebody has waited in vain since the last was done
    bool running = false;                    // there is a thread that will do what is queued
    bool closing = false;
};

LogWriter::LogWriter(std::chrono::milliseconds patience)
    : patience_(patience), shared_(std::make_shared<Shared>()) {}

LogWriter::~LogWriter() {
    {
        const std::lock_guard lock{shared_->mutex};
        shared_->closing = true;
    }
    shared_->wanted.notify_all();
    if (thread_ && !thread_->finish(kLogFlushWait)) {
        log::warn("the file system of the ranks' logs does not answer: its thread is left behind");
    }
}

bool LogWriter::start() {
    if (thread_) {
        return true;
    }
    try {
        thread_.emplace([shared = shared_] { serve(shared); });
    } catch (const std::system_error& error) {
        // Ranks may have used up the threads of the job.
        if (!warned_) {
            log::warn("no thread for the ranks' logs", {{"why", error.what()}});
        }
        warned_ = true;
        return false;
    }
    const std::lock_guard lock{shared_->mutex};
    shared_->running = true;
    return true;
}

std::shared_ptr<LogFile> LogWriter::share(std::unique_ptr<LogFile> file) {
    start();  // before its rank is there, which may use up the threads
    return {file.release(), [shared = shared_](LogFile* gone) {
                std::unique_ptr<LogFile> closed{gone};
                const std::lock_guard lock{shared->mutex};
                if (shared->running) {
                    Shared::Item item;
                    item.closed = std::move(closed);
                    shared->put(std::move(item));
                }
            }};
}

void LogWriter::append(const std::shared_ptr<LogFile>& file, std::string_view bytes,
                       UnixMillis now) {
    if (!start()) {
        file->append(bytes, now);
        return;
    }
    std::unique_lock lock{shared_->mutex};
    if (!shared_->wait(lock, patience_,
                       [&] { return shared_->has_room(file.get(), bytes.size()); })) {
        file->miss(static_cast<std::int64_t>(bytes.size()));
        return;
    }
    Shared::Item item;
    item.file = file;
    item.bytes = bytes;
    item.now = now;
    shared_->put(std::move(item));
}

std::size_t LogWriter::end(const std::shared_ptr<LogFile>& file) {
    if (!thread_) {
        file->end();
        return 0;
    }
    std::unique_lock lock{shared_->mutex};
    Shared::Item item;
    item.file = file;
    item.end = true;
    shared_->put(std::move(item));
    shared_->wait(lock, patience_, [&] { return !shared_->places.contains(file.get()); });
    const auto place = shared_->places.find(file.get());
    return place == shared_->places.end() ? 0 : place->second.bytes;
}

void LogWriter::serve(const std::shared_ptr<Shared>& shared) {
    std::unique_lock lock{shared->mutex};
    for (;;) {
        shared->wanted.wait(lock, [&] { return shared->closing || !shared->queue.empty(); });
        if (shared->queue.empty()) {
            shared->running = false;
            return;
        }
        Shared::Item item = std::move(shared->queue.front());
        shared->queue.pop_front();
        lock.unlock();
        item.closed.reset();
        if (item.file && item.end) {
            item.file->end(item.missed);
        } else if (item.file) {
            item.file->append(item.bytes, item.now, item.missed);
        }
        const LogFile* const file = item.file.get();
        lock.lock();
        if (file != nullptr) {
            shared->done(file, item.bytes.size());
        }
        lock.unlock();
        item.file.reset();  // the last that knows it puts its close into the queue
        lock.lock();
    }
}

}  // namespace lockstep
