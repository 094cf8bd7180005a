// A rank of a pipeline: its stage of the network, who is before and after it, and who has the same
// stage in the other chains. What it does in a step is in pipeline.cpp, what it gives to a
// checkpoint and takes from one in pipeline_checkpoint.cpp. Training thread.
#pragma once

#include "job/trainer/cuda_device.hpp"
#include "job/trainer/device.hpp"
#include "job/trainer/reducer.hpp"
#include "job/trainer/strategies/device_sums.hpp"
#include "job/trainer/strategies/device_wait.hpp"
#include "job/trainer/strategies/held_state.hpp"
#include "job/trainer/strategy.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

// Layers first, …, first + count − 1: as many for every stage, one more for the first ones.
inline std::pair<std::size_t, std::size_t> layers_of_stage(std::size_t layers, std::size_t stages,
                                                           std::size_t stage) {
    const std::size_t each = layers / stages;
    const std::size_t more = layers % stages;
    return {stage * each + std::min(stage, more), each + (stage < more ? 1 : 0)};
}

inline Buffer buffer_of_tensor(const at::Tensor& tensor) {
    return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel()), Dtype::f32,
            tensor.is_cuda() ? Device::cuda : Device::cpu};
}
class Pipeline final : public Strategy {
  public:
    struct Place {
        std::int32_t stages;
        std::int32_t stage;
        std::int32_t chain;
        std::int32_t chains;
    };

    // Of what the ranks are to each other, between hosts and, null on the CPU, between GPUs.
    struct Groups {
        std::unique_ptr<Communicator> peers;          // the ranks of this stage, by chain
        std::shared_ptr<Communicator> gpus;           // all ranks
        std::shared_ptr<Communicator> peers_of_gpus;  // null also for one chain
    };

    Pipeline(const TrainConfig& config, std::vector<Layer> network, Place place, World& world,
             Groups groups)
        : Strategy(config),
          config_(config),
          all_(world.all()),
          place_(place),
          groups_(std::move(groups)),
          device_(device_of(world)),
          pass_(config, place.chain, device_),
          layers_(layers_of_stage(network.size(), static_cast<std::size_t>(place.stages),
                                  static_cast<std::size_t>(place.stage))),
          whole_(flat_layout(parameters_of(network))),
          model_(std::make_unique<Model>(std::move(network),
                                         static_cast<std::uint64_t>(config.seed), layers_.first,
                                         layers_.second, device_)),
          held_(config, *model_),
          wait_(all_, device_, DeviceWait::GiveUp::on_loss) {
        if (own_loops(held_.tensor())) {
            reducer_ = std::make_unique<GradientReducer>(*groups_.peers, model_->parameters());
        } else {
            sums_ = std::make_unique<DeviceSums>(*groups_.peers, groups_.peers_of_gpus,
                                                 model_->parameters(), TrainAllReduce::ring);
        }
    }

    // How large the others' parts are; all ranks call it.
    Status measure(World& world) {
        const std::int64_t floats = held_.tensor().numel();
        const Result<std::vector<std::int64_t>> parameters = world.gather(floats);
        LOCKSTEP_TRY(parameters);
        const Result<std::vector<std::int64_t>> buffers =
            world.gather(model_->flat_buffers().numel());
        LOCKSTEP_TRY(buffers);
        for (std::int32_t stage = 0; stage < place_.stages; ++stage) {
            const auto at = static_cast<std::size_t>(stage);
            parameter_floats_.push_back(static_cast<std::size_t>((*parameters)[at]));
            buffer_floats_.push_back(static_cast<std::size_t>((*buffers)[at]));
        }
        return {};
    }

    Shard shard() const override { return {place_.chain, place_.chains}; }
    Communicator& trainers() override { return all_; }
    std::pair<std::size_t, std::size_t> layers() const override { return layers_; }
    Status step(Loader& loader, StepResult& result) override;
    Result<Evaluation> evaluate(const SampleSet& test) override;
    Status collect(Checkpoint& state) override;
    bool root_has_all() const override { return false; }
    Status snapshot(const PartSet& set, Snapshot& out) override;
    Status distribute(Checkpoint& state) override;

  private:
    using Clock = std::chrono::steady_clock;

    // What a micro-batch left on the way forward, for the way back.
    struct Micro {
        at::Tensor input;
        at::Tensor output;  // on the last stage: the loss
        double weight = 0.0;
    };

    static double since(Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    }
    bool first() const { return place_.stage == 0; }
    bool last() const { return place_.stage + 1 == place_.stages; }
    std::int32_t next() const { return all_.rank() + 1; }
    std::int32_t previous() const { return all_.rank() - 1; }

    // Values of this stage's device to the next one or the one before, and from there.
    Communicator& stages() const { return groups_.gpus ? *groups_.gpus : all_; }
    Stream stream() const { return device_.is_cuda() ? cuda_device::current_stream() : nullptr; }
    // A send or a receive; on the CPU it returns when the neighbour has come as far.
    template <class Call>
    Status exchange(const Call& call) {
        const auto start = Clock::now();
        const Status done = call();
        exchanged_ += since(start);
        return done;
    }
    Status send(const at::Tensor& values, std::int32_t to) {
        return exchange([&] { return stages().send(buffer_of_tensor(values), to, stream()); });
    }
    Status receive_into(const at::Tensor& values, std::int32_t from) {
        return exchange([&] { return stages().recv(buffer_of_tensor(values), from, stream()); });
    }
    at::TensorOptions floats_here() const { return at::TensorOptions{at::kFloat}.device(device_); }
    at::Tensor gradients() const {
        const at::Tensor& all = model_->parameters().flat_gradients();
        return all.narrow(0, 0, all.numel() - 1);
    }
    at::Tensor part_of(const BatchColumn& column, std::int64_t batch, std::int64_t begin,
                       std::int64_t size) const {
        return to_device(tensor_of(column, batch).narrow(0, begin, size), device_);
    }

    // A batch's values to the next stage, from the previous one.
    Status send_on(const at::Tensor& values);
    Result<at::Tensor> receive(std::int64_t size);
    Status forward(const Batch& batch, std::int64_t number, StepResult& result,
                   std::vector<Micro>& micros);
    Status backward(std::vector<Micro>& micros, bool final_batch);
    Status sum_over_chains();
    // Everything that was enqueued is done, and nothing was found wrong with it.
    Status until_done();
    Status agree_and_apply(StepResult& result);
    // Whether this chain evaluates another batch; all of its stages ask for each.
    Result<bool> evaluates_on();
    template <class Part>
    Status move_parts(Checkpoint& state, Part&& part);

    TrainConfig config_;
    Communicator& all_;
    Place place_;
    Groups groups_;
    at::Device device_;
    GradientPass pass_;
    std::pair<std::size_t, std::size_t> layers_;
    FlatLayout whole_;
    std::unique_ptr<Model> model_;  // this stage's layers
    HeldState held_;
    DeviceWait wait_;
    std::unique_ptr<GradientReducer> reducer_;  // with our own loops
    std::unique_ptr<DeviceSums> sums_;          // elsewhere
    at::Tensor loss_;                           // last stage: of the step, weighed; on its device
    double exchanged_ = 0.0;  // seconds in sends and receives, until the step takes them over
    std::vector<std::int64_t> sent_shape_;  // of one sample; empty: none was sent yet
    std::vector<std::int64_t> received_shape_;
    std::vector<std::size_t> parameter_floats_;  // by stage
    std::vector<std::size_t> buffer_floats_;
};

}  // namespace lockstep
