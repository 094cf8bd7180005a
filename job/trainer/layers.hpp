// Layers that LibTorch does not have as this model needs them. Pure functions on tensors, with
// gradients; any thread. Images are [batch, channels, height, width] stored channels-last.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace lockstep {

// Keras's defaults for BatchNormalization; source: keras/src/layers/normalization/.
inline constexpr double kNormEpsilon = 1e-3;
inline constexpr double kNormMomentum = 0.99;

// The moving moments of one normalisation layer: one flat tensor of floats, mean [channels], then
// variance [channels], then how often they were moved. They start at 0, 1 and 0.
inline std::int64_t moments_size(std::int64_t channels) {
    return 2 * channels + 1;
}

// Whether LibTorch now computes products on the CPU in bf16 (torch.autocast). The calling thread's.
bool autocasts_on_cpu();

// The weight that where a moving average started still has after so many moves, and its value
// without it.
double start_weight(double moves);
inline double without_start(double average, double start, double weight) {
    return weight < 1.0 ? (average - weight * start) / (1.0 - weight) : average;
}

// relu(batch_norm(x)) with scale=False, center=True, fused: x is read once to find the moments and
// once to apply them. `beta` is [channels], `moments` as above.
// training: the batch's moments are used, and the moving ones move towards them as in Keras
// (0.99 · old + 0.01 · new, with the population variance, where PyTorch takes the sample's).
// Otherwise the moving moments are used and stay as they are. After t moves their start still
// weighs 0.99^t (20 % after 160 steps, which makes a short run look untrained), so it is taken out
// before use, as Adam does with its moments: (mean − 0.99^t · 0) / (1 − 0.99^t), and so on.
at::Tensor norm_relu(const at::Tensor& x, const at::Tensor& beta, const at::Tensor& moments,
                     bool training);

// Convolution with padding "same" as TensorFlow defines it: the output has ceil(in / stride)
// pixels; an odd number of padding pixels puts one more at the end.
// Source: tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2.
at::Tensor conv_same(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     std::int64_t stride);

// relu(max_pool2d(x)) with windows of 3 × 3 pixels, every second one, one pixel of padding: what
// the pooling of relu(x) gives, bit for bit, and its gradient. x is read once.
at::Tensor pool_relu(const at::Tensor& x);

// Inverted dropout whose mask depends only on `key` and the element's place, so that a resumed run
// repeats it without any state. On a GPU by LibTorch's generator, which seed_device() has given the
// key.
at::Tensor dropout(const at::Tensor& x, double rate, std::uint64_t key);

// x · weightᵀ + bias: [batch, in] × [out, in] → [batch, out]. Where LibTorch's products may be the
// reference BLAS's (products.hpp), and in bfloat16, it is a convolution of 1 × 1 pixels: those come
// from oneDNN everywhere.
at::Tensor dense(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
// The same for each place of a text: [batch, length, in] → [batch, length, out].
at::Tensor dense_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// x as half precision holds it; so is its gradient on the way back. What is too large becomes
// infinite, what is too small 0.
at::Tensor through_half(const at::Tensor& x);

// Mean over height and width: [batch, channels, height, width] → [batch, channels].
at::Tensor global_average(const at::Tensor& x);

}  // namespace lockstep
