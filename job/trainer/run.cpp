#include "job/trainer/run.hpp"

#include "job/base/log.hpp"
#include "job/trainer/random.hpp"
#include "job/trainer/step_profile.hpp"
#include "job/trainer/strategy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr double kLongestStep = 1e36;

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

}  // namespace

TrainingRun::TrainingRun(const TrainConfig& config, const Dataset& data, World& world,
                         RunOptions options)
    : config_(config),
      fields_(training_fields(config)),
      hash_(training_hash(config)),
      data_(data),
      world_(world),
      options_(std::move(options)) {}
TrainingRun::~TrainingRun() = default;

void TrainingRun::phase(const char* name) {
    if (options_.client != nullptr) {
        options_.client->phase(name);
    }
}

// Steps of the whole run, as it looks from here: the number of ranks may have changed before.
std::int64_t TrainingRun::total_steps() const {
    const std::int64_t per_step = std::int64_t{batch_size_} * config_.accumulate;
    const auto steps = [&](std::int64_t samples) { return (samples + per_step - 1) / per_step; };
    std::int64_t all = step_;
    if (epoch_ < config_.epochs) {
        all += steps(sampler_.per_rank(consumed_)) +
               (config_.epochs - epoch_ - 1) * steps(sampler_.per_rank());
    }
    return config_.max_steps > 0 ? std::min(all, config_.max_steps) : all;
}

// A pipeline's stage computes a part of the network; then it is the mean over the stages.
double TrainingRun::mfu(std::int64_t samples, double seconds) const {
    const double peak = peak_flops_ * stages_ * seconds;
    return peak > 0.0 ? costs_.flops * static_cast<double>(samples) / peak : 0.0;
}

bool TrainingRun::done() const {
    return epoch_ >= config_.epochs || (config_.max_steps > 0 && step_ >= config_.max_steps);
}

Result<RunEnd> TrainingRun::run() {
    if (strategy_->serves()) {
        phase("train");
        end_.served = true;
        const Status served = strategy_->serve(options_.checkpoint_directory);
        return served ? Result<RunEnd>{end_} : fail(served.error());
    }
    if (!options_.socket.empty()) {
        profile_ = StepProfile::offer(options_.socket);
    }
    while (!done() && !stop_) {
        LOCKSTEP_TRY(run_epoch());
        if (done() && strategy_->steps_apart()) {
            LOCKSTEP_TRY(wait_for_others());
        }
        if (stop_) {
            break;
        }
        LOCKSTEP_TRY(evaluate_or_save());
    }
    profile_.reset();                 // nobody asks between here and the end
    if (!stop_ && !end_.evaluated) {  // resumed from the checkpoint of the end
        LOCKSTEP_TRY(evaluate_or_save());
    }
    end_.stopped = stop_;
    if (!end_.abandoned) {
        LOCKSTEP_TRY(save_end());
    }
    if (!end_.stopped && !diverged_) {
        LOCKSTEP_TRY(export_weights());
    }
    if (!end_.abandoned) {
        LOCKSTEP_TRY(strategy_->finish());
    }
    end_.step = step_;
    end_.skipped_steps = strategy_->scaler().state().skipped;
    end_.batch_size = batch_size_;
    const double all = static_cast<double>(trained_samples_) * sampler_.ranks;
    end_.samples_per_second = end_.step_seconds > 0 ? all / end_.step_seconds : 0.0;
    end_.tokens_per_second = end_.samples_per_second * static_cast<double>(costs_.tokens);
    end_.mfu = mfu(trained_samples_, end_.step_seconds);
    return end_;
}

Status TrainingRun::run_epoch() {
    phase("train");
    const std::int64_t per_step = std::int64_t{batch_size_} * config_.accumulate;
    std::int64_t left = sampler_.per_rank(consumed_);
    std::int64_t batch = (sampler_.per_rank() - left) / per_step;
    loader_->begin(sampler_.indices(epoch_, consumed_),
                   Random::combine(static_cast<std::uint64_t>(config_.seed),
                                   static_cast<std::uint64_t>(epoch_)));
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
        consumed_ += samples * sampler_.ranks;
        if (left <= 0) {
            ++epoch_;
            consumed_ = 0;
        }
        if (const Status fit = after_step(*result); !fit) {
            return fit;
        }
        const std::int64_t every = config_.checkpoint_every_steps;
        const bool due = result->checkpoint || (every > 0 && step_ % every == 0);
        // A checkpoint of the last step says that nothing is left to train, of the others neither.
        const bool early = done() && strategy_->steps_apart();
        if (const Status saved = save(due && !early); !saved) {
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
    result.learning_rate = learning_rate_at(config_, base_rate_, result.step, planned_steps_);
    LOCKSTEP_TRY(strategy_->step(*loader_, result));
    const auto end = Clock::now();
    stop_ = result.stop;
    ++step_;
    result.step_seconds = seconds_between(last_end_, end);
    last_end_ = end;
    return result;
}

// A first step that is not finite was computed from what the run began with: nothing was learned,
// and nothing will be. invalid: it was.
Status TrainingRun::after_step(StepResult& result) {
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
    if (profile_) {
        profile_->step_ended(result);
    }
    // The state is not finite, or so far away that floats do not hold it.
    diverged_ = !result.skipped && !(result.gradient_norm * result.learning_rate < kLongestStep);
    if (result.step == 1 && !result.skipped &&
        (!std::isfinite(result.gradient_norm) || !std::isfinite(result.loss))) {
        const bool loss = !std::isfinite(result.loss);
        const double value = loss ? result.loss : result.gradient_norm;
        return fail(Errc::invalid,
                    std::string{"step 1: the "} + (loss ? "loss" : "gradient's norm") + " is " +
                        (std::isnan(value) ? "nan" : "infinite") +
                        ": the data, the weights that the run began with or the network give no "
                        "finite number");
    }
    return {};
}

void TrainingRun::take_errors(const Evaluation& sums) {
    const double deviation = data_.columns.empty() ? 1.0 : data_.columns.back().deviation;
    end_.mean_error = sums.absolute / sums.samples * deviation;
    const double spread = sums.target_squares - sums.targets * sums.targets / sums.samples;
    end_.explained = spread > 0.0 ? 1.0 - sums.squares / spread : 0.0;
}

// An image of the test set that cannot be read takes no step with it that was made.
Status TrainingRun::evaluate_or_save() {
    Status done = evaluate();
    return done ? Status{} : lost(std::move(done).error().in("evaluation"));
}

// Accuracy, or errors, and loss on the test set. It may take longer than the agent's patience with
// a rank that it asked to stop, so it is left then; a resumed run does not come back to it, unless
// it was the last one.
Status TrainingRun::evaluate() {
    phase("eval");
    const Result<Evaluation> sums = strategy_->evaluate(data_.test);
    LOCKSTEP_TRY(sums);
    if (sums->cut > 0.0) {
        stop_ = true;
        return {};
    }
    end_.evaluated = true;
    end_.of_numbers = config_.loss != TrainLoss::cross_entropy;
    if (end_.of_numbers) {
        take_errors(*sums);
    } else {
        end_.accuracy = sums->right / sums->answers;
    }
    end_.test_loss = sums->loss / sums->samples;
    if (is_root() && options_.client != nullptr) {
        report_.begin(step_, std::max<std::int64_t>(epoch_ - (consumed_ == 0 ? 1 : 0), 0));
        report_.kind("epoch");
        if (end_.of_numbers) {
            report_.metric("mae", end_.mean_error);
            report_.metric("r2", end_.explained);
        } else {
            report_.metric("accuracy", end_.accuracy);
        }
        report_.metric("test_loss", end_.test_loss);
        options_.client->send_now(report_.finish());
    }
    if (options_.out != nullptr && epoch_steps_ > 0) {
        const std::int64_t number = consumed_ == 0 ? epoch_ : epoch_ + 1;
        std::fprintf(options_.out, "Epoch %lld/%d, Loss: %.4f, %s: %.4f\n",
                     static_cast<long long>(number), config_.epochs,
                     epoch_loss_ / static_cast<double>(epoch_steps_),
                     end_.of_numbers ? "MAE" : "accuracy",
                     end_.of_numbers ? end_.mean_error : end_.accuracy);
    }
    return {};
}

}  // namespace lockstep
