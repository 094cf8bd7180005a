#include "job/trainer/strategies/device_sums.hpp"

#include "job/trainer/strategy.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGpuPatience = std::chrono::seconds{3};
// Polls, 100 ms apart, that find a connection ended before it is a loss: a rank that was told to
// stop may be done a moment before this one.
constexpr int kLostPolls = 3;

Buffer device_buffer(const at::Tensor& values, std::size_t begin, std::size_t end) {
    return {values.data_ptr<float>() + begin, end - begin, Dtype::f32,
            values.is_cuda() ? Device::cuda : Device::cpu};
}

}  // namespace

bool comes_to_an_end(at::Device device) {
    return device.is_cpu() || cuda_device::finished([until = Clock::now() + kGpuPatience] {
               return Clock::now() > until;
           });
}

DeviceSums::DeviceSums(Communicator& all, std::unique_ptr<Communicator> own,
                       FlatParameters& parameters, TrainAllReduce kind, std::size_t bucket_bytes)
    : all_(all),
      own_(std::move(own)),
      group_(own_ != nullptr  ? own_.get()
             : all.size() > 1 ? &all
                              : nullptr),
      parameters_(parameters),
      kind_(kind),
      gpu_(parameters.flat_values().is_cuda()) {
    if (gpu_) {
        computed_ = std::make_unique<cuda_device::Mark>();
    }
    if (group_ == nullptr) {
        return;
    }
    if (gpu_) {
        side_ = std::make_unique<cuda_device::SideStream>();
    }
    buckets_ = std::make_unique<GradientBuckets>(parameters, bucket_bytes,
                                                 [this](std::size_t count) { sum_up_to(count); });
}

void DeviceSums::begin() {
    summed_ = 0;
    error_.reset();
    lost_polls_ = 0;
}

void DeviceSums::arm() {
    if (buckets_ != nullptr) {
        buckets_->arm();
    }
}

Status DeviceSums::finish() {
    if (computed_ != nullptr) {
        computed_->set();
    }
    if (group_ == nullptr) {
        return {};
    }
    buckets_->finish();
    if (error_) {
        return fail(*error_);
    }
    if (side_ != nullptr) {
        side_->current_waits();
    }
    return {};
}

// Buckets 0 … count − 1 have their final gradients, as far as is enqueued. In autograd's thread.
void DeviceSums::sum_up_to(std::size_t count) {
    const Stream stream = side_ == nullptr ? nullptr : side_->handle();
    if (side_ != nullptr) {
        side_->wait_for_current();
    }
    for (; summed_ < count && !error_; ++summed_) {
        const GradientBuckets::Bucket bucket = buckets_->all()[summed_];
        const Buffer values = device_buffer(parameters_.flat_gradients(), bucket.begin, bucket.end);
        Status done;
        if (kind_ == TrainAllReduce::reduce_to_one) {
            done = group_->reduce(values, 0, ReduceOp::sum, stream);
            if (done) {
                done = group_->broadcast(values, 0, stream);
            }
        } else {  // NCCL itself goes node by node
            done = group_->all_reduce(values, ReduceOp::sum, stream);
        }
        if (!done) {
            error_ = done.error();
        }
    }
}

// One rank alone waits for nobody but itself.
bool DeviceSums::gives_up() {
    if (group_ == nullptr) {
        return false;
    }
    lost_polls_ = all_.lost_peer() ? lost_polls_ + 1 : 0;
    return lost_polls_ >= kLostPolls || stop_is_overdue();
}

std::string DeviceSums::why() const {
    const std::optional<std::int32_t> lost = all_.lost_peer();
    return lost ? "its peer rank " + std::to_string(*lost) + " was lost"
                : "the other ranks did not finish the step";
}

// Only rank 0 has something to save, for which the GPU must come free: NCCL's abort does that, in a
// thread, since it may wait itself for a rank that is gone.
Status DeviceSums::wait() {
    if (!gpu_) {
        return {};
    }
    const auto give_up = [this] { return gives_up(); };
    bool done = computed_->wait(give_up);
    const auto own = Clock::now();
    done = done && cuda_device::finished(give_up);
    waited_ = group_ == nullptr ? 0.0 : std::chrono::duration<double>(Clock::now() - own).count();
    if (!done) {
        const std::string words = why();
        if (all_.rank() == 0) {
            std::thread{[group = own_, words] { group->abort(words); }}.detach();
            if (comes_to_an_end(parameters_.flat_values().device())) {
                return fail(Errc::unavailable, words);
            }
        }
        return fail(Errc::cancelled, words);
    }
    if (group_ != nullptr) {
        if (const std::optional<Error> broken = group_->async_error()) {
            return fail(*broken);
        }
    }
    return {};
}

}  // namespace lockstep
