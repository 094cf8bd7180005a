#include "job/trainer/parameters.hpp"

#include "job/trainer/random.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kAlign = 16;  // floats: every parameter starts on a cache line

std::size_t count_of(const std::vector<std::int64_t>& shape) {
    return static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{}));
}

at::Tensor view_of(const at::Tensor& flat, FlatParameters::Range range,
                   const std::vector<std::int64_t>& shape) {
    const at::Tensor part = flat.narrow(0, static_cast<std::int64_t>(range.offset),
                                        static_cast<std::int64_t>(range.count));
    if (shape.size() == 4) {
        return part.view({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2});
    }
    return part.view(shape);
}

// Keras's fans: receptive field × channels; source: keras/src/initializers/random_initializers.py.
float glorot_bound(const std::vector<std::int64_t>& shape) {
    std::int64_t field = 1;
    for (std::size_t i = 2; i < shape.size(); ++i) {
        field *= shape[i];
    }
    const auto fans = static_cast<float>(field * (shape[0] + shape[1]));
    return std::sqrt(6.0F / fans);
}

}  // namespace

FlatParameters::FlatParameters(std::vector<ParameterSpec> specs, std::uint64_t seed)
    : specs_(std::move(specs)), ranges_(specs_.size()) {
    for (std::size_t i = specs_.size(); i-- > 0;) {
        ranges_[i] = {floats_, count_of(specs_[i].shape)};
        floats_ += (ranges_[i].count + kAlign - 1) / kAlign * kAlign;
    }
    values_ = at::zeros({static_cast<std::int64_t>(floats_)}, at::kFloat);
    gradients_ = at::zeros({static_cast<std::int64_t>(floats_) + 1}, at::kFloat);
    for (std::size_t i = 0; i < specs_.size(); ++i) {
        if (specs_[i].glorot) {
            Random random{Random::combine(seed, i + 1)};
            const float bound = glorot_bound(specs_[i].shape);
            float* first = values_.data_ptr<float>() + ranges_[i].offset;
            std::generate_n(first, ranges_[i].count, [&] { return random.uniform(-bound, bound); });
        }
        at::Tensor tensor = view_of(values_, ranges_[i], specs_[i].shape);
        tensor.requires_grad_(true);
        tensor.mutable_grad() = view_of(gradients_, ranges_[i], specs_[i].shape);
        tensors_.push_back(std::move(tensor));
    }
}

std::int64_t FlatParameters::count() const {
    std::int64_t total = 0;
    for (const Range& range : ranges_) {
        total += static_cast<std::int64_t>(range.count);
    }
    return total;
}

void FlatParameters::zero_gradients() {
    const std::span<float> all = gradients_and_flag();
    std::fill(all.begin(), all.end(), 0.0F);
}

Json FlatParameters::layout() const {
    Json out = Json::array();
    for (std::size_t i = 0; i < specs_.size(); ++i) {
        Json item;
        item["name"] = specs_[i].name;
        item["shape"] = specs_[i].shape;
        item["offset"] = ranges_[i].offset;
        item["order"] = specs_[i].shape.size() == 4 ? "OHWI" : "row_major";
        out.push_back(std::move(item));
    }
    return out;
}

}  // namespace lockstep
