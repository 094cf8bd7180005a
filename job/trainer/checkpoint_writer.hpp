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

    // Only when nothing is under way and the outcome before was taken.
    void begin(Job job);
    bool idle() const { return !begun_; }
    // The outcome of the job that was begun: nothing while it is under way, never with `wait`, and
    // each only once.
    std::optional<Result<std::string>> take(bool wait);

  private:
    void work();

    bool begun_ = false;
    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    Job job_;
    std::optional<Result<std::string>> outcome_;
    bool stop_ = false;
    std::thread thread_;  // from the first job on
};

}  // namespace lockstep
