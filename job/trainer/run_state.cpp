// TrainingRun: where a run starts from.
#include "job/base/digest.hpp"
#include "job/base/log.hpp"
#include "job/model/limits/model_limits.hpp"
#include "job/trainer/batch_search.hpp"
#include "job/trainer/cuda_device.hpp"
#include "job/trainer/named_state.hpp"
#include "job/trainer/run.hpp"
#include "job/trainer/strategy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

at::Device TrainingRun::device() const {
    return device_of(world_);
}

bool TrainingRun::is_root() const {
    return strategy_->trainers().rank() == 0;
}

Json training_fields(const TrainConfig& config) {
    Json fields = to_json(config);
    for (const char* name : {"epochs", "max_steps", "loader_workers", "checkpoint_every_steps",
                             "log_every_steps", "export"}) {
        fields.erase(name);
    }
    fields["dataset"].erase("path");
    if (config.resize == 0) {
        fields["dataset"].erase("resize");
    }
    // A run goes on wherever it is computed; of the CPU's devices, which are as many as one says,
    // older runs have the number.
    if (config.devices != TrainDevices::cpu) {
        fields["devices"] = "cpu";
    }
    // Not known to older versions: a run they began goes on, as long as these change nothing.
    for (const auto& [name, none] : {std::pair{"weight_decay", Json(0.0)},
                                     {"gradient_clip", Json(0.0)},
                                     {"schedule", Json("constant")},
                                     {"warmup_steps", Json(0)},
                                     {"weights", Json("")},
                                     {"loss", Json("cross_entropy")},
                                     {"find_batch_size", Json(false)}}) {
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

// ": the shape of dense_2.kernel was [10,256] and is [12,256]: …", of the first that differs.
static std::string changed_shape(const Json& was, const Json& is) {
    const auto of = [](const Json& layout, std::size_t i, const char* field) {
        return i < layout.size() && layout[i].is_object() ? layout[i].value(field, Json{}) : Json{};
    };
    for (std::size_t i = 0; was.is_array() && i < is.size(); ++i) {
        const Json before = of(was, i, "shape");
        const Json now = of(is, i, "shape");
        if (before != now && of(was, i, "name") == of(is, i, "name")) {
            return ": the shape of " + is[i].value("name", std::string{}) + " was " +
                   dump_json(before) + " and is " + dump_json(now) +
                   ": the data has other columns or classes";
        }
    }
    return "";
}

// Rank 0's newest checkpoint, checked against this configuration.
Status TrainingRun::load_latest(Checkpoint& checkpoint) {
    if (options_.checkpoint_directory.empty()) {
        return {};
    }
    Result<std::optional<FoundCheckpoint>> found = latest_checkpoint(options_.checkpoint_directory);
    LOCKSTEP_TRY(found);
    if (!*found) {
        return {};
    }
    Checkpoint& read = (*found)->checkpoint;
    if (read.config_hash != hash_ || read.parameters.size() != checkpoint.parameters.size() ||
        read.buffers.size() != checkpoint.buffers.size() ||
        read.optimizer.size() != checkpoint.optimizer.size()) {
        const std::string path = (*found)->path.string();
        if (read.config_hash == hash_) {
            return fail(Errc::conflict, path + ": was written by a run with other data" +
                                            changed_shape(read.layout, checkpoint.layout));
        }
        return fail(Errc::conflict, path + ": was written by a run with another configuration" +
                                        differences(read.config, fields_));
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
    constexpr std::int64_t kNowhere = -1;  // a parameter server computes nothing
    const Result<std::vector<std::int64_t>> gpus =
        world_.gather(world_.server() ? kNowhere : (world_.gpu() >= 0 ? 1 : 0));
    LOCKSTEP_TRY(gpus);
    const auto first =
        std::find_if(gpus->begin(), gpus->end(), [](std::int64_t one) { return one != kNowhere; });
    for (auto one = first; one != gpus->end(); ++one) {
        if (*one != *first && *one != kNowhere) {
            const auto where = [](std::int64_t gpu) { return gpu != 0 ? "a GPU" : "the CPU"; };
            return fail(Errc::conflict, "rank " + std::to_string(one - gpus->begin()) +
                                            " computes on " + where(*one) + ", rank " +
                                            std::to_string(first - gpus->begin()) + " on " +
                                            where(*first) +
                                            ": one of them was given none, or cannot use it "
                                            "(CUDA_VISIBLE_DEVICES; train.devices says which)");
        }
    }
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
    LOCKSTEP_TRY(all);
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
    if (config_.find_batch_size) {
        const Result<std::vector<std::int64_t>> nodes = world_.gather(world_.node_rank());
        LOCKSTEP_TRY(nodes);
        ranks_of_node_ = static_cast<std::int32_t>(std::count(
            nodes->begin(), nodes->end(), static_cast<std::int64_t>(world_.node_rank())));
    }
    return {};
}

Status TrainingRun::prepare() {
    phase("init");
    if (const Status same = compare_ranks(); !same) {
        return same;
    }
    Result<std::unique_ptr<Strategy>> made = make_strategy(config_, shape_of(data_), world_);
    LOCKSTEP_TRY(made);
    strategy_ = std::move(*made);
    if (strategy_->serves()) {
        return {};
    }
    strategy_->before_update([this] { wait_copied(); });
    const Shard shard = strategy_->shard();
    sampler_ = {data_.train.count, shard.index, shard.count, config_.shuffle,
                static_cast<std::uint64_t>(config_.seed)};
    if (const Status restored = restore(); !restored) {
        return restored;
    }
    if (batch_size_ == 0) {
        batch_size_ = config_.batch_size;
        if (config_.find_batch_size) {
            if (const Status found = find_batch_size(); !found) {
                return found;
            }
        }
    }
    loader_ = std::make_unique<Loader>(data_.train, batch_size_, config_.loader_workers,
                                       strategy_->layers().first == 0);
    base_rate_ = config_.learning_rate;
    if (config_.scale_learning_rate) {
        base_rate_ *= static_cast<double>(shard.count) * batch_size_ / config_.batch_size;
    }
    planned_steps_ = total_steps();
    costs_ = text_costs(config_, shape_of(data_));
    if (costs_.tokens > 0) {
        const at::ScalarType type = config_.precision == TrainPrecision::fp16   ? at::kHalf
                                    : config_.precision == TrainPrecision::bf16 ? at::kBFloat16
                                                                                : at::kFloat;
        peak_flops_ =
            world_.gpu() < 0 ? measured_peak_flops() : measured_peak_flops(device(), type);
        if (config_.strategy == TrainStrategy::pipeline) {
            stages_ = config_.stages == 0 ? world_.size() : config_.stages;
        } else if (config_.replicas > 1) {
            stages_ = config_.replicas;
        }
    }
    return {};
}

// Ranks of this node that compute on this rank's GPU.
std::int32_t TrainingRun::ranks_of_gpu() const {
    if (config_.strategy == TrainStrategy::parameter_server || world_.gpus().size() > 1) {
        return 1;  // what it sees is its own
    }
    const std::size_t taken = config_.gpus.empty()
                                  ? static_cast<std::size_t>(std::max(cuda_device::visible(), 1))
                                  : config_.gpus.size();
    return std::max(ranks_of_node_ / static_cast<std::int32_t>(taken), 1);
}

// The largest one that fits on every rank.
Status TrainingRun::find_batch_size() {
    const auto [first, count] = strategy_->layers();
    BatchLimits limits;
    limits.start = config_.batch_size;
    limits.most =
        std::min<std::int64_t>(limits::kTrainBatchSize, sampler_.per_rank() / config_.accumulate);
    limits.bytes = memory_share(ranks_of_node_);
    // Several GPUs of one rank share out a batch: what must fit is one's part of it.
    const auto parts = static_cast<std::int64_t>(std::max<std::size_t>(world_.gpus().size(), 1));
    if (world_.gpu() >= 0) {
        // Ranks that share the GPU find it so at the same moment.
        limits.bytes = cuda_device::free_bytes() / 10 * 8 / ranks_of_gpu();
    }
    const auto search = [&]() -> Result<std::int64_t> {
        try {
            const BatchAttempt attempt =
                batch_attempt(config_, {model_layers(config_, shape_of(data_)), first, count},
                              data_.train, device());
            return largest_batch(limits, [&](std::int64_t samples) {
                return attempt((samples + parts - 1) / parts);
            });
        } catch (const UnreadableSample& unreadable) {
            return fail(unreadable.error);
        }
    };
    const Result<std::int64_t> mine = search();
    cuda_device::empty_cache();
    Communicator& trainers = strategy_->trainers();
    // What each of them has found (-1: it could not try), then which rank of the job each is.
    const auto count_of_trainers = static_cast<std::size_t>(trainers.size());
    std::vector<std::int64_t> found(2 * count_of_trainers, 0);
    const auto me = static_cast<std::size_t>(trainers.rank());
    found[me] = mine.value_or(-1);
    found[count_of_trainers + me] = world_.rank();
    if (const Status shared =
            trainers.all_reduce({found.data(), found.size(), Dtype::i64, Device::cpu});
        !shared) {
        return shared;
    }
    if (!mine) {
        return fail(Error{mine.error()}.in("find_batch_size"));
    }
    const auto least = std::min_element(
        found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count_of_trainers));
    if (*least <= 0) {
        const std::string rank = std::to_string(
            found[count_of_trainers + static_cast<std::size_t>(least - found.begin())]);
        refused_by_peer_ = *mine > 0;
        return fail(Errc::exhausted,
                    *least == 0 ? "find_batch_size: batch_size does not fit on rank " + rank
                                : "find_batch_size: rank " + rank +
                                      " could not try a batch; its log says why");
    }
    batch_size_ = static_cast<std::int32_t>(*least);
    log::info("batch size found",
              {{"batch_size", batch_size_}, {"this_rank", *mine}, {"mib", limits.bytes >> 20U}});
    return {};
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
    std::random_device device;
    std::array<std::int64_t, 9> head{
        loaded ? 1 : 0,
        state.step,
        state.epoch,
        state.consumed,
        std::bit_cast<std::int64_t>(state.loss_scale.scale),
        state.loss_scale.good,
        state.loss_scale.skipped,
        std::bit_cast<std::int64_t>((std::uint64_t{device()} << 32U) | device()),
        state.batch_size};
    if (const Status sent =
            strategy_->trainers().broadcast(std::as_writable_bytes(std::span{head}), 0);
        !sent) {
        return sent;
    }
    if (!loaded) {
        return loaded;
    }
    if (head[0] == 0) {
        refused_by_peer_ = true;
        return fail(Errc::conflict, "rank 0 could not read what to begin with; its log says why");
    }
    step_ = state.step = head[1];
    epoch_ = state.epoch = head[2];
    consumed_ = state.consumed = head[3];
    if (consumed_ >= sampler_.samples) {  // nothing is left of an epoch that had more of them
        if (is_root()) {
            log::warn(
                "the data has fewer samples than were used of this epoch: the next one begins",
                {{"samples", sampler_.samples}, {"used", consumed_}});
        }
        ++epoch_;
        consumed_ = 0;
    }
    state.loss_scale = {std::bit_cast<double>(head[4]), head[5], head[6]};
    strategy_->scaler().set_state(state.loss_scale);
    start_ = static_cast<std::uint64_t>(head[7]);
    batch_size_ = static_cast<std::int32_t>(head[8]);
    end_.resumed_from = step_;
    saved_step_ = step_;
    begun_ = {step_, epoch_, consumed_};
    return strategy_->distribute(state);
}

}  // namespace lockstep
