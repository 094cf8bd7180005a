#include "job/trainer/run.hpp"

#include "job/base/log.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/random.hpp"
#include "job/trainer/stop_signal.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int64_t kEvaluationBatch = 256;
// After SIGTERM the other ranks get this long to finish the step with us; the agent's grace is 10
// s.
constexpr auto kStopPatience = std::chrono::seconds{4};

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// Images as LibTorch sees them: channels-last (also its strides, which decide the algorithm),
// without a copy. The batch must stay valid while the tensors are used.
at::Tensor images_of(const Batch& batch, const ImageSet& set) {
    const auto rows = static_cast<std::int64_t>(set.rows);
    const auto columns = static_cast<std::int64_t>(set.columns);
    return at::from_blob(batch.pixels, {batch.size, 1, rows, columns},
                         {rows * columns, 1, columns, 1}, at::kFloat);
}

at::Tensor labels_of(const Batch& batch) {
    return at::from_blob(batch.labels, {batch.size}, at::kLong);
}

Sampler make_sampler(const TrainConfig& config, const Dataset& data,
                     const Communicator& communicator) {
    return {data.train.count, communicator.rank(), communicator.size(), config.shuffle,
            static_cast<std::uint64_t>(config.seed)};
}

double learning_rate(const TrainConfig& config, std::int32_t ranks) {
    return config.learning_rate * (config.scale_learning_rate ? ranks : 1);
}

}  // namespace

TrainingRun::TrainingRun(const TrainConfig& config, const Dataset& data, Communicator& communicator,
                         RunOptions options)
    : config_(config),
      data_(data),
      communicator_(communicator),
      options_(std::move(options)),
      sampler_(make_sampler(config, data, communicator)),
      loader_(data.train, config.batch_size, config.loader_workers),
      model_(make_model(config)),
      optimizer_(config.optimizer, learning_rate(config, communicator.size()), config.momentum,
                 model_->parameters().values().size()),
      reducer_(communicator, model_->parameters()) {}

void TrainingRun::phase(const char* name) {
    if (options_.client != nullptr) {
        options_.client->phase(name);
    }
}

// Steps of the whole run, as it looks from here: the number of ranks may have changed before.
std::int64_t TrainingRun::total_steps() const {
    const std::int64_t per_step = std::int64_t{config_.batch_size} * config_.accumulate;
    const auto steps = [&](std::int64_t samples) { return (samples + per_step - 1) / per_step; };
    std::int64_t all = step_;
    if (epoch_ < config_.epochs) {
        all += steps(sampler_.per_rank(consumed_)) +
               (config_.epochs - epoch_ - 1) * steps(sampler_.per_rank());
    }
    return config_.max_steps > 0 ? std::min(all, config_.max_steps) : all;
}

bool TrainingRun::done() const {
    return epoch_ >= config_.epochs || (config_.max_steps > 0 && step_ >= config_.max_steps);
}

Result<RunEnd> TrainingRun::run() {
    while (!done() && !stop_) {
        if (const Status trained = run_epoch(); !trained) {
            return fail(trained.error());
        }
        if (stop_) {
            break;
        }
        if (const Status evaluated = evaluate(); !evaluated) {
            return fail(evaluated.error());
        }
    }
    if (!stop_ && !evaluated_) {  // resumed from the checkpoint of the end
        if (const Status evaluated = evaluate(); !evaluated) {
            return fail(evaluated.error());
        }
    }
    end_.stopped = stop_;
    if (!end_.abandoned) {
        if (const Status saved = save(true); !saved) {
            return fail(saved.error());
        }
    }
    end_.step = step_;
    const double all = static_cast<double>(trained_samples_) * communicator_.size();
    end_.samples_per_second = end_.step_seconds > 0 ? all / end_.step_seconds : 0.0;
    return end_;
}

Status TrainingRun::run_epoch() {
    phase("train");
    const std::int64_t per_step = std::int64_t{config_.batch_size} * config_.accumulate;
    std::int64_t left = sampler_.per_rank(consumed_);
    std::int64_t batch = (sampler_.per_rank() - left) / per_step;
    loader_.begin(sampler_.indices(epoch_, consumed_));
    epoch_loss_ = 0.0;
    epoch_steps_ = 0;
    last_end_ = Clock::now();
    while (left > 0 && !stop_ && !done()) {
        const std::int64_t samples = std::min(left, per_step);
        Result<StepResult> result = step(batch, samples);
        if (!result) {
            return lost(std::move(result).error());
        }
        left -= samples;
        ++batch;
        consumed_ += samples * communicator_.size();
        if (left <= 0) {
            ++epoch_;
            consumed_ = 0;
        }
        after_step(*result);
        const bool wanted = stop_signal::take_checkpoint_request();
        const std::int64_t every = config_.checkpoint_every_steps;
        if (const Status saved = save(wanted || (every > 0 && step_ % every == 0)); !saved) {
            return saved;
        }
    }
    return {};
}

Result<StepResult> TrainingRun::step(std::int64_t batch, std::int64_t samples) {
    StepResult result;
    result.step = step_ + 1;
    result.epoch = epoch_;
    result.batch = batch;
    result.samples = samples;
    if (const Status computed = micro_steps(result); !computed) {
        return fail(computed.error());
    }
    if (const Status combined = combine(result); !combined) {
        return fail(combined.error());
    }
    return result;
}

// Forward and backward over the micro-batches of one optimizer step. Each micro-batch weighs by
// its samples, so that the gradient is that of the mean over all of them.
Status TrainingRun::micro_steps(StepResult& result) {
    FlatParameters& parameters = model_->parameters();
    parameters.zero_gradients();
    std::int64_t seen = 0;
    for (std::int64_t micro = 0; seen < result.samples; ++micro) {
        const auto start = Clock::now();
        const Batch batch = loader_.next();
        if (batch.size == 0) {
            return fail(Errc::internal, "the loader ended before the epoch");
        }
        const auto ready = Clock::now();
        seen += batch.size;
        Pass pass;
        pass.training = true;
        pass.batch_statistics = config_.norm_mode == NormMode::train;
        pass.dropout_key =
            Random::combine(Random::combine(static_cast<std::uint64_t>(config_.seed),
                                            static_cast<std::uint64_t>(communicator_.rank())),
                            static_cast<std::uint64_t>(result.step * config_.accumulate + micro));
        const at::Tensor logits = model_->forward(images_of(batch, data_.train), pass);
        const at::Tensor loss = at::cross_entropy_loss(logits, labels_of(batch));
        const double weight = static_cast<double>(batch.size) / static_cast<double>(result.samples);
        result.loss += weight * loss.item<double>();
        const auto computed = Clock::now();
        if (seen == result.samples) {
            parameters.flag() = stop_signal::requested() ? 1.0F : 0.0F;
            reducer_.arm();
        }
        loss.backward(at::scalar_tensor(weight, at::kFloat));
        result.data_wait_seconds += seconds_between(start, ready);
        result.forward_seconds += seconds_between(ready, computed);
        result.backward_seconds += seconds_between(computed, Clock::now());
    }
    return {};
}

// The mean gradient over the ranks, and the step it makes.
Status TrainingRun::combine(StepResult& result) {
    FlatParameters& parameters = model_->parameters();
    const auto start = Clock::now();
    const Status reduced = reducer_.finish([] { return stop_signal::age() > kStopPatience; });
    if (!reduced) {
        return reduced;
    }
    const auto received = Clock::now();
    const double mean = 1.0 / communicator_.size();
    const std::span<const float> gradients = parameters.gradients();
    result.gradient_norm =
        std::sqrt(kernels::sum_of_squares(gradients.data(), gradients.size())) * mean;
    optimizer_.step(parameters.values(), gradients, static_cast<float>(mean));
    const auto end = Clock::now();
    stop_ = parameters.flag() > 0.0F;
    ++step_;
    result.comm_wait_seconds = seconds_between(start, received);
    result.optimizer_seconds = seconds_between(received, end);
    result.step_seconds = seconds_between(last_end_, end);
    last_end_ = end;
    return {};
}

void TrainingRun::after_step(StepResult& result) {
    end_.step_seconds += result.step_seconds;
    trained_samples_ += result.samples;
    epoch_loss_ += result.loss;
    ++epoch_steps_;
    if (!std::isfinite(result.loss) && ++end_.nonfinite_losses == 1) {
        log::warn("loss is not finite", {{"step", result.step}, {"loss", result.loss}});
    }
    const auto start = Clock::now();
    report(result);
    end_.report_seconds += seconds_between(start, Clock::now());
    print(result);
    if (options_.on_step) {
        options_.on_step(result);
    }
}

// Accuracy and loss on the test set, shared out over the ranks without padding. The moving averages
// of rank 0 count, as they do in the checkpoint (PyTorch's DDP broadcasts them too).
Status TrainingRun::evaluate() {
    phase("eval");
    if (const Status sent = communicator_.broadcast(std::as_writable_bytes(model_->buffers()), 0);
        !sent) {
        return sent;
    }
    const at::NoGradGuard no_gradients;
    std::vector<std::uint32_t> mine;
    for (auto i = static_cast<std::uint32_t>(communicator_.rank()); i < data_.test.count;
         i += static_cast<std::uint32_t>(communicator_.size())) {
        mine.push_back(i);
    }
    Loader loader{data_.test, kEvaluationBatch, 0};
    loader.begin(std::move(mine));
    std::array<float, 3> sums{};  // right, loss, samples: whole numbers are exact to 16 million
    for (Batch batch = loader.next(); batch.size > 0; batch = loader.next()) {
        const at::Tensor logits = model_->forward(images_of(batch, data_.test), Pass{});
        const at::Tensor labels = labels_of(batch);
        sums[0] += logits.argmax(1).eq(labels).sum().item<float>();
        sums[1] +=
            at::cross_entropy_loss(logits, labels).item<float>() * static_cast<float>(batch.size);
        sums[2] += static_cast<float>(batch.size);
    }
    if (const Status reduced = communicator_.all_reduce_sum(sums); !reduced) {
        return reduced;
    }
    evaluated_ = true;
    end_.accuracy = static_cast<double>(sums[0] / sums[2]);
    end_.test_loss = static_cast<double>(sums[1] / sums[2]);
    if (communicator_.rank() == 0 && options_.client != nullptr) {
        report_.begin(step_, std::max<std::int64_t>(epoch_ - (consumed_ == 0 ? 1 : 0), 0));
        report_.kind("epoch");
        report_.metric("accuracy", end_.accuracy);
        report_.metric("test_loss", end_.test_loss);
        options_.client->send_now(report_.finish());
    }
    if (options_.out != nullptr && epoch_steps_ > 0) {
        const std::int64_t number = consumed_ == 0 ? epoch_ : epoch_ + 1;
        std::fprintf(options_.out, "Epoch %lld/%d, Loss: %.4f, accuracy: %.4f\n",
                     static_cast<long long>(number), config_.epochs,
                     epoch_loss_ / static_cast<double>(epoch_steps_), end_.accuracy);
    }
    return {};
}

}  // namespace lockstep
