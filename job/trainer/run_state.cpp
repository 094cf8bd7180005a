// TrainingRun: where a run starts from and what it leaves behind.
#include "job/base/digest.hpp"
#include "job/base/log.hpp"
#include "job/trainer/run.hpp"
#include "job/trainer/stop_signal.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

namespace lockstep {
std::string training_hash(const TrainConfig& config) {
    Json fields = to_json(config);
    for (const char* name :
         {"epochs", "max_steps", "loader_workers", "checkpoint_every_steps", "log_every_steps"}) {
        fields.erase(name);
    }
    fields["dataset"].erase("path");
    return sha256_hex(dump_json(fields));
}

// Rank 0's newest checkpoint, checked against this configuration.
Status TrainingRun::load_latest(Checkpoint& checkpoint) {
    if (options_.checkpoint_directory.empty()) {
        return {};
    }
    Result<std::optional<FoundCheckpoint>> found = latest_checkpoint(options_.checkpoint_directory);
    if (!found) {
        return fail(found.error());
    }
    if (!*found) {
        return {};
    }
    Checkpoint& read = (*found)->checkpoint;
    if (read.config_hash != training_hash(config_) ||
        read.parameters.size() != checkpoint.parameters.size() ||
        read.buffers.size() != checkpoint.buffers.size() ||
        read.optimizer.size() != checkpoint.optimizer.size()) {
        return fail(Errc::conflict,
                    (*found)->path.string() + ": was written by a run with another configuration");
    }
    log::info("resumed", {{"path", (*found)->path.string()}, {"step", read.step}});
    checkpoint = std::move(read);
    return {};
}

// Everything of rank 0 to the others; a failure there reaches them as a failure.
Status TrainingRun::share(Checkpoint& checkpoint) {
    for (const std::span<float> part :
         {std::span<float>{checkpoint.parameters}, std::span<float>{checkpoint.buffers},
          std::span<float>{checkpoint.optimizer}}) {
        if (const Status sent = communicator_.broadcast(std::as_writable_bytes(part), 0); !sent) {
            return sent;
        }
    }
    return {};
}

Status TrainingRun::prepare() {
    phase("init");
    FlatParameters& parameters = model_->parameters();
    Checkpoint state;
    state.parameters.assign(parameters.values().begin(), parameters.values().end());
    state.buffers.assign(model_->buffers().begin(), model_->buffers().end());
    state.optimizer.assign(optimizer_.state().begin(), optimizer_.state().end());
    Status loaded;
    if (communicator_.rank() == 0) {
        loaded = load_latest(state);
    }
    std::array<std::int64_t, 4> head{loaded ? 1 : 0, state.step, state.epoch, state.consumed};
    if (const Status sent = communicator_.broadcast(std::as_writable_bytes(std::span{head}), 0);
        !sent) {
        return sent;
    }
    if (!loaded) {
        return loaded;
    }
    if (head[0] == 0) {
        return fail(Errc::conflict, "rank 0 could not read the checkpoint; its log says why");
    }
    if (const Status shared = share(state); !shared) {
        return shared;
    }
    std::copy(state.parameters.begin(), state.parameters.end(), parameters.values().begin());
    std::copy(state.buffers.begin(), state.buffers.end(), model_->buffers().begin());
    std::copy(state.optimizer.begin(), state.optimizer.end(), optimizer_.state().begin());
    step_ = head[1];
    epoch_ = head[2];
    consumed_ = head[3];
    optimizer_.set_steps(step_);
    end_.resumed_from = step_;
    saved_step_ = step_;
    return {};
}

Status TrainingRun::save(bool due) {
    if (!due || communicator_.rank() != 0 || options_.checkpoint_directory.empty() ||
        saved_step_ == step_) {
        return {};
    }
    phase("checkpoint");
    const auto start = Clock::now();
    Checkpoint out;
    out.step = step_;
    out.epoch = epoch_;
    out.consumed = consumed_;
    out.ranks = communicator_.size();
    out.config_hash = training_hash(config_);
    const std::span<float> values = model_->parameters().values();
    out.parameters.assign(values.begin(), values.end());
    out.buffers.assign(model_->buffers().begin(), model_->buffers().end());
    out.optimizer.assign(optimizer_.state().begin(), optimizer_.state().end());
    out.layout = model_->parameters().layout();
    const Result<std::filesystem::path> path = write_checkpoint(options_.checkpoint_directory, out);
    if (!path) {
        return fail(path.error());
    }
    saved_step_ = step_;
    checkpoint_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    if (options_.client != nullptr) {
        options_.client->checkpoint(step_, path->string());
    }
    phase("train");
    return {};
}

// The step could not be finished with the other ranks. Nothing was changed by it, so rank 0 keeps
// what the steps before have reached.
Status TrainingRun::lost(Error error) {
    const bool stopping = stop_signal::requested();
    if (error.code == Errc::cancelled) {
        end_.abandoned = true;
    }
    if (const Status saved = save(true); !saved) {
        log::warn("no checkpoint after the loss of a rank", {{"reason", saved.error().message}});
    }
    if (stopping) {
        stop_ = true;  // the others were told to stop too, and were faster
        return {};
    }
    return fail(std::move(error).in("step " + std::to_string(step_ + 1)));
}

}  // namespace lockstep
