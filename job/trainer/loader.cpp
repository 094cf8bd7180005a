#include "job/trainer/loader.hpp"

#include "job/trainer/kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uintptr_t kAlignment = 64;  // one cache line, one AVX-512 register

std::byte* aligned_in(std::vector<std::byte>& storage) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
    return storage.data() + (kAlignment - address % kAlignment) % kAlignment;
}

std::size_t element_bytes(ColumnType type) {
    return has_floats(type) ? sizeof(float) : sizeof(std::int64_t);
}

// Sample number `sample` of the column to place `place` of the batch.
Status convert(const Column& column, std::size_t sample, std::uint64_t variation, std::byte* batch,
               std::size_t place) {
    const std::size_t elements = column.elements();
    if (column.files) {
        return column.files->read(sample, variation,
                                  reinterpret_cast<float*>(batch) + place * elements);
    }
    const std::uint8_t* from = column.sample(sample);
    if (column.stored_height > 0) {
        kernels::resize(from, static_cast<std::size_t>(column.stored_height),
                        static_cast<std::size_t>(column.stored_width),
                        static_cast<std::size_t>(column.shape[2]),
                        reinterpret_cast<float*>(batch) + place * elements,
                        static_cast<std::size_t>(column.shape[0]),
                        static_cast<std::size_t>(column.shape[1]));
    } else if (column.type == ColumnType::scaled) {
        kernels::rescale(from, reinterpret_cast<float*>(batch) + place * elements, elements);
    } else if (column.type == ColumnType::number) {
        std::memcpy(reinterpret_cast<float*>(batch) + place * elements, from,
                    elements * sizeof(float));
    } else if (column.type == ColumnType::wide_index) {
        std::int64_t* to = reinterpret_cast<std::int64_t*>(batch) + place * elements;
        for (std::size_t i = 0; i < elements; ++i) {
            to[i] = from[2 * i] + 256 * from[2 * i + 1];
        }
    } else {
        std::int64_t* to = reinterpret_cast<std::int64_t*>(batch) + place * elements;
        std::copy_n(from, elements, to);
        if (column.type == ColumnType::answer) {
            std::replace(to, to + elements, std::int64_t{0}, kNoAnswer);
        }
    }
    return {};
}

}  // namespace

Loader::Loader(const SampleSet& samples, std::int64_t batch_size, std::int32_t workers, bool inputs)
    : samples_(samples), batch_size_(batch_size), inputs_(inputs) {
    // One batch in use, one ready, and one in the hands of each worker.
    slots_.resize(static_cast<std::size_t>(slots(workers)));
    const Column* columns[] = {&samples.input, &samples.target};
    for (Slot& each : slots_) {
        for (std::size_t i = 0; i < 2; ++i) {
            each.storage[i].resize(static_cast<std::size_t>(batch_size) * columns[i]->elements() *
                                       element_bytes(columns[i]->type) +
                                   kAlignment);
            each.aligned[i] = aligned_in(each.storage[i]);
        }
    }
    for (std::int32_t i = 0; i < workers; ++i) {
        workers_.emplace_back([this] { work(); });
    }
}

Batch Loader::batch_of(const Slot& slot) const {
    return {slot.size, {&samples_.input, slot.aligned[0]}, {&samples_.target, slot.aligned[1]}};
}

Loader::~Loader() {
    {
        const std::lock_guard lock{mutex_};
        stop_ = true;
    }
    changed_.notify_all();
}

void Loader::begin(std::vector<std::uint32_t> indices, std::uint64_t variation) {
    std::unique_lock lock{mutex_};
    claimed_ = batches_;  // nothing more to take
    changed_.wait(lock, [this] { return busy_ == 0; });
    indices_ = std::move(indices);
    variation_ = variation;
    read_ = {};
    batches_ = (static_cast<std::int64_t>(indices_.size()) + batch_size_ - 1) / batch_size_;
    claimed_ = consumed_ = handed_ = 0;
    for (Slot& each : slots_) {
        each.holds = -1;
    }
    lock.unlock();
    changed_.notify_all();
}

Status Loader::fill(std::int64_t number) {
    Slot& target = slot(number);
    const auto first = static_cast<std::size_t>(number * batch_size_);
    const std::size_t last =
        std::min(first + static_cast<std::size_t>(batch_size_), indices_.size());
    for (std::size_t i = first; i < last; ++i) {
        const std::size_t sample = indices_[i];
        Status done;
        if (inputs_) {
            done = convert(samples_.input, sample, variation_, target.aligned[0], i - first);
        }
        if (done) {
            done = convert(samples_.target, sample, variation_, target.aligned[1], i - first);
        }
        if (!done) {
            return done;
        }
    }
    target.size = static_cast<std::int64_t>(last - first);
    return {};
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
        Status filled;
        try {
            filled = fill(number);
        } catch (const std::bad_alloc&) {
            filled = fail(Errc::exhausted, "no memory for a batch of images");
        }
        lock.lock();
        --busy_;
        if (!filled && read_) {
            read_ = std::move(filled);
        }
        slot(number).holds = number;
        changed_.notify_all();
    }
}

Batch Loader::next() {
    if (workers_.empty()) {
        if (handed_ >= batches_ || !read_) {
            return {};
        }
        read_ = fill(handed_);
        if (!read_) {
            return {};
        }
        return batch_of(slot(handed_++));
    }
    std::unique_lock lock{mutex_};
    consumed_ = handed_;  // the caller is done with the batch before
    if (handed_ >= batches_) {
        return {};
    }
    changed_.notify_all();
    Slot& ready = slot(handed_);
    // A failure counts at once, though batches before it may be there: the training is over anyway.
    changed_.wait(lock, [&] { return ready.holds == handed_ || !read_; });
    if (!read_) {
        return {};
    }
    ++handed_;
    return batch_of(ready);
}

Status Loader::status() const {
    const std::lock_guard lock{mutex_};
    return read_;
}

Error Loader::ended() const {
    const std::lock_guard lock{mutex_};
    return read_ ? Error{Errc::internal, "the loader ended before the epoch"} : read_.error();
}

}  // namespace lockstep
