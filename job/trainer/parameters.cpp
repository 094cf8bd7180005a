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

// Values are uniform in ± this. Fans as Keras and PyTorch count them: receptive field × channels;
// source: keras/src/initializers/random_initializers.py.
float bound_of(const ParameterSpec& spec) {
    constexpr float kSmallDeviation = 0.01F;
    if (spec.start == Start::small) {
        return kSmallDeviation * std::sqrt(3.0F);
    }
    std::int64_t field = 1;
    for (std::size_t i = 2; i < spec.shape.size(); ++i) {
        field *= spec.shape[i];
    }
    const std::int64_t channels =
        spec.start == Start::he ? spec.shape[0] : spec.shape[0] + spec.shape[1];
    return std::sqrt(6.0F / static_cast<float>(field * channels));
}

}  // namespace

FlatLayout flat_layout(std::vector<ParameterSpec> specs) {
    FlatLayout out;
    out.specs = std::move(specs);
    out.ranges.resize(out.specs.size());
    for (std::size_t i = out.specs.size(); i-- > 0;) {
        out.ranges[i] = {out.floats, count_of(out.specs[i].shape)};
        out.floats += (out.ranges[i].count + kAlign - 1) / kAlign * kAlign;
    }
    return out;
}

Json FlatLayout::json() const {
    Json out = Json::array();
    for (std::size_t i = 0; i < specs.size(); ++i) {
        Json item;
        item["name"] = specs[i].name;
        item["shape"] = specs[i].shape;
        item["offset"] = ranges[i].offset;
        item["order"] = specs[i].shape.size() == 4 ? "OHWI" : "row_major";
        out.push_back(std::move(item));
    }
    return out;
}

FlatParameters::FlatParameters(std::vector<ParameterSpec> specs, std::uint64_t seed,
                               std::size_t before, at::Device device)
    : layout_(flat_layout(std::move(specs))) {
    values_ = at::zeros({static_cast<std::int64_t>(layout_.floats)}, at::kFloat);
    gradients_ = at::zeros({static_cast<std::int64_t>(layout_.floats) + 1}, at::kFloat);
    for (std::size_t i = 0; i < size(); ++i) {
        const ParameterSpec& spec = layout_.specs[i];
        const FlatRange range = layout_.ranges[i];
        float* first = values_.data_ptr<float>() + range.offset;
        if (spec.start == Start::ones) {
            std::fill_n(first, range.count, 1.0F);
        } else if (spec.start != Start::zeros) {
            Random random{Random::combine(seed, before + i + 1)};
            const float bound = bound_of(spec);
            std::generate_n(first, range.count, [&] { return random.uniform(-bound, bound); });
        }
    }
    // The same values everywhere: they are drawn on the CPU.
    values_ = values_.to(device);
    gradients_ = gradients_.to(device);
    for (std::size_t i = 0; i < size(); ++i) {
        const ParameterSpec& spec = layout_.specs[i];
        const FlatRange range = layout_.ranges[i];
        at::Tensor tensor = view_of(values_, range, spec.shape);
        tensor.requires_grad_(true);
        tensor.mutable_grad() = view_of(gradients_, range, spec.shape);
        tensors_.push_back(std::move(tensor));
    }
}

std::int64_t FlatParameters::count() const {
    std::int64_t total = 0;
    for (const Range& range : layout_.ranges) {
        total += static_cast<std::int64_t>(range.count);
    }
    return total;
}

void FlatParameters::zero_gradients() {
    const std::span<float> all = gradients_and_flag();
    std::fill(all.begin(), all.end(), 0.0F);
}

}  // namespace lockstep
