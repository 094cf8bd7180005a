// TrainingRun: what is said about each step, to the agent and to people.
#include "job/trainer/run.hpp"
#include "job/trainer/strategy.hpp"

#include <chrono>
#include <cstdio>

namespace lockstep {

void TrainingRun::report(const StepResult& result) {
    if (options_.client == nullptr) {
        return;
    }
    report_.begin(result.step, result.epoch);
    report_.time(
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
    report_.metric("loss", result.loss);
    report_.metric("step_seconds", result.step_seconds);
    report_.metric("samples", result.samples);
    if (costs_.tokens > 0) {
        report_.metric("tokens", result.samples * costs_.tokens);
        report_.metric("mfu", mfu(result.samples, result.step_seconds));
    }
    report_.metric("data_wait_seconds", result.data_wait_seconds);
    report_.metric("comm_wait_seconds", result.comm_wait_seconds);
    report_.metric("busy_seconds",
                   result.step_seconds - result.comm_wait_seconds - result.data_wait_seconds);
    report_.metric("forward_seconds", result.forward_seconds);
    report_.metric("backward_seconds", result.backward_seconds);
    report_.metric("optimizer_seconds", result.optimizer_seconds);
    report_.metric("learning_rate", result.learning_rate);
    report_.metric("grad_norm", result.gradient_norm);
    if (result.staleness >= 0) {
        report_.metric("staleness", result.staleness);
    }
    if (strategy_->scaler().active()) {
        report_.metric("loss_scale", strategy_->scaler().scale());
        report_.metric("skipped_steps", strategy_->scaler().state().skipped);
    }
    if (checkpoint_seconds_ > 0.0) {
        report_.metric("checkpoint_seconds", checkpoint_seconds_);
        checkpoint_seconds_ = 0.0;
    }
    if (!announced_) {
        report_.metric("total_steps", total_steps());
        report_.metric("batch_size", std::int64_t{batch_size_});
    }
    if (end_.nonfinite_losses > 0) {
        report_.metric("nonfinite_losses", end_.nonfinite_losses);
    }
    if (options_.client->dropped() > 0) {
        report_.metric("dropped_reports", options_.client->dropped());
    }
    announced_ = options_.client->send_now(report_.finish()) || announced_;
}

void TrainingRun::print(const StepResult& result) {
    if (options_.out == nullptr || result.batch % config_.log_every_steps != 0) {
        return;
    }
    std::fprintf(options_.out, "epoch: %lld, batch: %lld, loss is: [%.7g]\n",
                 static_cast<long long>(result.epoch), static_cast<long long>(result.batch),
                 result.loss);
}

}  // namespace lockstep
