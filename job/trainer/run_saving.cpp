// TrainingRun: what it leaves behind.
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/trainer/named_state.hpp"
#include "job/trainer/run.hpp"
#include "job/trainer/step_profile.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategy.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

Json columns_json(const Dataset& data) {
    Json out = Json::array();
    for (const TableColumn& column : data.columns) {
        out.push_back(
            {{"name", column.name}, {"mean", column.mean}, {"deviation", column.deviation}});
    }
    return out;
}

}  // namespace

// Without what takes time to copy and never changes.
CheckpointHead TrainingRun::checkpoint_head() const {
    CheckpointHead out;
    out.step = step_;
    out.epoch = epoch_;
    out.consumed = consumed_;
    out.ranks = world_.size();
    out.batch_size = config_.find_batch_size ? batch_size_ : 0;
    out.loss_scale = strategy_->scaler().state();
    return out;
}

// What the writer has finished is made known. `wait`: until it has.
Status TrainingRun::take_written(bool wait) {
    const std::optional<Result<std::string>> outcome = writer_.take(wait);
    if (!outcome) {
        return {};
    }
    if (!*outcome) {
        return fail(outcome->error());
    }
    if (snapshot_.index == 0 && options_.client != nullptr) {
        options_.client->checkpoint(writing_step_, **outcome);
    }
    return {};
}

// The training waits for a copy of what the next forward pass changes, and for the checkpoint
// before if it is not written yet; what is left of a checkpoint is done beside it. The next
// optimizer's step waits for the copy of the rest, if it is not there by then.
Status TrainingRun::save(bool due) {
    const bool waits = due && !options_.checkpoint_directory.empty() && saved_step_ != step_ &&
                       (is_root() || !strategy_->root_has_all());
    if (!waits) {
        return take_written(/*wait=*/false);
    }
    if (diverged_) {
        log::warn("no checkpoint of a state that is not finite", {{"step", step_}});
        return take_written(/*wait=*/false);
    }
    phase("checkpoint");
    const auto start = Clock::now();
    Status done = take_written(/*wait=*/true);
    if (done) {
        done = strategy_->snapshot({step_, start_, 1}, snapshot_);
    }
    if (!done) {
        return done;
    }
    saved_step_ = step_;
    begin_writing();
    checkpoint_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    end_.stall_seconds += checkpoint_seconds_;
    ++end_.checkpoints;
    phase("train");
    return {};
}

// Workers of asynchronous servers end one after the other, and what the parameters are at the end
// is known when the last one has. It may take hours; no server hears nothing for as long.
Status TrainingRun::wait_for_others() {
    phase("eval");     // no steps come from this rank any more
    profile_.reset();  // nobody asks
    for (;;) {
        const Result<OtherWorkers> others = strategy_->settled();
        LOCKSTEP_TRY(others);
        slowest_ = others->slowest;
        stop_ = stop_ || (others->stop && slowest_ < step_);
        if (stop_ || others->training == 0) {
            return {};
        }
        std::this_thread::sleep_for(limits::kSettledAskedEvery);
    }
}

// To where every rank of this run was, or will be, after its step `step`.
void TrainingRun::go_back_to(std::int64_t step) {
    const std::int64_t per_step = std::int64_t{batch_size_} * config_.accumulate;
    Place at = begun_;
    while (at.step < step) {
        const std::int64_t left = (sampler_.per_rank(at.consumed) + per_step - 1) / per_step;
        const std::int64_t steps = std::min(left, step - at.step);
        at.step += steps;
        at.consumed += steps * per_step * sampler_.ranks;
        if (steps == left) {
            ++at.epoch;
            at.consumed = 0;
        }
    }
    step_ = at.step;
    epoch_ = at.epoch;
    consumed_ = at.consumed;
}

// A checkpoint of the last step says that nothing is left to train. Where a worker was stopped or
// lost before its own last step, the newest checkpoint is to be the one from which that worker has
// the rest to train: this rank's step is that worker's then, or the first after the checkpoint
// before, whichever is later.
Status TrainingRun::save_end() {
    const Place end{step_, epoch_, consumed_};
    if (slowest_ < end.step && is_root() && !options_.checkpoint_directory.empty()) {
        const std::int64_t step = std::max(slowest_, saved_step_ + 1);
        if (step >= end.step) {
            return take_written(/*wait=*/true);
        }
        log::warn("a worker has not made all of its steps: the checkpoint is of an earlier one",
                  {{"step", step}, {"made_here", end.step}});
        go_back_to(step);
    }
    Status saved = save(true);
    if (saved) {
        phase("checkpoint");  // however long it takes to write: no steps come meanwhile
        saved = take_written(/*wait=*/true);
    }
    step_ = end.step;
    epoch_ = end.epoch;
    consumed_ = end.consumed;
    return saved;
}

void TrainingRun::wait_copied() {
    const auto start = Clock::now();
    writer_.wait_copied();
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (checkpoint_seconds_ > 0.0) {
        checkpoint_seconds_ += waited;
        end_.stall_seconds += waited;
    }
}

void TrainingRun::begin_writing() {
    if (snapshot_.index < 0) {
        return;
    }
    writing_step_ = step_;
    const PartSet set{step_, start_, snapshot_.count};
    const auto write = [this, set, head = checkpoint_head()]() mutable -> Result<std::string> {
        head.config_hash = hash_;
        head.config = fields_;
        head.layout = snapshot_.layout;
        head.optimizer_steps = snapshot_.optimizer_steps;
        const Result<std::filesystem::path> path =
            snapshot_.index == 0
                ? write_checkpoint(options_.checkpoint_directory, head, snapshot_.sizes,
                                   snapshot_.part, set, give_up_)
                : write_part(options_.checkpoint_directory, set, snapshot_.index, snapshot_.part);
        return path ? Result<std::string>{path->string()} : fail(path.error());
    };
    writer_.begin([this] { snapshot_.copy(); }, write);
}

// Beside the checkpoints, under one name: the newest is the one that counts.
Status TrainingRun::export_weights() {
    if (config_.export_as == TrainExport::none || options_.checkpoint_directory.empty() ||
        (!is_root() && strategy_->root_has_all())) {
        return {};
    }
    Checkpoint state;
    if (const Status collected = strategy_->collect(state); !collected || !is_root()) {
        return collected;
    }
    const std::filesystem::path path = options_.checkpoint_directory / "model.safetensors";
    const std::vector<NamedTensor> tensors =
        named_state(model_layers(config_, shape_of(data_)), state.parameters, state.buffers);
    std::vector<std::pair<std::string, std::string>> about{
        {"format", "pt"},
        {"model", std::string{to_string(config_.model)}},
        {"step", std::to_string(step_)}};
    if (!data_.columns.empty()) {  // without them nobody could use the model elsewhere
        about.emplace_back("columns", dump_json(columns_json(data_)));
    }
    Status written = write_file_atomic(path, encode_safetensors(tensors, about));
    if (!written) {
        return fail(std::move(written).error().in("export"));
    }
    log::info("weights exported", {{"path", path.string()}, {"tensors", tensors.size()}});
    return {};
}

// The step could not be finished with the other ranks. Nothing was changed by it, so rank 0 keeps
// what the steps before have reached.
Status TrainingRun::lost(Error error) {
    const bool stopping = stop_signal::requested();
    if (error.code == Errc::cancelled) {
        end_.abandoned = true;
    }
    // Parts of others may never come; a rank that has everything writes all by itself.
    give_up_ = true;
    Status saved = save(strategy_->root_has_all());
    if (saved) {
        saved = take_written(/*wait=*/true);
    }
    if (!saved) {
        log::warn("no checkpoint after the loss of a rank", {{"reason", saved.error().message}});
    }
    if (stopping) {
        stop_ = true;  // the others were told to stop too, and were faster
        return {};
    }
    return fail(std::move(error).in("step " + std::to_string(step_ + 1)));
}

}  // namespace lockstep
