#include "job/trainer/strategies/device_sums.hpp"

#include <utility>

namespace lockstep {
namespace {

Buffer device_buffer(const at::Tensor& values, std::size_t begin, std::size_t end) {
    return {values.data_ptr<float>() + begin, end - begin, Dtype::f32,
            values.is_cuda() ? Device::cuda : Device::cpu};
}

}  // namespace

DeviceSums::DeviceSums(Communicator& host, std::shared_ptr<Communicator> own,
                       FlatParameters& parameters, TrainAllReduce kind, std::size_t bucket_bytes)
    : own_(std::move(own)), group_(own_.get()), parameters_(parameters), kind_(kind) {
    const bool gpu = parameters.flat_values().is_cuda();
    if (group_ == nullptr && !gpu && host.size() > 1) {
        group_ = &host;
    }
    if (group_ == nullptr) {
        return;
    }
    if (gpu) {
        side_ = std::make_unique<cuda_device::SideStream>();
    }
    buckets_ = std::make_unique<GradientBuckets>(parameters, bucket_bytes,
                                                 [this](std::size_t count) { sum_up_to(count); });
}

void DeviceSums::begin() {
    summed_ = 0;
    error_.reset();
}

void DeviceSums::arm() {
    if (buckets_ != nullptr) {
        buckets_->arm();
    }
}

Status DeviceSums::finish(DeviceWait& wait) {
    wait.own_work_ends();
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

Status DeviceSums::found_wrong() const {
    if (own_ != nullptr) {
        if (const std::optional<Error> broken = own_->async_error()) {
            return fail(*broken);
        }
    }
    return {};
}

}  // namespace lockstep
