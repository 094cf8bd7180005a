// data_parallel and single on a GPU: parameters, gradients, moments and the batch lie on it, and
// the host only enqueues. Once a step it waits for three numbers: loss, gradient norm, and whether
// a rank wants to stop.
//
// Where batches are of one size, forward and backward are captured as a CUDA graph after the first
// steps: of a small network the launches take longer than the work. A graph's gradients are summed
// behind it; without one (LOCKSTEP_TRAIN_GRAPHS=0, more than kGraphFloats parameters on several
// ranks, the smaller batch at an epoch's end) bucket by bucket on a stream of its own while
// backward runs.
#include "job/base/log.hpp"
#include "job/trainer/cuda_device.hpp"
#include "job/trainer/device.hpp"
#include "job/trainer/device_optimizer.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategies/device_batches.hpp"
#include "job/trainer/strategies/device_sums.hpp"
#include "job/trainer/strategies/kept_averages.hpp"
#include "job/trainer/strategy.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int64_t kEagerSteps = 3;  // before a graph: libraries choose and allocate in them
constexpr std::size_t kGraphFloats = 1 << 24;  // 64 MiB: more is worth overlapping with backward

class DeviceParallel final : public Strategy {
  public:
    // `own`: of all ranks, for buffers on the GPU; null for one rank, and on the CPU.
    DeviceParallel(const TrainConfig& config, const ModelShape& shape, World& world,
                   at::Device device, std::unique_ptr<Communicator> own)
        : Strategy(config),
          config_(config),
          device_(device),
          all_(world.all()),
          model_(make_model(config, shape, device)),
          optimizer_(optimizer_options(config), model_->parameters().flat_values(),
                     model_->parameters().layout().ranges),
          averages_(model_->flat_buffers()),
          pass_(config, all_.rank()),
          feed_(device),
          own_(std::move(own)),
          wait_(all_, device, DeviceWait::GiveUp::on_loss_or_stop),
          sums_(all_, own_, model_->parameters(), config.all_reduce) {
        const at::TensorOptions options = model_->parameters().flat_gradients().options();
        loss_ = at::zeros({1}, options);
        weight_ = at::zeros({}, options);
        slope_ = at::zeros({}, options);
        stats_ = at::empty({3}, at::TensorOptions{at::kDouble}.pinned_memory(device.is_cuda()));
        const char* wanted = std::getenv("LOCKSTEP_TRAIN_GRAPHS");
        // Tests of this strategy on the CPU have a stand-in for graphs.
        graphs_ = (device.is_cuda() || !cuda_device::built()) &&
                  (wanted == nullptr || std::string_view{wanted} != "0") &&
                  (all_.size() == 1 || parameters().layout().floats <= kGraphFloats);
    }

    Shard shard() const override { return {all_.rank(), all_.size()}; }
    Communicator& trainers() override { return all_; }

    Status step(Loader& loader, StepResult& result) override {
        averages_.keep();
        return averages_.unless_finished(make_step(loader, result));
    }

    Status make_step(Loader& loader, StepResult& result) {
        at::Tensor gradients = parameters().flat_gradients();
        {
            const at::NoGradGuard no_gradients;
            gradients.zero_();
            loss_.zero_();
            if (stop_signal::requested()) {  // summed with them
                gradients.narrow(0, gradients.numel() - 1, 1).fill_(1.0);
            }
        }
        sums_.begin();
        if (const Status computed = compute(loader, result); !computed) {
            return computed;
        }
        const auto enqueued = Clock::now();
        if (const Status summed = sums_.finish(wait_); !summed) {
            return summed;
        }
        if (const Status known = read_stats(loader, gradients); !known) {
            return known;
        }
        const auto received = Clock::now();
        const double there = std::chrono::duration<double>(received - enqueued).count();
        result.comm_wait_seconds = wait_.waited();
        result.backward_seconds += there - wait_.waited();
        const std::span<const double> stats{stats_.data_ptr<double>(), 3};
        result.loss = stats[0];
        if (const Status applied = apply(stats[1], gradients, result); !applied) {
            return applied;
        }
        result.optimizer_seconds = std::chrono::duration<double>(Clock::now() - received).count();
        result.stop = stats[2] > 0.0;
        result.checkpoint = stop_signal::take_checkpoint_request();
        return {};
    }

    // The moving averages of rank 0 count, as they do in the checkpoint.
    Result<Evaluation> evaluate(const SampleSet& test) override {
        std::vector<float> buffers;
        copy_out(model_->flat_buffers(), buffers);
        const Status sent = all_.broadcast(std::as_writable_bytes(std::span{buffers}), 0);
        LOCKSTEP_TRY(sent);
        copy_in(buffers, model_->flat_buffers());
        return evaluate_model(*model_, test, config_.loss, all_, device_);
    }

    Status collect(Checkpoint& state) override {
        copy_out(parameters().flat_values(), state.parameters);
        copy_out(model_->flat_buffers(), state.buffers);
        copy_out(optimizer_.state(), state.optimizer);
        state.layout = parameters().layout().json();
        return {};
    }
    bool root_has_all() const override { return true; }

    // Into pinned memory, at the speed of the bus: the training waits for that, and for no more.
    Status snapshot(const PartSet&, Snapshot& out) override {
        const at::NoGradGuard no_gradients;
        mirror(parameters().flat_values(), parameters_mirror_);
        mirror(model_->flat_buffers(), buffers_mirror_);
        mirror(optimizer_.state(), optimizer_mirror_);
        if (!comes_to_an_end(device_)) {
            return fail(Errc::unavailable,
                        "the GPU does not come to an end: nothing can be copied");
        }
        const std::span<const float> values = floats_of_tensor(parameters_mirror_);
        const std::span<const float> buffers = floats_of_tensor(buffers_mirror_);
        const std::span<const float> moments = floats_of_tensor(optimizer_mirror_);
        out.index = 0;
        out.sizes = {values.size(), buffers.size(), moments.size()};
        show_slice(out.part, 0, Section::parameters, 0, values);
        show_slice(out.part, 1, Section::buffers, 0, buffers);
        show_slice(out.part, 2, Section::optimizer, 0, moments);
        if (out.layout.empty()) {
            out.layout = parameters().layout().json();
        }
        return {};
    }

    Status distribute(Checkpoint& state) override {
        if (const Status shared = broadcast_state(state, all_); !shared) {
            return shared;
        }
        copy_in(state.parameters, parameters().flat_values());
        copy_in(state.buffers, model_->flat_buffers());
        copy_in(state.optimizer, optimizer_.state());
        optimizer_.set_steps(state.step - state.loss_scale.skipped);
        return {};
    }

  private:
    using Clock = std::chrono::steady_clock;

    FlatParameters& parameters() { return model_->parameters(); }

    // Enqueues forward and backward of the step's micro-batches.
    Status compute(Loader& loader, StepResult& result) {
        std::int64_t seen = 0;
        for (std::int64_t micro = 0; seen < result.samples; ++micro) {
            const auto start = Clock::now();
            const DeviceBatch batch = feed_.next(loader);
            if (batch.size == 0) {
                return fail(loader.ended());
            }
            const auto ready = Clock::now();
            result.data_wait_seconds += std::chrono::duration<double>(ready - start).count();
            seen += batch.size;
            const double share =
                static_cast<double>(batch.size) / static_cast<double>(result.samples);
            {
                const at::NoGradGuard no_gradients;
                weight_.fill_(share);
                slope_.fill_(share * scaler().scale());
            }
            const Pass pass = pass_.training_pass(result, micro, config_.accumulate);
            if (!device_.is_cpu()) {
                seed_device(device_, pass.dropout_key);
            }
            const bool launched = run_graph(batch, pass);
            // Not before: no sum belongs into a graph. Its launch calls no hook, so finish() sums
            // all.
            if (seen == result.samples) {
                sums_.arm();
            }
            if (!launched) {
                forward_backward(batch, pass);
            }
            result.backward_seconds += std::chrono::duration<double>(Clock::now() - ready).count();
        }
        return {};
    }

    void forward_backward(const DeviceBatch& batch, const Pass& pass) {
        const at::Tensor loss =
            mean_loss(model_->forward(batch.input, pass), batch.target, config_.loss);
        {
            const at::NoGradGuard no_gradients;
            loss_.add_(loss.detach() * weight_);
        }
        loss.backward(slope_);
    }

    // Whether a graph computed it: of batches of one size, not the last one of an epoch.
    bool run_graph(const DeviceBatch& batch, const Pass& pass) {
        if (!graphs_ || (graph_ == nullptr && !capture(batch, pass))) {
            return false;
        }
        if (batch.size != static_batch_.size) {
            return false;
        }
        static_batch_.input.copy_(batch.input);
        static_batch_.target.copy_(batch.target);
        static_pass_ = pass;
        graph_->launch();
        return true;
    }

    // A graph has memory of its own, as much as the steps before it took; those of other sizes
    // still need theirs.
    static bool has_room_for_graph() {
        const std::int64_t before = cuda_device::free_bytes();
        cuda_device::empty_cache();
        const std::int64_t after = cuda_device::free_bytes();
        return after >= 2 * (after - before);
    }

    // The largest batches are those of most steps.
    bool capture(const DeviceBatch& batch, const Pass& pass) {
        if (batch.size > most_) {
            most_ = batch.size;
            seen_most_ = 0;
        }
        if (batch.size < most_ || ++seen_most_ <= kEagerSteps) {
            return false;
        }
        if (device_.is_cuda() && !has_room_for_graph()) {
            log::info(
                "no CUDA graph: what it keeps beside the batches of other sizes would not fit");
            graphs_ = false;
            return false;
        }
        static_batch_ = {batch.size, batch.input.clone(), batch.target.clone()};
        static_pass_ = pass;
        try {
            graph_ = std::make_unique<cuda_device::Graph>(
                [this] { forward_backward(static_batch_, static_pass_); });
        } catch (const std::exception& error) {
            const std::string text = error.what();
            log::warn("no CUDA graph of this network: every operation is launched by itself",
                      {{"reason", text.substr(0, text.find('\n'))}});
            graphs_ = false;
            return false;
        }
        return true;
    }

    // Loss, norm and flag, once the GPU has come so far. Meanwhile the next batch is prepared.
    Status read_stats(Loader& loader, const at::Tensor& gradients) {
        const at::NoGradGuard no_gradients;
        const std::int64_t floats = gradients.numel() - 1;
        const at::Tensor norm =
            at::linalg_vector_norm(gradients.narrow(0, 0, floats), 2, {}, false, at::kDouble);
        stats_.copy_(at::cat({loss_.to(at::kDouble), norm.view({1}),
                              gradients.narrow(0, floats, 1).to(at::kDouble)}),
                     /*non_blocking=*/true);
        feed_.prefetch(loader);
        // Only rank 0 has something to save, for which the GPU must come free: NCCL's abort does
        // that.
        std::function<void(const std::string&)> free;
        if (own_ != nullptr && all_.rank() == 0) {
            free = [group = own_](const std::string& why) { group->abort(why); };
        }
        const Status done = wait_.until_done(free);
        return done ? sums_.found_wrong() : done;
    }

    Status apply(double norm, at::Tensor& gradients, StepResult& result) {
        const Result<std::optional<double>> factor =
            gradient_factor(config_, norm, 1.0 / all_.size(), scaler(), result);
        LOCKSTEP_TRY(factor);
        if (*factor) {
            at::Tensor values = parameters().flat_values();
            at::Tensor slopes = gradients.narrow(0, 0, gradients.numel() - 1);
            optimizer_.step(values, slopes, **factor, result.learning_rate);
        }
        return {};
    }

    void mirror(const at::Tensor& from, at::Tensor& to) const {
        if (!to.defined()) {
            to = at::empty(from.sizes(),
                           at::TensorOptions{at::kFloat}.pinned_memory(device_.is_cuda()));
        }
        to.copy_(from, /*non_blocking=*/true);
    }

    TrainConfig config_;
    at::Device device_;
    Communicator& all_;
    std::unique_ptr<Model> model_;
    DeviceOptimizer optimizer_;
    KeptAverages averages_;
    GradientPass pass_;
    BatchFeed feed_;
    at::Tensor loss_;             // of the step, summed over its micro-batches
    at::Tensor weight_;           // of the micro-batch in it
    at::Tensor slope_;            // where backward begins: the same times the loss's scale
    at::Tensor stats_;            // on the host: loss, norm, flag
    std::int64_t most_ = 0;       // samples of a batch so far
    std::int64_t seen_most_ = 0;  // how often
    bool graphs_ = false;
    DeviceBatch static_batch_;  // the graph reads it
    Pass static_pass_;
    std::unique_ptr<cuda_device::Graph> graph_;
    at::Tensor parameters_mirror_;
    at::Tensor buffers_mirror_;
    at::Tensor optimizer_mirror_;
    std::shared_ptr<Communicator> own_;  // of all ranks' GPUs; an abort may outlast this object
    DeviceWait wait_;
    DeviceSums sums_;
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_device_parallel(const TrainConfig& config,
                                                       const ModelShape& shape, World& world,
                                                       at::Device device) {
    std::unique_ptr<Communicator> own;
    if (device.is_cuda() && world.size() > 1) {
        Result<std::unique_ptr<Communicator>> made = world.gpu_group("nccl");
        LOCKSTEP_TRY(made);
        own = std::move(*made);
    }
    return std::make_unique<DeviceParallel>(config, shape, world, device, std::move(own));
}

}  // namespace lockstep
