// One training run of one rank: data, model, optimizer, all-reduce, reports, checkpoints.
// Every rank of the generation makes the same calls. One thread; what the constructor gets must
// outlive it.
#pragma once

#include "job/base/result.hpp"
#include "job/collective/communicator.hpp"
#include "job/model/train_config.hpp"
#include "job/rank/client.hpp"
#include "job/rank/report.hpp"
#include "job/trainer/checkpoint.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/loader.hpp"
#include "job/trainer/model.hpp"
#include "job/trainer/optimizer.hpp"
#include "job/trainer/reducer.hpp"
#include "job/trainer/sampler.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

// One finished optimizer step of this rank; all times in seconds.
struct StepResult {
    std::int64_t step = 0;       // from 1, over all epochs
    std::int64_t epoch = 0;      // from 0
    std::int64_t batch = 0;      // optimizer step inside the epoch, from 0
    std::int64_t samples = 0;    // of this rank in this step, over all micro-steps
    double loss = 0.0;           // mean over this rank's samples, before any all-reduce
    double gradient_norm = 0.0;  // of the mean gradient over all ranks
    double step_seconds = 0.0;   // from the end of the step before to the end of this one
    double data_wait_seconds = 0.0;
    double forward_seconds = 0.0;
    double backward_seconds = 0.0;   // the all-reduce of earlier buckets runs meanwhile
    double comm_wait_seconds = 0.0;  // waited for the other ranks after backward
    double optimizer_seconds = 0.0;
};

struct RunOptions {
    RankClient* client = nullptr;                    // where reports go; none: nowhere
    std::FILE* out = nullptr;                        // lines for people; none: none
    std::filesystem::path checkpoint_directory;      // empty: no checkpoints, no resume
    std::function<void(const StepResult&)> on_step;  // for tests
};

struct RunEnd {
    bool stopped = false;    // by SIGTERM (of this or another rank) before everything was done
    bool abandoned = false;  // an operation of the communicator still hangs: end with _Exit
    std::int64_t step = 0;
    std::int64_t resumed_from = 0;  // step of the checkpoint, 0 = none
    double accuracy = 0.0;          // on the test set, 0..1; the last one
    double test_loss = 0.0;
    double samples_per_second = 0.0;  // all ranks, training steps only
    double report_seconds = 0.0;      // spent on reporting, in total
    double step_seconds = 0.0;        // all steps together
    std::int64_t nonfinite_losses = 0;
};

class TrainingRun {
  public:
    TrainingRun(const TrainConfig& config, const Dataset& data, Communicator& communicator,
                RunOptions options);

    // Weights of rank 0 to everybody, from the newest checkpoint if there is one.
    // conflict: the checkpoint belongs to another configuration; unavailable, timed_out: a rank is
    // gone.
    Status prepare();
    // Trains to the end, or until SIGTERM. unavailable, timed_out: a rank was lost; rank 0 then
    // has written a checkpoint of the last finished step.
    Result<RunEnd> run();

    Model& model() { return *model_; }

  private:
    using Clock = std::chrono::steady_clock;

    Status load_latest(Checkpoint& checkpoint);
    Status share(Checkpoint& checkpoint);
    std::int64_t total_steps() const;
    bool done() const;
    Status run_epoch();
    Result<StepResult> step(std::int64_t batch, std::int64_t samples);
    Status micro_steps(StepResult& result);
    Status combine(StepResult& result);
    void after_step(StepResult& result);
    void report(const StepResult& result);
    void print(const StepResult& result);
    Status save(bool due);
    Status evaluate();
    Status lost(Error error);
    void phase(const char* name);

    TrainConfig config_;
    const Dataset& data_;
    Communicator& communicator_;
    RunOptions options_;
    Sampler sampler_;
    Loader loader_;
    std::unique_ptr<Model> model_;
    Optimizer optimizer_;
    GradientReducer reducer_;
    Report report_;
    RunEnd end_;
    std::int64_t step_ = 0;
    std::int64_t epoch_ = 0;
    std::int64_t consumed_ = 0;
    std::int64_t saved_step_ = -1;
    std::int64_t trained_samples_ = 0;  // of this rank in this process
    double checkpoint_seconds_ = 0.0;   // of the step before, to report
    bool announced_ = false;            // total_steps was reported
    bool evaluated_ = false;
    bool stop_ = false;  // all ranks know that all stop
    double epoch_loss_ = 0.0;
    std::int64_t epoch_steps_ = 0;
    Clock::time_point last_end_;
};

// The hash of the fields that shape the training; the length of the run, the loader's threads,
// folders and the frequency of lines and checkpoints are left out.
std::string training_hash(const TrainConfig& config);

}  // namespace lockstep
