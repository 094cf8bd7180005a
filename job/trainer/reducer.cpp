#include "job/trainer/reducer.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {
namespace {

// Small buckets start early but cost a round trip each (0.1 ms on one machine); large ones use the
// network well. Two for a small model, 8 MiB at most for a large one.
constexpr std::size_t kBucketMin = 128U << 10U;
constexpr std::size_t kBucketMax = 8U << 20U;
constexpr auto kGiveUpPoll = std::chrono::milliseconds{100};

}  // namespace

// Called by autograd after a gradient was added to its place in the flat buffer.
class GradientBuckets::Hook final : public torch::autograd::FunctionPostHook {
  public:
    Hook(GradientBuckets& buckets, std::size_t parameter)
        : buckets_(buckets), parameter_(parameter) {}
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& /*inputs*/) override {
        buckets_.ready(parameter_);
        return outputs;
    }

  private:
    GradientBuckets& buckets_;
    std::size_t parameter_;
};

GradientReducer::GradientReducer(Communicator& communicator, FlatParameters& parameters,
                                 std::size_t bucket_bytes)
    : GradientReducer(
          communicator.size(),
          [&communicator](std::span<float> values) { return communicator.all_reduce_sum(values); },
          parameters, bucket_bytes) {}

GradientReducer::GradientReducer(std::int32_t ranks, Sum sum, FlatParameters& parameters,
                                 std::size_t bucket_bytes)
    : sum_(std::move(sum)), parameters_(parameters) {
    if (ranks == 1) {
        return;  // the local gradients are the sum
    }
    if (bucket_bytes == 0) {
        const std::size_t bytes = (parameters.layout().floats + 1) * sizeof(float);
        bucket_bytes = std::clamp(bytes / 2, kBucketMin, kBucketMax);
    }
    buckets_ = std::make_unique<GradientBuckets>(parameters, bucket_bytes,
                                                 [this](std::size_t count) { launch(count); });
    thread_ = std::thread{[this] { work(); }};
}

GradientReducer::~GradientReducer() {
    {
        const std::lock_guard lock{mutex_};
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

GradientBuckets::GradientBuckets(FlatParameters& parameters, std::size_t bucket_bytes, Final call)
    : parameters_(parameters), call_(std::move(call)) {
    plan(bucket_bytes);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        // A std::shared_ptr; of LibTorch 2.15 a c10::intrusive_ptr. Either is kept as it is.
        auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
        node->add_post_hook(std::make_unique<Hook>(*this, i));
        accumulators_.push_back(std::make_shared<decltype(node)>(std::move(node)));
    }
}
GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::plan(std::size_t bucket_bytes) {
    const std::size_t total = parameters_.layout().floats + 1;
    bucket_of_.resize(parameters_.size());
    Bucket bucket{0, 0, 0};
    for (std::size_t i = parameters_.size(); i-- > 0;) {  // flat order is the reverse of use
        bucket_of_[i] = buckets_.size();
        ++bucket.parameters;
        bucket.end = i == 0 ? total : parameters_.range(i - 1).offset;
        if (i == 0 || (bucket.end - bucket.begin) * sizeof(float) >= bucket_bytes) {
            buckets_.push_back(bucket);
            bucket = {bucket.end, bucket.end, 0};
        }
    }
    missing_.resize(buckets_.size());
}

void GradientBuckets::arm() {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
        missing_[i] = buckets_[i].parameters;
    }
    next_ = 0;
    armed_ = true;
}

void GradientBuckets::ready(std::size_t parameter) {
    if (!armed_) {
        return;
    }
    --missing_[bucket_of_[parameter]];
    const std::size_t before = next_;
    while (next_ < buckets_.size() && missing_[next_] == 0) {
        ++next_;
    }
    if (next_ != before) {
        call_(next_);
    }
}

void GradientBuckets::finish() {
    armed_ = false;
    if (next_ < buckets_.size()) {
        next_ = buckets_.size();
        call_(next_);
    }
}

void GradientReducer::arm() {
    if (buckets_ == nullptr) {
        return;
    }
    buckets_->arm();
    const std::lock_guard lock{mutex_};
    launched_ = 0;
    done_ = 0;
}

void GradientReducer::launch(std::size_t count) {
    {
        const std::lock_guard lock{mutex_};
        launched_ = count;
    }
    changed_.notify_all();
}

Status GradientReducer::finish(const std::function<bool()>& give_up) {
    if (buckets_ == nullptr) {
        return {};
    }
    buckets_->finish();
    std::unique_lock lock{mutex_};
    const auto over = [this] { return done_ == buckets() || error_.has_value(); };
    while (!changed_.wait_for(lock, kGiveUpPoll, over)) {
        if (give_up()) {
            return fail(Errc::cancelled, "the other ranks did not finish the step");
        }
    }
    if (error_) {
        return fail(*error_);
    }
    return {};
}

void GradientReducer::work() {
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || (done_ < launched_ && !error_); });
        if (stop_) {
            return;
        }
        const GradientBuckets::Bucket bucket = buckets_->all()[done_];
        lock.unlock();
        const std::span<float> all = parameters_.gradients_and_flag();
        const Status reduced = sum_(all.subspan(bucket.begin, bucket.end - bucket.begin));
        lock.lock();
        if (reduced) {
            ++done_;
        } else {
            error_ = reduced.error();
        }
        changed_.notify_all();
    }
}

}  // namespace lockstep
