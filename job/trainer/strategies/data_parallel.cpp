// data_parallel, and single as its case of one rank: every rank holds all parameters and reads its
// share of the samples; the gradients are summed over the ranks while backward still runs
// (GradientReducer), and every rank makes the same step.
#include "job/trainer/all_reduce.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/reducer.hpp"
#include "job/trainer/step_profile.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategies/kept_averages.hpp"
#include "job/trainer/strategy.hpp"

#include <chrono>
#include <utility>

namespace lockstep {
namespace {

class DataParallel final : public Strategy {
  public:
    DataParallel(const TrainConfig& config, const ModelShape& shape, World& world,
                 std::unique_ptr<GradientSum> sum)
        : Strategy(config),
          config_(config),
          all_(world.all()),
          model_(make_model(config, shape)),
          optimizer_(optimizer_options(config), model_->parameters().values().size(),
                     model_->parameters().layout().ranges),
          averages_(model_->flat_buffers()),
          pass_(config, all_.rank()),
          sum_(std::move(sum)),
          reducer_(
              all_.size(), [this](std::span<float> values) { return sum_->sum(values); },
              model_->parameters()) {}

    Shard shard() const override { return {all_.rank(), all_.size()}; }
    Communicator& trainers() override { return all_; }

    Status step(Loader& loader, StepResult& result) override {
        averages_.keep();
        return averages_.unless_finished(make_step(loader, result));
    }

    Status make_step(Loader& loader, StepResult& result) {
        FlatParameters& parameters = model_->parameters();
        parameters.zero_gradients();
        const Status computed = pass_.run(*model_, loader, result, scaler().scale(), [&] {
            parameters.flag() = stop_signal::requested() ? 1.0F : 0.0F;
            reducer_.arm();
        });
        if (!computed) {
            return computed;
        }
        const auto start = Clock::now();
        {
            const ProfileSpan span{"comm wait"};
            if (const Status reduced = reducer_.finish(stop_is_overdue); !reduced) {
                return reduced;
            }
        }
        const auto received = Clock::now();
        will_update();
        const std::span<const float> gradients = parameters.gradients();
        const Status applied =
            apply_gradients(config_, parameters.values(), gradients,
                            kernels::sum_of_squares(gradients.data(), gradients.size()),
                            1.0 / all_.size(), optimizer_, scaler(), result);
        if (!applied) {
            return applied;
        }
        result.comm_wait_seconds = std::chrono::duration<double>(received - start).count();
        result.optimizer_seconds = std::chrono::duration<double>(Clock::now() - received).count();
        result.stop = parameters.flag() > 0.0F;
        result.checkpoint = stop_signal::take_checkpoint_request();
        return {};
    }

    // The moving averages of rank 0 count, as they do in the checkpoint (PyTorch's DDP broadcasts
    // them too).
    Result<Evaluation> evaluate(const SampleSet& test) override {
        const Status sent = all_.broadcast(std::as_writable_bytes(model_->buffers()), 0);
        return sent ? evaluate_model(*model_, test, config_.loss, all_) : fail(sent.error());
    }

    Status collect(Checkpoint& state) override {
        read_model(*model_, optimizer_, state);
        return {};
    }
    bool root_has_all() const override { return true; }
    Status snapshot(const PartSet&, Snapshot& out) override {
        show_model(*model_, optimizer_, out);
        return {};
    }
    Status distribute(Checkpoint& state) override {
        if (const Status shared = broadcast_state(state, all_); !shared) {
            return shared;
        }
        write_model(state, *model_, optimizer_);
        return {};
    }

  private:
    using Clock = std::chrono::steady_clock;

    TrainConfig config_;
    Communicator& all_;
    std::unique_ptr<Model> model_;
    Optimizer optimizer_;
    KeptAverages averages_;
    GradientPass pass_;
    std::unique_ptr<GradientSum> sum_;
    GradientReducer reducer_;
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_data_parallel(const TrainConfig& config,
                                                     const ModelShape& shape, World& world) {
    Result<std::unique_ptr<GradientSum>> sum = make_gradient_sum(config.all_reduce, world);
    LOCKSTEP_TRY(sum);
    return std::make_unique<DataParallel>(config, shape, world, std::move(*sum));
}

}  // namespace lockstep
