// TrainingRun: where a run starts from and what it leaves behind.
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/trainer/named_state.hpp"
#include "job/trainer/run.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategy.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

bool TrainingRun::is_root() const {
    return strategy_->trainers().rank() == 0;
}

// The fields that shape the training, and nothing else.
static Json training_fields(const TrainConfig& config) {
    Json fields = to_json(config);
    for (const char* name : {"epochs", "max_steps", "loader_workers", "checkpoint_every_steps",
                             "log_every_steps", "export"}) {
        fields.erase(name);
    }
    fields["dataset"].erase("path");
    if (config.resize == 0) {
        fields["dataset"].erase("resize");
    }
    // Not known to older versions: a run they began goes on, as long as these change nothing.
    for (const auto& [name, none] : {std::pair{"weight_decay", Json(0.0)},
                                     {"gradient_clip", Json(0.0)},
                                     {"schedule", Json("constant")},
                                     {"warmup_steps", Json(0)},
                                     {"weights", Json("")}}) {
        if (fields.value(name, none) == none) {
            fields.erase(name);
        }
    }
    return fields;
}

std::string training_hash(const TrainConfig& config) {
    return sha256_hex(dump_json(training_fields(config)));
}

// "strategy was \"single\" and is \"pipeline\", …"; empty if the file does not say.
static std::string differences(const Json& was, const Json& is) {
    std::string out;
    const auto add = [&](const std::string& field, const Json& before, const Json& now) {
        const auto shown = [](const Json& value) {
            return value.is_null() ? std::string{"not set"} : dump_json(value);
        };
        out +=
            (out.empty() ? ": " : ", ") + field + " was " + shown(before) + " and is " + shown(now);
    };
    if (!was.is_object()) {
        return out;
    }
    for (const auto& [field, value] : was.items()) {
        if (const Json now = is.value(field, Json{}); now != value) {
            add(field, value, now);
        }
    }
    for (const auto& [field, value] : is.items()) {
        if (!was.contains(field)) {
            add(field, Json{}, value);
        }
    }
    return out;
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
        return fail(Errc::conflict, (*found)->path.string() +
                                        ": was written by a run with another configuration" +
                                        differences(read.config, training_fields(config_)));
    }
    log::info("resumed", {{"path", (*found)->path.string()}, {"step", read.step}});
    checkpoint = std::move(read);
    return {};
}

// A new run of rank 0 begins with the file's parameters instead of random ones.
Status TrainingRun::load_weights(Checkpoint& checkpoint) {
    if (config_.weights.empty()) {
        return {};
    }
    const Result<TensorFile> file = TensorFile::open(config_.weights);
    if (!file) {
        return fail(Error{file.error()}.in("weights"));
    }
    const Result<ImportedState> imported = import_state(
        *file, model_layers(config_, shape_of(data_)), checkpoint.parameters, checkpoint.buffers);
    if (!imported) {
        return fail(Error{imported.error()}.in("weights"));
    }
    log::info("weights imported", {{"path", config_.weights},
                                   {"tensors", imported->taken},
                                   {"unused", imported->unused.size()}});
    for (const std::string& why : imported->fresh) {
        log::warn("part of the last layer begins at random", {{"reason", why}});
    }
    return {};
}

// A rank that was started with another file, or reads other data, would train something else.
Status TrainingRun::compare_ranks() {
    Json said = to_json(config_);
    said["samples"] = {data_.train.count, data_.test.count, data_.classes};
    for (const char* name : {"loader_workers", "log_every_steps"}) {
        said.erase(name);  // each rank's own affair
    }
    said["dataset"].erase("path");
    // Ranks save together: one that does not would be waited for.
    said["keeps_checkpoints"] = !options_.checkpoint_directory.empty();
    const std::string hash = sha256_hex(dump_json(said));
    std::int64_t mine = 0;
    for (const char digit : hash.substr(0, 15)) {
        mine = mine * 16 + (digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    const Result<std::vector<std::int64_t>> all = world_.gather(mine);
    if (!all) {
        return fail(all.error());
    }
    std::string others;
    for (std::size_t rank = 1; rank < all->size(); ++rank) {
        if ((*all)[rank] != (*all)[0]) {
            others += (others.empty() ? "" : ", ") + std::to_string(rank);
        }
    }
    if (!others.empty()) {
        return fail(Errc::conflict,
                    "the ranks were not given the same configuration and data, or not all of them "
                    "a folder for checkpoints: " +
                        others + " differ from rank 0");
    }
    return {};
}

Status TrainingRun::prepare() {
    phase("init");
    if (const Status same = compare_ranks(); !same) {
        return same;
    }
    Result<std::unique_ptr<Strategy>> made = make_strategy(config_, shape_of(data_), world_);
    if (!made) {
        return fail(made.error());
    }
    strategy_ = std::move(*made);
    if (strategy_->serves()) {
        return {};
    }
    const Shard shard = strategy_->shard();
    sampler_ = {data_.train.count, shard.index, shard.count, config_.shuffle,
                static_cast<std::uint64_t>(config_.seed)};
    loader_ = std::make_unique<Loader>(data_.train, config_.batch_size, config_.loader_workers);
    base_rate_ = config_.learning_rate * (config_.scale_learning_rate ? shard.count : 1);
    const Status restored = restore();
    planned_steps_ = total_steps();
    return restored;
}

// Where the run starts from: the newest checkpoint, or the state that the ranks have made.
Status TrainingRun::restore() {
    Checkpoint state;
    if (const Status collected = strategy_->collect(state); !collected) {
        return collected;
    }
    Status loaded;
    if (is_root()) {
        loaded = load_latest(state);
        if (loaded && state.step == 0) {
            loaded = load_weights(state);
        }
    }
    std::array<std::int64_t, 4> head{loaded ? 1 : 0, state.step, state.epoch, state.consumed};
    if (const Status sent =
            strategy_->trainers().broadcast(std::as_writable_bytes(std::span{head}), 0);
        !sent) {
        return sent;
    }
    if (!loaded) {
        return loaded;
    }
    if (head[0] == 0) {
        return fail(Errc::conflict, "rank 0 could not read what to begin with; its log says why");
    }
    step_ = state.step = head[1];
    epoch_ = state.epoch = head[2];
    consumed_ = state.consumed = head[3];
    end_.resumed_from = step_;
    saved_step_ = step_;
    return strategy_->distribute(state);
}

Status TrainingRun::save(bool due) {
    if (!due || options_.checkpoint_directory.empty() || saved_step_ == step_ ||
        (!is_root() && strategy_->root_has_all())) {
        return {};
    }
    phase("checkpoint");
    const auto start = Clock::now();
    Checkpoint out;
    if (const Status collected = strategy_->collect(out); !collected) {
        return collected;
    }
    saved_step_ = step_;
    if (!is_root()) {
        phase("train");
        return {};
    }
    out.step = step_;
    out.epoch = epoch_;
    out.consumed = consumed_;
    out.ranks = world_.size();
    out.config_hash = training_hash(config_);
    out.config = training_fields(config_);
    const Result<std::filesystem::path> path = write_checkpoint(options_.checkpoint_directory, out);
    if (!path) {
        return fail(path.error());
    }
    checkpoint_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    if (options_.client != nullptr) {
        options_.client->checkpoint(step_, path->string());
    }
    phase("train");
    return {};
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
    Status written = write_file_atomic(
        path, encode_safetensors(tensors, {{"format", "pt"},
                                           {"model", std::string{to_string(config_.model)}},
                                           {"step", std::to_string(step_)}}));
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
    if (const Status saved = save(strategy_->root_has_all()); !saved) {
        log::warn("no checkpoint after the loss of a rank", {{"reason", saved.error().message}});
    }
    if (stopping) {
        stop_ = true;  // the others were told to stop too, and were faster
        return {};
    }
    return fail(std::move(error).in("step " + std::to_string(step_ + 1)));
}

}  // namespace lockstep
