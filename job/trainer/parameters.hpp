// All parameters of a model in one flat buffer, and all gradients in another; the tensors that the
// layers use are views of them. The optimizer and the all-reduce then work on plain memory.
// The order is the reverse of use, so that gradients become final from the front to the back while
// backward runs. Training thread only; must outlive the tensors it hands out.
#pragma once

#include "job/base/json.hpp"
#include "job/trainer/optimizer.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// What a parameter is before training.
enum class Start {
    zeros,
    ones,
    glorot,  // uniform in ±sqrt(6 / (fan_in + fan_out)): Keras's default, GlorotUniform
    // Uniform in ±sqrt(6 / fan_out): the deviation of He et al.: Delving deep into rectifiers,
    // 2015, as torchvision's networks have it.
    he,
    small,  // uniform with the deviation 0.01
};

struct ParameterSpec {
    std::string name;
    std::vector<std::int64_t> shape;  // convolutions: [out, in, height, width]
    Start start = Start::zeros;
};

// Where each of some parameters, in the order of use, lies in a flat buffer, without the buffer.
struct FlatLayout {
    std::vector<ParameterSpec> specs;
    std::vector<FlatRange> ranges;
    std::size_t floats = 0;  // with the padding

    // [{"name", "shape", "offset", "order"}]
    Json json() const;
};
FlatLayout flat_layout(std::vector<ParameterSpec> specs);

class FlatParameters {
  public:
    using Range = FlatRange;

    // Parameters in the order of use; `before` of the network's come before them, in another part
    // of it. Values depend only on `seed` and the position in the network.
    // Convolution weights are stored channels-last: [out][height][width][in].
    FlatParameters(std::vector<ParameterSpec> specs, std::uint64_t seed, std::size_t before = 0,
                   at::Device device = at::kCPU);
    FlatParameters(const FlatParameters&) = delete;
    FlatParameters& operator=(const FlatParameters&) = delete;

    std::size_t size() const { return layout_.specs.size(); }
    const at::Tensor& operator[](std::size_t index) const { return tensors_[index]; }
    Range range(std::size_t index) const { return layout_.ranges[index]; }
    const FlatLayout& layout() const { return layout_; }
    // How many numbers the model learns (padding not counted).
    std::int64_t count() const;

    // On the device, flat: the values, and the gradients with the one number after them.
    const at::Tensor& flat_values() const { return values_; }
    const at::Tensor& flat_gradients() const { return gradients_; }

    // What follows: of parameters on the CPU.
    std::span<float> values() { return {values_.data_ptr<float>(), layout_.floats}; }
    std::span<float> gradients() { return {gradients_.data_ptr<float>(), layout_.floats}; }
    // The gradients and, after them, one number that is summed over the ranks with them.
    std::span<float> gradients_and_flag() {
        return {gradients_.data_ptr<float>(), layout_.floats + 1};
    }
    float& flag() { return gradients_.data_ptr<float>()[layout_.floats]; }
    void zero_gradients();

  private:
    FlatLayout layout_;
    at::Tensor values_;
    at::Tensor gradients_;
    std::vector<at::Tensor> tensors_;
};

}  // namespace lockstep
