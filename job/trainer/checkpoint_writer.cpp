#include "job/trainer/checkpoint_writer.hpp"

#include "job/base/check.hpp"
#include "job/base/log.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace lockstep {

CheckpointWriter::~CheckpointWriter() {
    {
        const std::lock_guard lock{mutex_};
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void CheckpointWriter::begin(std::function<void()> copy, Job job) {
    LOCKSTEP_CHECK(!begun_);
    begun_ = true;
    {
        const std::lock_guard lock{mutex_};
        copy_ = std::move(copy);
        job_ = std::move(job);
        copied_ = false;
    }
    copying_ = true;
    if (!thread_.joinable()) {
        thread_ = std::thread{[this] { work(); }};
    }
    changed_.notify_all();
}

void CheckpointWriter::wait_copied() {
    if (!copying_) {
        return;
    }
    copying_ = false;
    std::unique_lock lock{mutex_};
    if (copy_) {
        copy(lock);
    }
    changed_.wait(lock, [this] { return copied_; });
}

// With the lock, which is open meanwhile.
void CheckpointWriter::copy(std::unique_lock<std::mutex>& lock) {
    const std::function<void()> call = std::exchange(copy_, nullptr);
    lock.unlock();
    bool done = false;
    try {
        call();
        done = true;
    } catch (const std::exception& error) {  // no memory for it, say
        log::error("the state could not be copied", {{"why", error.what()}});
    }
    lock.lock();
    copied_ = true;
    copy_failed_ = !done;
    changed_.notify_all();
}

std::optional<Result<std::string>> CheckpointWriter::take(bool wait) {
    std::unique_lock lock{mutex_};
    if (begun_ && wait) {
        changed_.wait(lock, [this] { return outcome_.has_value(); });
    }
    begun_ = begun_ && !outcome_;
    return std::exchange(outcome_, std::nullopt);
}

void CheckpointWriter::work() {
    constexpr int kLow = 10;
    // Linux: of this thread only. Best effort: the training wants the cores more.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLow));
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || job_; });
        if (!job_) {
            return;
        }
        const Job job = std::exchange(job_, nullptr);
        if (copy_) {
            copy(lock);
        }
        changed_.wait(lock, [this] { return copied_; });
        const bool failed = copy_failed_;
        lock.unlock();
        Result<std::string> outcome = fail(Errc::exhausted, "the state could not be copied");
        if (!failed) {
            outcome = job();
        }
        lock.lock();
        outcome_ = std::move(outcome);
        changed_.notify_all();
    }
}

}  // namespace lockstep
