#include "job/trainer/loader.hpp"

#include "job/trainer/kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uintptr_t kAlignment = 64;  // one cache line, one AVX-512 register

float* aligned(std::vector<float>& storage) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    const std::uintptr_t shift = (kAlignment - address % kAlignment) % kAlignment;
    return storage.data() + shift / sizeof(float);
}

}  // namespace

Loader::Loader(const ImageSet& images, std::int64_t batch_size, std::int32_t workers)
    : images_(images), batch_size_(batch_size) {
    // One batch in use, one ready, and one in the hands of each worker.
    slots_.resize(workers == 0 ? 1 : static_cast<std::size_t>(workers) + 2);
    const auto samples = static_cast<std::size_t>(batch_size);
    for (Slot& each : slots_) {
        each.pixels.resize(samples * images.image_size() + kAlignment / sizeof(float));
        each.aligned = aligned(each.pixels);
        each.labels.resize(samples);
    }
    for (std::int32_t i = 0; i < workers; ++i) {
        workers_.emplace_back([this] { work(); });
    }
}

Loader::~Loader() {
    {
        const std::lock_guard lock{mutex_};
        stop_ = true;
    }
    changed_.notify_all();
}

void Loader::begin(std::vector<std::uint32_t> indices) {
    std::unique_lock lock{mutex_};
    claimed_ = batches_;  // nothing more to take
    changed_.wait(lock, [this] { return busy_ == 0; });
    indices_ = std::move(indices);
    batches_ = (static_cast<std::int64_t>(indices_.size()) + batch_size_ - 1) / batch_size_;
    claimed_ = consumed_ = handed_ = 0;
    for (Slot& each : slots_) {
        each.holds = -1;
    }
    lock.unlock();
    changed_.notify_all();
}

void Loader::fill(std::int64_t number) {
    Slot& target = slot(number);
    const auto first = static_cast<std::size_t>(number * batch_size_);
    const std::size_t last =
        std::min(first + static_cast<std::size_t>(batch_size_), indices_.size());
    const std::size_t image = images_.image_size();
    for (std::size_t i = first; i < last; ++i) {
        const std::size_t sample = indices_[i];
        kernels::rescale(images_.pixels.data() + sample * image,
                         target.aligned + (i - first) * image, image);
        target.labels[i - first] = images_.labels[sample];
    }
    target.size = static_cast<std::int64_t>(last - first);
}

void Loader::work() {
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [this] {
            return stop_ || (claimed_ < batches_ &&
                             claimed_ - consumed_ < static_cast<std::int64_t>(slots_.size()));
        });
        if (stop_) {
            return;
        }
        const std::int64_t number = claimed_++;
        ++busy_;
        lock.unlock();
        fill(number);
        lock.lock();
        --busy_;
        slot(number).holds = number;
        changed_.notify_all();
    }
}

Batch Loader::next() {
    if (workers_.empty()) {
        if (handed_ >= batches_) {
            return {};
        }
        fill(handed_);
        Slot& ready = slot(handed_++);
        return {ready.size, ready.aligned, ready.labels.data()};
    }
    std::unique_lock lock{mutex_};
    consumed_ = handed_;  // the caller is done with the batch before
    if (handed_ >= batches_) {
        return {};
    }
    changed_.notify_all();
    Slot& ready = slot(handed_);
    changed_.wait(lock, [&] { return ready.holds == handed_; });
    ++handed_;
    return {ready.size, ready.aligned, ready.labels.data()};
}

}  // namespace lockstep
