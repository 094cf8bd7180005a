// Writes checkpoints beside the training, one after the other, on a thread of its own with a low
// priority. All functions: the training thread.
#pragma once

#include "job/base/result.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace lockstep {

class CheckpointWriter {
  public:
    // Called on the writer's thread; what it returns is its outcome.
    using Job = std::function<Result<std::string>()>;

    CheckpointWriter() = default;
    ~CheckpointWriter();  // ends the job that is under way
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    // Only when nothing is under way and the outcome before was taken. `copy` is called first, on
    // the writer's thread or by wait_copied(). If it throws, the job is not done: the outcome is
    // exhausted.
    void begin(std::function<void()> copy, Job job);
    // Returns once that has returned. Calls it if the writer has not come to it: on busy cores its
    // low priority is long in coming.
    void wait_copied();
    bool idle() const { return !begun_; }
    // The outcome of the job that was begun: nothing while it is under way, never with `wait`, and
    // each only once.
    std::optional<Result<std::string>> take(bool wait);

  private:
    void work();
    void copy(std::unique_lock<std::mutex>& lock);

    bool begun_ = false;
    bool copying_ = false;  // as far as the training thread knows
    std::mutex mutex_;      // guards what follows
    std::condition_variable changed_;
    std::function<void()> copy_;
    Job job_;
    bool copied_ = true;
    bool copy_failed_ = false;
    std::optional<Result<std::string>> outcome_;
    bool stop_ = false;
    std::thread thread_;  // from the first job on
};

}  // namespace lockstep
