#include "job/trainer/strategy.hpp"

#include "job/trainer/device.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/random.hpp"
#include "job/trainer/step_profile.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

using StepClock = std::chrono::steady_clock;

constexpr std::int64_t kEvaluationBatch = 256;

double seconds_of(StepClock::duration time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

bool stop_is_overdue() {
    return stop_signal::age() > limits::kTrainStopPatience;
}

at::Device device_of(const World& world) {
    return world.gpu() < 0 ? at::Device{at::kCPU}
                           : at::Device{at::kCUDA, static_cast<at::DeviceIndex>(world.gpu())};
}

Result<std::unique_ptr<Strategy>> make_strategy(const TrainConfig& config, const ModelShape& shape,
                                                World& world) {
    if (std::string wrong = check_train_ranks(config, world.size()); !wrong.empty()) {
        return fail(Errc::invalid, "strategy " + std::move(wrong));
    }
    switch (config.strategy) {
        case TrainStrategy::single:
        case TrainStrategy::data_parallel:
            if (world.gpu() >= 0 || trains_portably()) {
                return make_device_parallel(config, shape, world, device_of(world));
            }
            return make_data_parallel(config, shape, world);
        case TrainStrategy::replicated:
        case TrainStrategy::central_storage:
            return make_replicated(config, shape, world);
        case TrainStrategy::parameter_server:
            return make_parameter_server(config, shape, world);
        case TrainStrategy::pipeline:
            return make_pipeline(config, shape, world);
    }
    return fail(Errc::internal, "no such strategy");
}

Pass GradientPass::training_pass(const StepResult& result, std::int64_t micro,
                                 std::int64_t of) const {
    Pass pass;
    pass.training = true;
    pass.batch_statistics = config_.norm_mode == NormMode::train;
    pass.bfloat16 = config_.precision == TrainPrecision::bf16;
    pass.half = config_.precision == TrainPrecision::fp16;
    pass.dropout_key = Random::combine(Random::combine(static_cast<std::uint64_t>(config_.seed),
                                                       static_cast<std::uint64_t>(replica_)),
                                       static_cast<std::uint64_t>(result.step * of + micro));
    return pass;
}

void seed_for(at::Device device, const Pass& pass) {
    if (!device.is_cpu()) {
        seed_device(device, pass.dropout_key);
    }
}

at::Tensor loss_slope(double slope, at::Device device) {
    return at::full({}, slope, at::TensorOptions{at::kFloat}.device(device));
}

Batch next_batch(Loader& loader) {
    const ProfileSpan span{"data wait"};
    return loader.next();
}

// Each micro-batch weighs by its samples, so that the gradient is that of the mean over all.
Status GradientPass::run(Model& model, Loader& loader, StepResult& result, double scale,
                         const std::function<void()>& before_last) const {
    std::int64_t seen = 0;
    for (std::int64_t micro = 0; seen < result.samples; ++micro) {
        const auto start = StepClock::now();
        const Batch batch = next_batch(loader);
        if (batch.size == 0) {
            return fail(loader.ended());
        }
        const auto ready = StepClock::now();
        seen += batch.size;
        const double weight = static_cast<double>(batch.size) / static_cast<double>(result.samples);
        at::Tensor loss;
        {
            const ProfileSpan span{"forward"};
            const Pass pass = training_pass(result, micro, config_.accumulate);
            seed_for(device_, pass);
            const at::Tensor logits =
                model.forward(to_device(tensor_of(batch.input, batch.size), device_), pass);
            loss = mean_loss(logits, to_device(tensor_of(batch.target, batch.size), device_),
                             config_.loss);
            result.loss += weight * loss.item<double>();
        }
        const auto computed = StepClock::now();
        if (seen == result.samples) {
            before_last();
        }
        {
            const ProfileSpan span{"backward"};
            loss.backward(loss_slope(weight * scale, device_));
        }
        result.data_wait_seconds += seconds_of(ready - start);
        result.forward_seconds += seconds_of(computed - ready);
        result.backward_seconds += seconds_of(StepClock::now() - computed);
    }
    return {};
}

void count_answers(const at::Tensor& logits, const at::Tensor& targets, TrainLoss loss,
                   Evaluation& out) {
    const auto samples = static_cast<double>(targets.size(0));
    out.loss += mean_loss(logits, targets, loss).item<double>() * samples;
    out.samples += samples;
    if (loss != TrainLoss::cross_entropy) {
        const at::Tensor asked = targets.to(at::kDouble);
        const at::Tensor error = logits.view(targets.sizes()).to(at::kDouble) - asked;
        out.absolute += error.abs().sum().item<double>();
        out.squares += error.square().sum().item<double>();
        out.targets += asked.sum().item<double>();
        out.target_squares += asked.square().sum().item<double>();
        return;
    }
    out.right += static_cast<double>(logits.argmax(-1).eq(targets).sum().item<std::int64_t>());
    out.answers += static_cast<double>(targets.ne(kNoAnswer).sum().item<std::int64_t>());
}

Status sum_evaluations(Evaluation& mine, Communicator& group) {
    std::array<double, 9> sums{mine.right,   mine.loss,           mine.answers,
                               mine.samples, mine.absolute,       mine.squares,
                               mine.targets, mine.target_squares, mine.cut};
    const Status done = group.all_reduce({sums.data(), sums.size(), Dtype::f64, Device::cpu});
    mine = {sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7], sums[8]};
    return done;
}

Result<Evaluation> evaluate_model(Model& model, const SampleSet& test, TrainLoss loss,
                                  Communicator& group, at::Device device) {
    const at::NoGradGuard no_gradients;
    std::vector<std::uint32_t> mine;
    for (auto i = static_cast<std::uint32_t>(group.rank()); i < test.count;
         i += static_cast<std::uint32_t>(group.size())) {
        mine.push_back(i);
    }
    Loader loader{test, evaluation_batch(test, kEvaluationBatch), evaluation_workers(test)};
    loader.begin(std::move(mine));
    Evaluation out;
    Batch batch = loader.next();
    for (; batch.size > 0 && !stop_signal::requested(); batch = loader.next()) {
        count_answers(model.forward(to_device(tensor_of(batch.input, batch.size), device), Pass{}),
                      to_device(tensor_of(batch.target, batch.size), device), loss, out);
    }
    out.cut = batch.size > 0 ? 1.0 : 0.0;
    LOCKSTEP_TRY(loader.status());
    LOCKSTEP_TRY(sum_evaluations(out, group));
    return out;
}

void read_model(Model& model, Optimizer& optimizer, Checkpoint& out) {
    const std::span<float> values = model.parameters().values();
    out.parameters.assign(values.begin(), values.end());
    out.buffers.assign(model.buffers().begin(), model.buffers().end());
    out.optimizer.assign(optimizer.state().begin(), optimizer.state().end());
    out.layout = model.parameters().layout().json();
}

void write_model(const Checkpoint& state, Model& model, Optimizer& optimizer) {
    std::copy(state.parameters.begin(), state.parameters.end(),
              model.parameters().values().begin());
    std::copy(state.buffers.begin(), state.buffers.end(), model.buffers().begin());
    std::copy(state.optimizer.begin(), state.optimizer.end(), optimizer.state().begin());
    optimizer.set_steps(state.step - state.loss_scale.skipped);
}

void show_slice(CheckpointPart& part, std::size_t number, Section section, std::size_t offset,
                std::span<const float> values) {
    if (part.slices.size() <= number) {
        part.slices.resize(number + 1);
    }
    CheckpointSlice& slice = part.slices[number];
    slice.section = section;
    slice.offset = offset;
    slice.source = values;
    slice.kept = false;
}

void keep_slice(CheckpointPart& part, std::size_t number, Section section, std::size_t offset,
                std::span<const float> values) {
    show_slice(part, number, section, offset, values);
    part.slices[number].kept = true;
}

void copy_slice(CheckpointPart& part, std::size_t number, Section section, std::size_t offset,
                std::span<const float> values) {
    show_slice(part, number, section, offset, {});
    part.slices[number].values.assign(values.begin(), values.end());
}

void show_model(Model& model, Optimizer& optimizer, Snapshot& out) {
    const std::span<const float> values = model.parameters().values();
    out.index = 0;
    out.sizes = {values.size(), model.buffers().size(), optimizer.state().size()};
    show_slice(out.part, 0, Section::parameters, 0, values);
    copy_slice(out.part, 1, Section::buffers, 0, model.buffers());
    keep_slice(out.part, 2, Section::optimizer, 0, optimizer.hold());
    if (out.layout.empty()) {
        out.layout = model.parameters().layout().json();
    }
}

Status broadcast_state(Checkpoint& state, Communicator& group) {
    for (const std::span<float> part :
         {std::span<float>{state.parameters}, std::span<float>{state.buffers},
          std::span<float>{state.optimizer}}) {
        if (const Status sent = group.broadcast(std::as_writable_bytes(part), 0); !sent) {
            return sent;
        }
    }
    return {};
}

Result<std::optional<double>> gradient_factor(const TrainConfig& config, double norm, double mean,
                                              LossScaler& scaler, StepResult& result) {
    const double factor = mean / scaler.scale();
    result.gradient_norm = norm * factor;
    const Result<bool> use = scaler.use(std::isfinite(norm));
    LOCKSTEP_TRY(use);
    result.skipped = !*use;
    return *use ? std::optional{factor * clip_factor(result.gradient_norm, config.gradient_clip)}
                : std::nullopt;
}

Status apply_gradients(const TrainConfig& config, std::span<float> parameters,
                       std::span<const float> gradients, double squares, double mean,
                       Optimizer& optimizer, LossScaler& scaler, StepResult& result) {
    const Result<std::optional<double>> factor =
        gradient_factor(config, std::sqrt(squares), mean, scaler, result);
    LOCKSTEP_TRY(factor);
    if (*factor) {
        const ProfileSpan span{"optimizer"};
        optimizer.step(parameters, gradients, static_cast<float>(**factor), result.learning_rate);
    }
    return {};
}

}  // namespace lockstep
