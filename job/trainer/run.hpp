// One training run of one rank: epochs, reports, checkpoints, around a strategy (strategy.hpp) that
// makes the steps. Every rank of the generation makes the same calls. One thread; what the
// constructor gets must outlive it.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/rank/client.hpp"
#include "job/rank/report.hpp"
#include "job/trainer/checkpoint.hpp"
#include "job/trainer/checkpoint_writer.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/flops.hpp"
#include "job/trainer/loader.hpp"
#include "job/trainer/sampler.hpp"
#include "job/trainer/world.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace c10 {
struct Device;
}

namespace lockstep {

// Of strategy.hpp, which includes LibTorch: ten seconds of a compiler for whoever only runs a
// training.
struct StepResult;
struct Evaluation;
class Strategy;
class StepProfile;

struct RunOptions {
    RankClient* client = nullptr;                    // where reports go; none: nowhere
    std::filesystem::path socket;                    // beside which a profile is asked for
    std::FILE* out = nullptr;                        // lines for people; none: none
    std::filesystem::path checkpoint_directory;      // empty: no checkpoints, no resume
    std::function<void(const StepResult&)> on_step;  // for tests
};

struct RunEnd {
    bool stopped = false;    // by SIGTERM (of this or another rank) before everything was done
    bool abandoned = false;  // an operation of the communicator still hangs: end with _Exit
    std::int64_t step = 0;
    std::int64_t resumed_from = 0;  // step of the checkpoint, 0 = none
    bool evaluated = false;         // else nothing is known of what follows, up to `explained`
    double accuracy = 0.0;          // on the test set, 0..1; the last one
    double test_loss = 0.0;
    // Of a table instead of the accuracy: the mean absolute error, in the last column's unit, and
    // the share of its variance that is explained.
    bool of_numbers = false;
    double mean_error = 0.0;
    double explained = 0.0;
    double samples_per_second = 0.0;  // all ranks, training steps only
    double tokens_per_second = 0.0;   // the same of gpt and seq2seq
    double mfu = 0.0;                 // the same: of this rank's peak, see flops.hpp
    double report_seconds = 0.0;      // spent on reporting, in total
    double step_seconds = 0.0;        // all steps together
    double stall_seconds = 0.0;       // the training waited for checkpoints, in total
    std::int64_t checkpoints = 0;     // that this rank took part in
    std::int32_t batch_size = 0;      // configured or found
    std::int64_t skipped_steps = 0;   // fp16: since the run began, also before a resume
    std::int64_t nonfinite_losses = 0;
    bool served = false;  // this rank was a parameter server: nothing else here is known
};

class TrainingRun {
  public:
    TrainingRun(const TrainConfig& config, const Dataset& data, World& world, RunOptions options);
    ~TrainingRun();
    TrainingRun(const TrainingRun&) = delete;
    TrainingRun& operator=(const TrainingRun&) = delete;

    // Makes the strategy; the state of rank 0 to everybody who holds some of it, from the newest
    // checkpoint if there is one.
    // invalid: the strategy cannot be had with these ranks. conflict: the ranks were given
    // different configurations or data, or the checkpoint belongs to another configuration or data.
    // unavailable, timed_out: a rank is gone.
    Status prepare();
    // What prepare() has refused was found by another rank, which says it in its own words.
    bool refused_by_peer() const { return refused_by_peer_; }
    // Trains to the end, or until SIGTERM. unavailable, timed_out: a rank was lost; rank 0 then
    // has written a checkpoint of the last finished step.
    Result<RunEnd> run();

    // After run() or an exception of it: the checkpoint that is being written is whole.
    void finish_writing() { static_cast<void>(take_written(/*wait=*/true)); }

    Strategy& strategy() { return *strategy_; }  // after prepare()
    // Of a rank and micro-step; configured or found.
    std::int32_t batch_size() const { return batch_size_ > 0 ? batch_size_ : config_.batch_size; }

  private:
    using Clock = std::chrono::steady_clock;

    // Of the samples; all ranks begin at one.
    struct Place {
        std::int64_t step = 0;
        std::int64_t epoch = 0;
        std::int64_t consumed = 0;
    };

    Status compare_ranks();
    Status load_latest(Checkpoint& checkpoint);
    Status load_weights(Checkpoint& checkpoint);
    Status restore();
    std::int32_t ranks_of_gpu() const;
    Status find_batch_size();
    bool is_root() const;
    c10::Device device() const;
    std::int64_t total_steps() const;
    bool done() const;
    Status run_epoch();
    Result<StepResult> step(std::int64_t batch, std::int64_t samples);
    Status after_step(StepResult& result);
    double mfu(std::int64_t samples, double seconds) const;
    void report(const StepResult& result);
    void print(const StepResult& result);
    Status wait_for_others();
    Status save(bool due);
    Status save_end();
    void go_back_to(std::int64_t step);
    void begin_writing();
    void wait_copied();
    Status take_written(bool wait);
    CheckpointHead checkpoint_head() const;
    Status export_weights();
    Status evaluate();
    Status evaluate_or_save();
    void take_errors(const Evaluation& sums);
    Status lost(Error error);
    void phase(const char* name);

    TrainConfig config_;
    Json fields_;       // training_fields() of it
    std::string hash_;  // and their hash
    const Dataset& data_;
    World& world_;
    RunOptions options_;
    std::unique_ptr<Strategy> strategy_;
    Sampler sampler_;
    std::unique_ptr<Loader> loader_;
    std::unique_ptr<StepProfile> profile_;  // nobody can ask without one
    std::int32_t batch_size_ = 0;           // configured or found
    std::int32_t ranks_of_node_ = 1;        // known with find_batch_size
    TextCosts costs_;                       // of a sample
    std::int32_t stages_ = 1;               // ranks that compute one
    double peak_flops_ = 0.0;               // of this rank; 0 = not asked
    double base_rate_ = 0.0;                // learning_rate, scaled
    std::int64_t planned_steps_ = 0;        // of the whole run, for the schedule
    Report report_;
    RunEnd end_;
    std::int64_t step_ = 0;
    std::int64_t epoch_ = 0;
    std::int64_t consumed_ = 0;
    std::int64_t saved_step_ = -1;
    Place begun_;                       // where the ranks began
    std::int64_t slowest_ = INT64_MAX;  // OtherWorkers, at the end
    bool refused_by_peer_ = false;
    std::int64_t trained_samples_ = 0;  // of this rank in this process
    std::uint64_t start_ = 0;           // PartSet::start
    double checkpoint_seconds_ = 0.0;   // the stall of the step before, to report
    bool announced_ = false;            // total_steps was reported
    bool diverged_ = false;  // the last step's gradient was not finite, nor is the state now
    bool stop_ = false;      // all ranks know that all stop
    double epoch_loss_ = 0.0;
    std::int64_t epoch_steps_ = 0;
    Clock::time_point last_end_;
    std::int64_t writing_step_ = 0;      // of the checkpoint that writer_ is at
    std::atomic<bool> give_up_ = false;  // other ranks' parts are not to be waited for
    Snapshot snapshot_;                  // while writer_ is at it, nobody else's
    CheckpointWriter writer_;            // last: it uses what is above
};

// The fields that shape the training: the length of the run, the loader's threads, folders and the
// frequency of lines and checkpoints are left out. And their hash.
Json training_fields(const TrainConfig& config);
std::string training_hash(const TrainConfig& config);

}  // namespace lockstep
