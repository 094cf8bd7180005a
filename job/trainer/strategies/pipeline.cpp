// pipeline: the network is cut into stages, one rank each; a batch goes through them in
// micro-batches, all forward, then all backward (Huang et al.: GPipe, 2019). With more ranks than
// stages there are several such chains, each with its share of the samples, and the ranks of one
// stage sum their gradients as in data_parallel. Rank = chain · stages + stage.
//
// On GPUs a stage's values go from GPU to GPU by NCCL and the host only enqueues; it waits once a
// step. The chains' gradients are summed behind backward and not beside it: operations of two
// communicators under way at once may wait for each other's GPU.
#include "job/trainer/strategies/pipeline.hpp"

#include "job/trainer/stop_signal.hpp"

#include <array>
#include <optional>
#include <string>

namespace lockstep {
namespace {

constexpr std::int64_t kPipelineEvaluation = 256;
constexpr std::size_t kActivationDimensions = 7;

}  // namespace

// The first time with the shape of a sample before it, which stays what it is.
Status Pipeline::send_on(const at::Tensor& values) {
    if (sent_shape_.empty()) {
        const at::IntArrayRef sample = values.sizes().slice(1);
        sent_shape_.assign(sample.begin(), sample.end());
        std::array<std::int64_t, 1 + kActivationDimensions> head{};
        head[0] = static_cast<std::int64_t>(sample.size());
        std::copy(sample.begin(), sample.end(), head.begin() + 1);
        const Status sent = exchange(
            [&] { return all_.send({head.data(), head.size(), Dtype::i64, Device::cpu}, next()); });
        if (!sent) {
            return sent;
        }
    }
    return send(values, next());
}

Result<at::Tensor> Pipeline::receive(std::int64_t size) {
    if (received_shape_.empty()) {
        std::array<std::int64_t, 1 + kActivationDimensions> head{};
        const Status got = exchange([&] {
            return all_.recv({head.data(), head.size(), Dtype::i64, Device::cpu}, previous());
        });
        LOCKSTEP_TRY(got);
        received_shape_.assign(head.begin() + 1, head.begin() + 1 + head[0]);
    }
    std::vector<std::int64_t> sizes{size};
    sizes.insert(sizes.end(), received_shape_.begin(), received_shape_.end());
    at::Tensor values = at::empty(sizes, floats_here());
    const Status got = receive_into(values, previous());
    return got ? Result<at::Tensor>{std::move(values)} : fail(got.error());
}

Status Pipeline::step(Loader& loader, StepResult& result) {
    {
        const at::NoGradGuard no_gradients;
        at::Tensor all = model_->parameters().flat_gradients();
        all.zero_();
        loss_ = at::zeros({}, floats_here().dtype(at::kDouble));
    }
    if (sums_ != nullptr) {
        sums_->begin();
    }
    exchanged_ = 0.0;
    std::int64_t seen = 0;
    for (std::int64_t number = 0; seen < result.samples; ++number) {
        const auto start = Clock::now();
        const Batch batch = next_batch(loader);
        if (batch.size == 0) {
            return fail(loader.ended());
        }
        const auto ready = Clock::now();
        seen += batch.size;
        std::vector<Micro> micros;
        if (const Status done = forward(batch, number, result, micros); !done) {
            return done;
        }
        const auto computed = Clock::now();
        const double forward_exchanged = std::exchange(exchanged_, 0.0);
        if (const Status done = backward(micros, seen == result.samples); !done) {
            return done;
        }
        result.data_wait_seconds += std::chrono::duration<double>(ready - start).count();
        result.forward_seconds +=
            std::chrono::duration<double>(computed - ready).count() - forward_exchanged;
        const double backward_exchanged = std::exchange(exchanged_, 0.0);
        result.backward_seconds += since(computed) - backward_exchanged;
        result.comm_wait_seconds += forward_exchanged + backward_exchanged;
    }
    return agree_and_apply(result);
}

Status Pipeline::forward(const Batch& batch, std::int64_t number, StepResult& result,
                         std::vector<Micro>& micros) {
    const std::int64_t parts = std::min<std::int64_t>(config_.micro_batches, batch.size);
    for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = batch.size * part / parts;
        const std::int64_t size = batch.size * (part + 1) / parts - begin;
        Micro micro;
        micro.weight = static_cast<double>(size) / static_cast<double>(result.samples);
        if (first()) {
            micro.input = part_of(batch.input, batch.size, begin, size);
        } else {
            Result<at::Tensor> received = receive(size);
            LOCKSTEP_TRY(received);
            micro.input = received->requires_grad_(true);
        }
        const Pass pass = pass_.training_pass(result, number * config_.micro_batches + part,
                                              config_.accumulate * config_.micro_batches);
        seed_for(device_, pass);
        micro.output = model_->forward(micro.input, pass);
        if (last()) {
            micro.output = mean_loss(micro.output, part_of(batch.target, batch.size, begin, size),
                                     config_.loss);
            const at::NoGradGuard no_gradients;
            loss_.add_(micro.output.detach().to(at::kDouble), micro.weight);
        } else {
            const at::Tensor value = micro.output.detach().contiguous();
            if (const Status sent = send_on(value); !sent) {
                return sent;
            }
        }
        micros.push_back(std::move(micro));
        if (const Status near = wait_.piece_enqueued(); !near) {
            return near;
        }
    }
    return {};
}

Status Pipeline::backward(std::vector<Micro>& micros, bool final_batch) {
    while (!micros.empty()) {
        Micro micro = std::move(micros.back());
        micros.pop_back();
        at::Tensor gradient;
        if (last()) {
            gradient = loss_slope(micro.weight * scaler().scale(), device_);
        } else {
            gradient = at::empty(micro.output.sizes(), floats_here());
            if (const Status got = receive_into(gradient, next()); !got) {
                return got;
            }
        }
        if (micros.empty() && final_batch && reducer_ != nullptr) {
            reducer_->arm();
        }
        if (micro.output.requires_grad()) {  // a first stage may have nothing that learns
            micro.output.backward(gradient);
        }
        if (!first()) {
            const at::Tensor back = micro.input.grad().contiguous();
            if (const Status sent = send(back, previous()); !sent) {
                return sent;
            }
        }
        if (const Status near = wait_.piece_enqueued(); !near) {
            return near;
        }
    }
    return {};
}

Status Pipeline::sum_over_chains() {
    if (reducer_ != nullptr) {
        return reducer_->finish(stop_is_overdue);
    }
    sums_->arm();
    if (const Status enqueued = sums_->finish(wait_); !enqueued) {
        return enqueued;
    }
    return until_done();
}

// Nobody of a pipeline can save the whole alone: nothing needs the GPU after a loss.
Status Pipeline::until_done() {
    if (const Status done = wait_.until_done({}); !done) {
        return done;
    }
    if (groups_.gpus) {
        if (const std::optional<Error> broken = groups_.gpus->async_error()) {
            return fail(*broken);
        }
    }
    return sums_ == nullptr ? Status{} : sums_->found_wrong();
}

// The chains' gradients are summed; the norm is over all stages, so they agree on it before the
// step, and on the loss, which only the last stage has seen.
Status Pipeline::agree_and_apply(StepResult& result) {
    const auto start = Clock::now();
    if (const Status reduced = sum_over_chains(); !reduced) {
        return reduced;
    }
    const double own = device_.is_cuda()  // the GPU's backward ends here, not before
                           ? since(start) - wait_.waited()
                           : 0.0;
    result.backward_seconds += own;
    enum Slot : std::uint8_t { kStop, kCheckpoint, kSquares, kLosses };
    std::vector<double> said(kLosses + static_cast<std::size_t>(place_.chains), 0.0);
    said[kStop] = stop_signal::requested() ? 1.0 : 0.0;
    said[kCheckpoint] = stop_signal::take_checkpoint_request() ? 1.0 : 0.0;
    if (place_.chain == 0) {
        said[kSquares] = HeldState::squares(gradients());
    }
    const std::size_t loss_slot = kLosses + static_cast<std::size_t>(place_.chain);
    said[loss_slot] = last() ? loss_.item<double>() : 0.0;
    const Status agreed = all_.all_reduce({said.data(), said.size(), Dtype::f64, Device::cpu});
    if (!agreed) {
        return agreed;
    }
    const auto received = Clock::now();
    result.loss = said[loss_slot];
    result.stop = said[kStop] > 0.0;
    result.checkpoint = said[kCheckpoint] > 0.0;
    will_update();
    const Status applied =
        held_.apply(config_, gradients(), said[kSquares], 1.0 / place_.chains, scaler(), result);
    result.comm_wait_seconds += std::chrono::duration<double>(received - start).count() - own;
    result.optimizer_seconds = since(received);
    return applied;
}

// The first stage's word goes down the chain before each batch: a stage that left by itself would
// be waited for by the others.
Result<bool> Pipeline::evaluates_on() {
    std::int64_t on = stop_signal::requested() ? 0 : 1;
    if (!first()) {
        LOCKSTEP_TRY(all_.recv({&on, 1, Dtype::i64, Device::cpu}, previous()));
    }
    if (!last()) {
        LOCKSTEP_TRY(all_.send({&on, 1, Dtype::i64, Device::cpu}, next()));
    }
    return on != 0;
}

Result<Evaluation> Pipeline::evaluate(const SampleSet& test) {
    held_.fetch_buffers();
    LOCKSTEP_TRY(until_done());
    LOCKSTEP_TRY(groups_.peers->broadcast(std::as_writable_bytes(held_.buffers()), 0));
    const at::NoGradGuard no_gradients;
    held_.store_buffers();
    std::vector<std::uint32_t> mine;
    for (auto i = static_cast<std::uint32_t>(place_.chain); i < test.count;
         i += static_cast<std::uint32_t>(place_.chains)) {
        mine.push_back(i);
    }
    Loader loader{test, evaluation_batch(test, kPipelineEvaluation), evaluation_workers(test),
                  first()};
    loader.begin(std::move(mine));
    Evaluation out;
    for (Batch batch = loader.next(); batch.size > 0; batch = loader.next()) {
        const Result<bool> on = evaluates_on();
        LOCKSTEP_TRY(on);
        if (!*on) {
            out.cut = 1.0;
            break;
        }
        at::Tensor x;
        if (first()) {
            x = part_of(batch.input, batch.size, 0, batch.size);
        } else {
            Result<at::Tensor> received = receive(batch.size);
            LOCKSTEP_TRY(received);
            x = std::move(*received);
        }
        const at::Tensor y = model_->forward(x, Pass{}).contiguous();
        if (last()) {
            LOCKSTEP_TRY(until_done());  // counting waits for the device, and a rank may be lost
            count_answers(y, part_of(batch.target, batch.size, 0, batch.size), config_.loss, out);
        } else {
            LOCKSTEP_TRY(send_on(y));
            LOCKSTEP_TRY(wait_.piece_enqueued());
        }
    }
    LOCKSTEP_TRY(loader.status());
    LOCKSTEP_TRY(sum_evaluations(out, all_));
    return out;
}

namespace {

// One chain has nothing to sum over GPUs.
Status meet_on_gpus(const World& world, std::int32_t stage,
                    const std::vector<std::int32_t>& members, Pipeline::Groups& out) {
    Result<std::unique_ptr<Communicator>> all = world.gpu_group("nccl");
    LOCKSTEP_TRY(all);
    out.gpus = std::move(*all);
    if (members.size() > 1) {
        Result<std::unique_ptr<Communicator>> some =
            world.gpu_group("nccl-stage-" + std::to_string(stage), members);
        LOCKSTEP_TRY(some);
        out.peers_of_gpus = std::move(*some);
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Strategy>> make_pipeline(const TrainConfig& config, const ModelShape& shape,
                                                World& world) {
    std::vector<Layer> network = model_layers(config, shape);
    Pipeline::Place place{};
    place.stages = config.stages == 0 ? world.size() : config.stages;
    if (static_cast<std::size_t>(place.stages) > network.size()) {
        return fail(Errc::invalid, "strategy pipeline: " + std::to_string(place.stages) +
                                       " stages, but model " +
                                       std::string{to_string(config.model)} + " has " +
                                       std::to_string(network.size()) + " layers");
    }
    place.stage = world.rank() % place.stages;
    place.chain = world.rank() / place.stages;
    place.chains = world.size() / place.stages;
    std::vector<std::int32_t> members;
    for (std::int32_t chain = 0; chain < place.chains; ++chain) {
        members.push_back(chain * place.stages + place.stage);
    }
    Result<std::unique_ptr<Communicator>> peers =
        world.group("stage-" + std::to_string(place.stage), members);
    LOCKSTEP_TRY(peers);
    Pipeline::Groups groups{std::move(*peers), nullptr, nullptr};
    if (world.meets_on_gpus() && world.size() > 1) {
        const Status met = meet_on_gpus(world, place.stage, members, groups);
        LOCKSTEP_TRY(met);
    }
    auto made =
        std::make_unique<Pipeline>(config, std::move(network), place, world, std::move(groups));
    const Status measured = made->measure(world);
    return measured ? Result<std::unique_ptr<Strategy>>{std::move(made)} : fail(measured.error());
}

}  // namespace lockstep
