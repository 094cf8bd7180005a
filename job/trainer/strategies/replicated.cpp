// replicated and central_storage: one process with several devices, all on the CPU or each a GPU.
// Every device has a replica of the model and computes a part of each batch, side by side; the
// gradients are summed in one place, the step is made there, and the replicas copy the parameters
// before the next one.
// replicated: that place is the first replica. central_storage: it is memory of the host's, apart
// from all replicas.
//
// On GPUs every device has a thread and a stream of its own, and copies go from one to another: a
// phase ends when the devices have come past it, so that no copy reads what is still computed.
#include "job/trainer/device.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategies/device_batches.hpp"
#include "job/trainer/strategies/device_wait.hpp"
#include "job/trainer/strategies/held_state.hpp"
#include "job/trainer/strategies/kept_averages.hpp"
#include "job/trainer/strategy.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

// One thread for each device but the first, which is the caller's.
class DeviceThreads {
  public:
    explicit DeviceThreads(std::size_t devices) {
        for (std::size_t device = 1; device < devices; ++device) {
            threads_.emplace_back([this, device] { work(device); });
        }
    }
    ~DeviceThreads() {
        {
            const std::lock_guard lock{mutex_};
            stop_ = true;
        }
        changed_.notify_all();
    }
    DeviceThreads(const DeviceThreads&) = delete;
    DeviceThreads& operator=(const DeviceThreads&) = delete;

    // Calls task(device) on every device and returns when all are done; throws what one threw.
    void run(const std::function<void(std::size_t)>& task) {
        {
            const std::lock_guard lock{mutex_};
            task_ = &task;
            ++round_;
            left_ = threads_.size();
            thrown_ = nullptr;
        }
        changed_.notify_all();
        attempt(task, 0);
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return left_ == 0; });
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
    }

  private:
    void attempt(const std::function<void(std::size_t)>& task, std::size_t device) {
        try {
            task(device);
        } catch (...) {  // LibTorch's; the caller gets it
            const std::lock_guard lock{mutex_};
            thrown_ = std::current_exception();
        }
    }
    void work(std::size_t device) {
        std::uint64_t seen = 0;
        std::unique_lock lock{mutex_};
        for (;;) {
            changed_.wait(lock, [&] { return stop_ || round_ != seen; });
            if (stop_) {
                return;
            }
            seen = round_;
            const auto* task = task_;
            lock.unlock();
            attempt(*task, device);
            lock.lock();
            --left_;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;  // guards everything below
    std::condition_variable changed_;
    const std::function<void(std::size_t)>* task_ = nullptr;
    std::uint64_t round_ = 0;
    std::size_t left_ = 0;
    std::exception_ptr thrown_;
    bool stop_ = false;
    std::vector<std::jthread> threads_;  // last: they use everything above
};

// One for each device: the GPUs of `world`, or as many parts of the CPU as the configuration says.
std::vector<at::Device> devices_of(const TrainConfig& config, const World& world) {
    std::vector<at::Device> out;
    for (const std::int32_t gpu : world.gpus()) {
        out.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(gpu));
    }
    if (out.empty()) {
        out.assign(static_cast<std::size_t>(config.replicas), at::kCPU);
    }
    return out;
}

class Replicated final : public Strategy {
  public:
    Replicated(const TrainConfig& config, const ModelShape& shape, World& world)
        : Strategy(config),
          config_(config),
          all_(world.all()),
          on_gpus_(world.gpu() >= 0),
          threads_(devices_of(config, world).size()) {
        for (const at::Device device : devices_of(config, world)) {
            const auto number = static_cast<std::int32_t>(replicas_.size());
            replicas_.push_back({device, nullptr, GradientPass{config, number, device}});
        }
        // Each in its thread and so on its stream; of this thread the GPU was chosen before.
        on_each([&](std::size_t device) {
            Replica& replica = replicas_[device];
            if (device > 0) {
                use_device(replica.device);
            }
            replica.model = make_model(config, shape, replica.device);
        });
        FlatParameters& parameters = first().parameters();
        at::Tensor values = parameters.flat_values();
        if (config.strategy == TrainStrategy::central_storage) {
            values = on_host(values);
            sums_ = on_host(gradients_of(0));
        }
        held_.emplace(config, values, first().flat_buffers(), parameters.layout().ranges);
        averages_.emplace(first().flat_buffers());
    }

    Shard shard() const override { return {}; }
    Communicator& trainers() override { return all_; }

    Status step(Loader& loader, StepResult& result) override {
        averages_->keep();
        return averages_->unless_finished(make_step(loader, result));
    }

    Status make_step(Loader& loader, StepResult& result) {
        const auto start = Clock::now();
        on_each([this](std::size_t device) {
            show(device);
            const at::NoGradGuard no_gradients;
            gradients_of(device).zero_();
            replicas_[device].loss = 0.0;
        });
        result.optimizer_seconds = seconds_since(start);
        std::int64_t seen = 0;
        for (std::int64_t micro = 0; seen < result.samples; ++micro) {
            const auto before = Clock::now();
            const Batch batch = next_batch(loader);
            if (batch.size == 0) {
                return fail(loader.ended());
            }
            result.data_wait_seconds += seconds_since(before);
            seen += batch.size;
            const auto begun = Clock::now();
            on_each([&](std::size_t device) { compute(device, batch, micro, result); });
            result.backward_seconds += seconds_since(begun);
        }
        const auto computed = Clock::now();
        const Status combined = combine(result);
        wait_for_own_work(replicas_.front().device);
        result.optimizer_seconds += seconds_since(computed);
        result.stop = stop_signal::requested();
        result.checkpoint = stop_signal::take_checkpoint_request();
        return combined;
    }

    Result<Evaluation> evaluate(const SampleSet& test) override {
        show(0);
        return evaluate_model(first(), test, config_.loss, all_, replicas_.front().device);
    }
    Status collect(Checkpoint& state) override {
        const Status here = held_->fetch();
        LOCKSTEP_TRY(here);
        const auto copy = [](std::span<float> from, std::vector<float>& to) {
            to.assign(from.begin(), from.end());
        };
        copy(held_->parameters(), state.parameters);
        copy(held_->buffers(), state.buffers);
        copy(held_->moments(), state.optimizer);
        state.layout = first().parameters().layout().json();
        return {};
    }
    bool root_has_all() const override { return true; }
    Status snapshot(const PartSet&, Snapshot& out) override {
        const Status here = held_->fetch();
        LOCKSTEP_TRY(here);
        const std::size_t floats = held_->parameters().size();
        out.index = 0;
        out.sizes = {floats, held_->buffers().size(), held_->moments().size()};
        held_->show(out.part, 0, 0, floats);
        if (out.layout.empty()) {
            out.layout = first().parameters().layout().json();
        }
        out.copy();  // a step begins by giving the devices their parameters
        return {};
    }
    Status distribute(Checkpoint& state) override {
        std::ranges::copy(state.parameters, held_->parameters().begin());
        std::ranges::copy(state.buffers, held_->buffers().begin());
        std::ranges::copy(state.optimizer, held_->moments().begin());
        held_->store(state.step - state.loss_scale.skipped);
        wait_for_own_work(replicas_.front().device);
        // The moving averages of the first replica count; the others begin with the same.
        on_each([&](std::size_t device) {
            if (device > 0) {
                copy_in(state.buffers, replicas_[device].model->flat_buffers());
            }
        });
        return {};
    }

  private:
    using Clock = std::chrono::steady_clock;

    struct Replica {
        at::Device device;
        std::unique_ptr<Model> model;
        GradientPass pass;
        double loss = 0.0;  // its part of the step's
    };

    static double seconds_since(Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    }
    Model& first() { return *replicas_.front().model; }
    // Without the number after them, which is for ranks that sum.
    at::Tensor gradients_of(std::size_t device) {
        const at::Tensor& all = replicas_[device].model->parameters().flat_gradients();
        return all.narrow(0, 0, all.numel() - 1);
    }
    at::Tensor on_host(const at::Tensor& values) const {
        at::Tensor out =
            at::empty(values.sizes(), at::TensorOptions{at::kFloat}.pinned_memory(on_gpus_));
        const at::NoGradGuard no_gradients;
        out.copy_(values);
        return out;
    }
    // Returns when every device has done it.
    void on_each(const std::function<void(std::size_t device)>& task) {
        threads_.run([&](std::size_t device) {
            task(device);
            wait_for_own_work(replicas_[device].device);
        });
    }
    // Gives a device the parameters, if it has not those that are stepped.
    void show(std::size_t device) {
        at::Tensor mine = replicas_[device].model->parameters().flat_values();
        if (!mine.is_same(held_->tensor())) {
            const at::NoGradGuard no_gradients;
            mine.copy_(held_->tensor());
        }
    }

    // A device's part of a batch, by rows; none if there are fewer samples than devices.
    void compute(std::size_t device, const Batch& batch, std::int64_t micro,
                 const StepResult& result) {
        const auto devices = static_cast<std::int64_t>(replicas_.size());
        const auto number = static_cast<std::int64_t>(device);
        const std::int64_t begin = batch.size * number / devices;
        const std::int64_t size = batch.size * (number + 1) / devices - begin;
        if (size == 0) {
            return;
        }
        Replica& replica = replicas_[device];
        const auto part = [&](const BatchColumn& column) {
            return to_device(tensor_of(column, batch.size).narrow(0, begin, size), replica.device);
        };
        const Pass pass = replica.pass.training_pass(result, micro, config_.accumulate);
        seed_for(replica.device, pass);
        const at::Tensor loss = mean_loss(replica.model->forward(part(batch.input), pass),
                                          part(batch.target), config_.loss);
        const double weight = static_cast<double>(size) / static_cast<double>(result.samples);
        loss.backward(loss_slope(weight * scaler().scale(), replica.device));
        replica.loss += weight * loss.item<double>();
    }

    // The sum of the replicas' gradients, and the step it makes.
    Status combine(StepResult& result) {
        const at::NoGradGuard no_gradients;
        at::Tensor sum = gradients_of(0);
        if (sums_.defined()) {
            sums_.copy_(sum);
            sum = sums_;
        }
        for (std::size_t i = 1; i < replicas_.size(); ++i) {
            const at::Tensor more = gradients_of(i).to(sum.device());
            if (sum.is_cpu()) {
                kernels::add_scaled(sum.data_ptr<float>(), more.data_ptr<float>(),
                                    static_cast<std::size_t>(sum.numel()), 1.0F);
            } else {
                sum.add_(more);
            }
        }
        for (const Replica& replica : replicas_) {
            result.loss += replica.loss;
        }
        return held_->apply(config_, sum, HeldState::squares(sum), 1.0, scaler(), result);
    }

    TrainConfig config_;
    Communicator& all_;
    bool on_gpus_;
    std::vector<Replica> replicas_;
    // The parameters that the optimizer steps, the first replica's or, central_storage, the host's;
    // and the first replica's moving averages.
    std::optional<HeldState> held_;
    std::optional<KeptAverages> averages_;  // of the first replica
    at::Tensor sums_;                       // central_storage: the gradients
    DeviceThreads threads_;                 // last: they use the replicas
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_replicated(const TrainConfig& config,
                                                  const ModelShape& shape, World& world) {
    return std::make_unique<Replicated>(config, shape, world);
}

}  // namespace lockstep
