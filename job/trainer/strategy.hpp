// A strategy says who holds the parameters, who combines the gradients, and when. The training run
// (run.hpp) does everything else: epochs, reports, checkpoints, the end.
// Every rank of the generation makes the same calls, in the same order. Training thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/checkpoint.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/loader.hpp"
#include "job/trainer/loss_scale.hpp"
#include "job/trainer/model.hpp"
#include "job/trainer/optimizer.hpp"
#include "job/trainer/world.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

// One finished optimizer step of this rank; all times in seconds.
struct StepResult {
    std::int64_t step = 0;       // from 1, over all epochs
    std::int64_t epoch = 0;      // from 0
    std::int64_t batch = 0;      // optimizer step inside the epoch, from 0
    std::int64_t samples = 0;    // of this rank in this step, over all micro-steps
    double learning_rate = 0.0;  // of this step
    double loss = 0.0;           // mean over this rank's samples, before any all-reduce
    double gradient_norm = 0.0;  // of the mean gradient over all ranks, before it is clipped
    double step_seconds = 0.0;   // from the end of the step before to the end of this one
    double data_wait_seconds = 0.0;
    double forward_seconds = 0.0;
    double backward_seconds = 0.0;  // the all-reduce of earlier buckets runs meanwhile
    // Waited for the other ranks, which no other phase counts: after backward, and in a pipeline on
    // the CPU in every send to a neighbouring stage and receive from one.
    double comm_wait_seconds = 0.0;
    double optimizer_seconds = 0.0;
    // parameter_server: steps of other workers between this one's reading of the parameters and
    // the use of its gradient. −1: no servers.
    std::int64_t staleness = -1;
    bool skipped = false;     // fp16: the gradients were not finite, and no step was made
    bool stop = false;        // all ranks know that all stop after this step
    bool checkpoint = false;  // a checkpoint was asked for, as far as this strategy needs to know
};

// Which part of every epoch's samples this rank reads.
struct Shard {
    std::int32_t index = 0;
    std::int32_t count = 1;
};

// Sums over the samples.
struct Evaluation {
    double right = 0.0;  // answers that were the most likely one
    double loss = 0.0;
    double answers = 0.0;
    double samples = 0.0;
    // Of numbers, in deviations of their column: errors, and what is asked for.
    double absolute = 0.0;
    double squares = 0.0;
    double targets = 0.0;
    double target_squares = 0.0;
    // Ranks that were told to stop before their share was done: the sums say nothing then, and all
    // ranks know that all stop.
    double cut = 0.0;
};

// How far the others are whose steps are not this rank's.
struct OtherWorkers {
    std::int64_t training = 0;  // workers that still have steps to make
    // The last step of the one that is the furthest back, also of those that were stopped or lost;
    // INT64_MAX: all have made all of theirs.
    std::int64_t slowest = INT64_MAX;
    bool stop = false;  // a worker was told to stop, so all do
};

class Strategy {
  public:
    virtual ~Strategy() = default;

    // What the loss is multiplied by (fp16): the same on all ranks that step together.
    LossScaler& scaler() { return scaler_; }

    virtual Shard shard() const = 0;
    // Of the network, which this rank computes: the first one, and how many.
    virtual std::pair<std::size_t, std::size_t> layers() const { return {0, SIZE_MAX}; }
    // The ranks that train, this one among them; their rank 0 reads and writes checkpoints.
    virtual Communicator& trainers() = 0;
    // Computes `result.samples` samples of the loader and makes the step; fills in what of `result`
    // is not set. unavailable, timed_out: a rank is gone, and nothing was changed on this rank.
    // cancelled: the others did not finish while this rank was told to stop; an operation of the
    // communicator still hangs and only _Exit ends the process.
    virtual Status step(Loader& loader, StepResult& result) = 0;
    // Over all of `test`, the sums on every rank. Ends early where a rank is told to stop.
    virtual Result<Evaluation> evaluate(const SampleSet& test) = 0;

    // The state as one device would have it, to rank 0 of the trainers: parameters, buffers,
    // optimizer, layout. All trainers call it, unless root_has_all(): then the others need not.
    virtual Status collect(Checkpoint& state) = 0;
    virtual bool root_has_all() const = 0;
    // The same without a word between trainers: each copies its own part. `set` names it, for
    // servers, which write theirs. Rank 0 calls it alone if root_has_all(). Parameters and moments
    // may be left to out.copy(): the next step changes none of them before it has called
    // before_update().
    virtual Status snapshot(const PartSet& set, Snapshot& out) = 0;
    void before_update(std::function<void()> call) { before_update_ = std::move(call); }
    // The opposite: rank 0's state to everybody who holds some of it. The sizes are right on every
    // rank; the values on rank 0.
    virtual Status distribute(Checkpoint& state) = 0;

    // A server's whole life: returns when every worker has said that it is done. Only where
    // serves(); nothing above but trainers() is called there. `checkpoints`: their folder.
    virtual bool serves() const { return false; }
    virtual Status serve(const std::filesystem::path& checkpoints) {
        static_cast<void>(checkpoints);
        return {};
    }
    // Whether each trainer makes its steps without waiting for the others', so that one may have
    // made its last while they go on (parameter_server with update async).
    virtual bool steps_apart() const { return false; }
    // This trainer has made its last step. Answers at once; where nobody trains any more, this rank
    // has the parameters of the end then. unavailable, timed_out: a server is gone.
    virtual Result<OtherWorkers> settled() { return OtherWorkers{}; }
    // The last call of a trainer.
    virtual Status finish() { return {}; }

  protected:
    explicit Strategy(const TrainConfig& config)
        : scaler_(config.precision == TrainPrecision::fp16) {}
    // For strategies whose snapshots leave something to be copied: before the optimizer's step.
    void will_update() const {
        if (before_update_) {
            before_update_();
        }
    }

  private:
    LossScaler scaler_;
    std::function<void()> before_update_;
};

// invalid: the strategy cannot be had with these ranks (too few, no servers, …).
Result<std::unique_ptr<Strategy>> make_strategy(const TrainConfig& config, const ModelShape& shape,
                                                World& world);

// One file in strategies/ for each. They compute on the GPUs of `world`, if it has some.
Result<std::unique_ptr<Strategy>> make_data_parallel(const TrainConfig& config,
                                                     const ModelShape& shape, World& world);
// The same on `device`: a GPU, world.gpu(), or, for tests, the CPU.
Result<std::unique_ptr<Strategy>> make_device_parallel(const TrainConfig& config,
                                                       const ModelShape& shape, World& world,
                                                       at::Device device);
Result<std::unique_ptr<Strategy>> make_replicated(const TrainConfig& config,
                                                  const ModelShape& shape, World& world);
Result<std::unique_ptr<Strategy>> make_parameter_server(const TrainConfig& config,
                                                        const ModelShape& shape, World& world);
Result<std::unique_ptr<Strategy>> make_pipeline(const TrainConfig& config, const ModelShape& shape,
                                                World& world);

// What several strategies do alike.

// Forward and backward over the micro-batches of one optimizer step; adds to the gradients of the
// model. `replica` tells the dropout of ranks apart; `before_last` is called before the last
// backward.
class GradientPass {
  public:
    // `device`: the model's.
    GradientPass(const TrainConfig& config, std::int32_t replica, at::Device device = at::kCPU)
        : config_(config), replica_(replica), device_(device) {}

    // `scale`: what the gradients are too large by. Waits for the device once a micro-batch.
    Status run(Model& model, Loader& loader, StepResult& result, double scale,
               const std::function<void()>& before_last) const;
    // What a pass of the step's `micro`-th micro-batch is for.
    // `micro` of the `of` micro-batches of its step: each has a dropout of its own.
    Pass training_pass(const StepResult& result, std::int64_t micro, std::int64_t of) const;

  private:
    TrainConfig config_;
    std::int32_t replica_;
    at::Device device_;
};

// The share of `test` of one rank of the group, its answers counted, summed over the group.
// `device`: the model's.
Result<Evaluation> evaluate_model(Model& model, const SampleSet& test, TrainLoss loss,
                                  Communicator& group, at::Device device = at::kCPU);
Status sum_evaluations(Evaluation& mine, Communicator& group);
void count_answers(const at::Tensor& logits, const at::Tensor& targets, TrainLoss loss,
                   Evaluation& out);

// A model's state to and from a checkpoint.
void read_model(Model& model, Optimizer& optimizer, Checkpoint& out);
void write_model(const Checkpoint& state, Model& model, Optimizer& optimizer);
// The snapshot of a rank that holds everything, of whose state only what changes in a forward pass
// is copied at once.
void show_model(Model& model, Optimizer& optimizer, Snapshot& out);
// Floats of a part: slice number `number` of it. show_slice(): Snapshot::copy() copies them;
// keep_slice(): they stay as they are until the next snapshot (Optimizer::hold()).
void show_slice(CheckpointPart& part, std::size_t number, Section section, std::size_t offset,
                std::span<const float> values);
void keep_slice(CheckpointPart& part, std::size_t number, Section section, std::size_t offset,
                std::span<const float> values);
void copy_slice(CheckpointPart& part, std::size_t number, Section section, std::size_t offset,
                std::span<const float> values);
// Rank 0's parameters, buffers and optimizer to the group.
Status broadcast_state(Checkpoint& state, Communicator& group);

// What the gradients of a step are multiplied by: mean / scale, clipped; nothing: it is left out.
// `norm`: of the sums, over all ranks that hold some. Sets result.gradient_norm, to what it was
// before it is clipped, and result.skipped. exhausted: it is not finite, and no scale helps.
Result<std::optional<double>> gradient_factor(const TrainConfig& config, double norm, double mean,
                                              LossScaler& scaler, StepResult& result);
// The step of a mean gradient: gradients · mean / scale, clipped; sets result.gradient_norm, to
// what it was before that, and result.skipped. `squares`: the sum of the gradients' squares, over
// all ranks that hold some. exhausted: they are not finite, and no scale helps.
Status apply_gradients(const TrainConfig& config, std::span<float> parameters,
                       std::span<const float> gradients, double squares, double mean,
                       Optimizer& optimizer, LossScaler& scaler, StepResult& result);

// What this rank computes on: its (first) GPU, or the CPU.
at::Device device_of(const World& world);
// Before a forward pass on a GPU: its dropout follows from the pass alone. (On the CPU it does.)
void seed_for(at::Device device, const Pass& pass);
// Where backward begins, for a loss on this device.
at::Tensor loss_slope(double slope, at::Device device);

// The loader's next one, a span of a profile.
Batch next_batch(Loader& loader);
// Asked while waiting for other ranks: this rank was told to stop, and they had their time.
bool stop_is_overdue();

}  // namespace lockstep
