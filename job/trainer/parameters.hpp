// All parameters of a model in one flat buffer, and all gradients in another; the tensors that the
// layers use are views of them. The optimizer and the all-reduce then work on plain memory.
// The order is the reverse of use, so that gradients become final from the front to the back while
// backward runs. Training thread only; must outlive the tensors it hands out.
#pragma once

#include "job/base/json.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct ParameterSpec {
    std::string name;
    std::vector<std::int64_t> shape;  // convolutions: [out, in, height, width]
    // Uniform in ±sqrt(6 / (fan_in + fan_out)): Keras's default, GlorotUniform. Otherwise zeros.
    bool glorot = false;
};

class FlatParameters {
  public:
    struct Range {
        std::size_t offset;
        std::size_t count;
    };

    // Parameters in the order of use. Values depend only on `seed` and the position in the list.
    // Convolution weights are stored channels-last: [out][height][width][in].
    FlatParameters(std::vector<ParameterSpec> specs, std::uint64_t seed);
    FlatParameters(const FlatParameters&) = delete;
    FlatParameters& operator=(const FlatParameters&) = delete;

    std::size_t size() const { return specs_.size(); }
    const at::Tensor& operator[](std::size_t index) const { return tensors_[index]; }
    Range range(std::size_t index) const { return ranges_[index]; }
    // How many numbers the model learns (padding not counted).
    std::int64_t count() const;

    std::span<float> values() { return {values_.data_ptr<float>(), floats_}; }
    std::span<float> gradients() { return {gradients_.data_ptr<float>(), floats_}; }
    // The gradients and, after them, one number that is summed over the ranks with them.
    std::span<float> gradients_and_flag() { return {gradients_.data_ptr<float>(), floats_ + 1}; }
    float& flag() { return gradients_.data_ptr<float>()[floats_]; }
    void zero_gradients();

    // [{"name", "shape", "offset", "order"}]: where each parameter lies in values().
    Json layout() const;

  private:
    std::vector<ParameterSpec> specs_;
    std::vector<Range> ranges_;
    std::size_t floats_ = 0;
    at::Tensor values_;
    at::Tensor gradients_;
    std::vector<at::Tensor> tensors_;
};

}  // namespace lockstep
