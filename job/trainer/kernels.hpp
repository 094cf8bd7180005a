// The loops that touch every number of a step, on plain memory, without LibTorch: compiled for
// AVX-512, AVX2 and the baseline, chosen at start. Pure functions; any thread. Pointers do not
// overlap unless said; counts are in elements.
//
// Normalisation works on tensors stored [rows][channels] (NHWC: rows = batch · height · width).
// Channels are rarely a multiple of a vector, so per-channel numbers are laid out over `lanes`
// floats, a whole number of rows: lanes(12) = 48. Element i belongs to lane i mod lanes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

// out[i] = in[i] / 255.
void rescale(const std::uint8_t* in, float* out, std::size_t count);

// One image of bytes, [height][width][channels], to floats of [rows][columns][channels] in [0, 1]:
// bilinear between the centres of pixels, edges repeated, no smoothing when it gets smaller. As
// tf.image.resize and torch.nn.functional.interpolate(mode="bilinear") do by default.
void resize(const std::uint8_t* in, std::size_t height, std::size_t width, std::size_t channels,
            float* out, std::size_t rows, std::size_t columns);

// The least common multiple of `channels` and 16.
std::size_t lanes(std::size_t channels);

// sum[j] = Σ (x − shift[j]) and squares[j] = Σ (x − shift[j])² over the elements of lane j.
// Blocks are summed in float, blocks in double.
void lane_sums(const float* x, std::size_t count, std::size_t lanes, const float* shift,
               double* sum, double* squares);
// y = max(0, x · scale[j] + offset[j]).
void scale_relu(const float* x, float* y, std::size_t count, std::size_t lanes, const float* scale,
                const float* offset);
// With g = gradient where x · scale[j] + offset[j] > 0, else 0:
// sum[j] = Σ g and product[j] = Σ g · (x − mean[j]).
void relu_gradient_sums(const float* x, const float* gradient, std::size_t count, std::size_t lanes,
                        const float* scale, const float* offset, const float* mean, double* sum,
                        double* product);
// With g as above: out = g · scale[j] + x · slope[j] + constant[j].
void relu_gradient(const float* x, const float* gradient, float* out, std::size_t count,
                   std::size_t lanes, const float* scale, const float* offset, const float* slope,
                   const float* constant);

// Where the windows of a pooling lie: 3 × 3 pixels, every second one, one pixel of padding around;
// an image of height × width pixels has (height + 1) / 2 × (width + 1) / 2 of them.
struct Images {
    std::size_t count;
    std::size_t height;
    std::size_t width;
    std::size_t channels;
};
// y = max(0, the largest of each window of x); place: which pixel of the window it is, row by row,
// the first of equals, or kNoPixel where y is 0. What is no number stays that.
inline constexpr std::uint8_t kNoPixel = 9;
void pool_relu(const float* x, const Images& images, float* y, std::uint8_t* place);
// out, of x's size, from the gradient of y.
void pool_relu_gradient(const std::uint8_t* place, const float* gradient, const Images& images,
                        float* out);

// Fused Adam over all parameters at once. gradient is multiplied by `gradient_scale` first.
// Source: Kingma, Ba: Adam, 2015, algorithm 1, with PyTorch's placement of epsilon:
// parameter −= rate / (1 − β1^t) · m / (√v / √(1 − β2^t) + ε).
// Weight decay is added to the gradient (decay, PyTorch's Adam) or taken off the parameter first
// (keep = 1 − rate · decay: Loshchilov, Hutter: Decoupled weight decay, 2019); 0 and 1: none.
struct AdamStep {
    float gradient_scale;
    float beta1;
    float beta2;
    float step_size;            // rate / (1 − β1^t)
    float inverse_root_second;  // 1 / √(1 − β2^t)
    float epsilon;
    float decay;
    float keep;
};
void adam(float* parameter, const float* gradient, float* first, float* second, std::size_t count,
          const AdamStep& step);
// The same moments, but what would be subtracted goes to `direction`, with decay · parameter added:
// step_size here is without the rate, and LAMB chooses how far to go.
void adam_direction(const float* parameter, const float* gradient, float* first, float* second,
                    float* direction, std::size_t count, const AdamStep& step);
// y += factor · x.
void add_scaled(float* y, const float* x, std::size_t count, float factor);
// velocity = momentum · velocity + gradient · gradient_scale + decay · parameter;
// parameter −= rate · velocity.
struct SgdStep {
    float gradient_scale;
    float momentum;
    float rate;
    float decay;
};
void sgd(float* parameter, const float* gradient, float* velocity, std::size_t count,
         const SgdStep& step);
// Σ x².
double sum_of_squares(const float* x, std::size_t count);

// mask[i] = 0 with probability `rate`, else 1 / (1 − rate); depends only on key and i.
void dropout_mask(float* mask, std::size_t count, std::uint64_t key, float rate);

}  // namespace lockstep::kernels
