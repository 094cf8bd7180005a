// replicated and central_storage: one process with several devices. Every device has a replica of
// the model and computes a part of each batch, side by side; the gradients are summed in one place,
// the step is made there, and the replicas copy the parameters before the next one.
// replicated: that place is the first replica. central_storage: it is memory of the host's, apart
// from all replicas.
#include "job/trainer/kernels.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategy.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
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

class Replicated final : public Strategy {
  public:
    Replicated(const TrainConfig& config, const ModelShape& shape, World& world)
        : Strategy(config),
          config_(config),
          all_(world.all()),
          threads_(static_cast<std::size_t>(config.replicas)) {
        for (std::int32_t i = 0; i < config.replicas; ++i) {
            replicas_.push_back({make_model(config, shape), GradientPass{config, i}, 0.0});
        }
        const FlatLayout& layout = first().parameters().layout();
        optimizer_ =
            std::make_unique<Optimizer>(optimizer_options(config), layout.floats, layout.ranges);
        if (config.strategy == TrainStrategy::central_storage) {
            const std::span<const float> start = first().parameters().values();
            central_.assign(start.begin(), start.end());
            sums_.resize(layout.floats);
        }
    }

    Shard shard() const override { return {}; }
    Communicator& trainers() override { return all_; }

    Status step(Loader& loader, StepResult& result) override {
        const auto start = Clock::now();
        threads_.run([this](std::size_t device) {
            FlatParameters& mine = replicas_[device].model->parameters();
            const std::span<const float> from = held();
            if (from.data() != mine.values().data()) {
                std::copy(from.begin(), from.end(), mine.values().begin());
            }
            mine.zero_gradients();
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
            threads_.run([&](std::size_t device) { compute(device, batch, micro, result); });
            result.backward_seconds += seconds_since(begun);
        }
        const auto computed = Clock::now();
        const Status combined = combine(result);
        result.optimizer_seconds += seconds_since(computed);
        result.stop = stop_signal::requested();
        result.checkpoint = stop_signal::take_checkpoint_request();
        return combined;
    }

    Result<Evaluation> evaluate(const SampleSet& test) override {
        show_first();
        return evaluate_model(first(), test, config_.loss, all_);
    }
    Status collect(Checkpoint& state) override {
        show_first();
        read_model(first(), *optimizer_, state);
        return {};
    }
    bool root_has_all() const override { return true; }
    Status snapshot(const PartSet&, Snapshot& out) override {
        show_first();
        show_model(first(), *optimizer_, out);
        out.copy();  // a step begins by giving the devices their parameters
        return {};
    }
    Status distribute(Checkpoint& state) override {
        for (Replica& replica : replicas_) {
            write_model(state, *replica.model, *optimizer_);
        }
        std::copy_n(state.parameters.begin(), central_.size(), central_.begin());
        return {};
    }

  private:
    using Clock = std::chrono::steady_clock;

    struct Replica {
        std::unique_ptr<Model> model;
        GradientPass pass;
        double loss;  // its part of the step's
    };

    static double seconds_since(Clock::time_point start) {
        return std::chrono::duration<double>(Clock::now() - start).count();
    }
    Model& first() { return *replicas_.front().model; }
    // Where the parameters are that the optimizer steps.
    std::span<float> held() {
        return central_.empty() ? first().parameters().values() : std::span<float>{central_};
    }
    void show_first() {
        std::copy_n(central_.begin(), central_.size(), first().parameters().values().begin());
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
        const at::Tensor logits =
            replica.model->forward(tensor_of(batch.input, batch.size).narrow(0, begin, size),
                                   replica.pass.training_pass(result, micro, config_.accumulate));
        const at::Tensor loss = mean_loss(
            logits, tensor_of(batch.target, batch.size).narrow(0, begin, size), config_.loss);
        const double weight = static_cast<double>(size) / static_cast<double>(result.samples);
        replica.loss += weight * loss.item<double>();
        loss.backward(at::scalar_tensor(weight * scaler().scale(), at::kFloat));
    }

    // The sum of the replicas' gradients, and the step it makes.
    Status combine(StepResult& result) {
        std::span<float> sum = first().parameters().gradients();
        if (!central_.empty()) {
            std::copy(sum.begin(), sum.end(), sums_.begin());
            sum = sums_;
        }
        for (std::size_t i = 1; i < replicas_.size(); ++i) {
            kernels::add_scaled(sum.data(), replicas_[i].model->parameters().gradients().data(),
                                sum.size(), 1.0F);
        }
        for (const Replica& replica : replicas_) {
            result.loss += replica.loss;
        }
        return apply_gradients(config_, held(), sum,
                               kernels::sum_of_squares(sum.data(), sum.size()), 1.0, *optimizer_,
                               scaler(), result);
    }

    TrainConfig config_;
    Communicator& all_;
    std::vector<Replica> replicas_;
    std::unique_ptr<Optimizer> optimizer_;
    std::vector<float> central_;  // central_storage: the parameters
    std::vector<float> sums_;     // central_storage: the gradients
    DeviceThreads threads_;       // last: they use the replicas
};

}  // namespace

Result<std::unique_ptr<Strategy>> make_replicated(const TrainConfig& config,
                                                  const ModelShape& shape, World& world) {
    return std::make_unique<Replicated>(config, shape, world);
}

}  // namespace lockstep
