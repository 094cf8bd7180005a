#include "job/async/side_thread.hpp"

#include "job/base/log.hpp"

#include <algorithm>
#include <system_error>

namespace lockstep {
namespace {
constexpr std::chrono::milliseconds kSideStopWait{1'000};
}

SideThread::~SideThread() {
    {
        const std::lock_guard lock{shared_->mutex};
        shared_->io = nullptr;
        shared_->queue.clear();
    }
    shared_->changed.notify_all();
    const auto until = std::chrono::steady_clock::now() + kSideStopWait;
    for (const auto& thread : threads_) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            until - std::chrono::steady_clock::now());
        if (!thread->finish(std::max(left, std::chrono::milliseconds{0}))) {
            log::warn("a file system does not answer: its thread is left behind");
        }
    }
}

std::shared_ptr<SideThread::Job> SideThread::post(std::function<void()> work,
                                                  const std::shared_ptr<Call>& call) {
    std::erase_if(calls_, [](const std::weak_ptr<Call>& one) { return one.expired(); });
    calls_.push_back(call);
    auto job = std::make_shared<Job>();
    job->work = std::move(work);
    job->call = call;
    bool busy = false;  // all of them
    {
        const std::lock_guard lock{shared_->mutex};
        shared_->io = &io_;
        shared_->queue.push_back(job);
        busy = shared_->idle < shared_->queue.size();
    }
    shared_->changed.notify_one();
    if (busy && threads_.size() < most_) {
        try {
            threads_.push_back(
                std::make_unique<LooseThread>([shared = shared_] { serve(shared); }));
        } catch (const std::system_error& error) {
            // Ranks may have used up the threads of the job. To the caller it is as if it hung.
            log::warn("no thread for a call that may hang", {{"why", error.what()}});
        }
    }
    return job;
}

void SideThread::withdraw(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock{shared_->mutex};
    std::erase(shared_->queue, job);
}

void SideThread::let_go() {
    for (const std::weak_ptr<Call>& one : calls_) {
        if (const auto call = one.lock()) {
            call->timer.cancel();
        }
    }
    calls_.clear();
}

void SideThread::serve(const std::shared_ptr<Shared>& shared) {
    std::unique_lock lock{shared->mutex};
    for (;;) {
        ++shared->idle;
        shared->changed.wait(lock, [&] { return !shared->io || !shared->queue.empty(); });
        --shared->idle;
        if (!shared->io) {
            return;
        }
        const auto job = shared->queue.front();
        shared->queue.pop_front();
        lock.unlock();
        try {
            job->work();
        } catch (...) {  // as good as no answer
        }
        job->work = nullptr;  // may be 16 MiB of a dump
        lock.lock();
        if (!shared->io) {
            return;
        }
        net::post(*shared->io, [back = job->call] {
            if (const auto call = back.lock()) {
                call->ready = true;
                call->timer.cancel();
            }
        });
    }
}

}  // namespace lockstep
