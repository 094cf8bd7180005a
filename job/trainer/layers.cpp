#include "job/trainer/layers.hpp"

#include "job/trainer/device.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/products.hpp"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// Per-channel numbers laid out over lanes, in one small tensor: rows scale, offset, mean.
enum LaneRow : std::uint8_t { kScale, kOffset, kMean, kLaneRows };

struct Shape {
    explicit Shape(const at::Tensor& x)
        : count(static_cast<std::size_t>(x.numel())),
          channels(static_cast<std::size_t>(x.size(1))),
          lanes(kernels::lanes(channels)) {}
    std::size_t count;
    std::size_t channels;
    std::size_t lanes;
    double rows() const { return static_cast<double>(count / channels); }
};

// Adds up the lanes that belong to one channel.
std::vector<double> fold(const std::vector<double>& by_lane, std::size_t channels) {
    std::vector<double> out(channels, 0.0);
    for (std::size_t j = 0; j < by_lane.size(); ++j) {
        out[j % channels] += by_lane[j];
    }
    return out;
}

struct Moments {
    explicit Moments(std::size_t channels) : mean(channels), variance(channels) {}
    std::vector<double> mean;
    std::vector<double> variance;
};

// The batch's moments; moves the moving ones towards them.
Moments batch_moments(const at::Tensor& x, const Shape& shape, float* moving) {
    const float* data = x.data_ptr<float>();
    // Shifting by the first pixel keeps Σx² − (Σx)²/n from cancelling.
    std::vector<float> shift(shape.lanes);
    for (std::size_t j = 0; j < shape.lanes; ++j) {
        shift[j] = data[j % shape.channels];
    }
    std::vector<double> sums(shape.lanes);
    std::vector<double> squares(shape.lanes);
    kernels::lane_sums(data, shape.count, shape.lanes, shift.data(), sums.data(), squares.data());
    const std::vector<double> sum = fold(sums, shape.channels);
    const std::vector<double> square = fold(squares, shape.channels);
    Moments out{shape.channels};
    const auto move = [](float& old, double now) {
        old = static_cast<float>(kNormMomentum * static_cast<double>(old) +
                                 (1.0 - kNormMomentum) * now);
    };
    for (std::size_t c = 0; c < shape.channels; ++c) {
        const double shifted = sum[c] / shape.rows();
        out.mean[c] = shifted + static_cast<double>(shift[c]);
        out.variance[c] = std::max(square[c] / shape.rows() - shifted * shifted, 0.0);
        move(moving[c], out.mean[c]);
        move(moving[shape.channels + c], out.variance[c]);
    }
    moving[2 * shape.channels] += 1.0F;
    return out;
}

// The moving moments without the weight of where they started (mean 0, variance 1).
Moments moving_moments(const Shape& shape, const float* moving) {
    const double weight = start_weight(moving[2 * shape.channels]);
    Moments out{shape.channels};
    for (std::size_t c = 0; c < shape.channels; ++c) {
        out.mean[c] = without_start(moving[c], 0.0, weight);
        out.variance[c] = std::max(without_start(moving[shape.channels + c], 1.0, weight), 0.0);
    }
    return out;
}

at::Tensor lane_table(const Shape& shape, const Moments& moments, const float* beta) {
    at::Tensor table = at::empty({kLaneRows, static_cast<std::int64_t>(shape.lanes)}, at::kFloat);
    float* scales = table.data_ptr<float>() + kScale * shape.lanes;
    float* offsets = table.data_ptr<float>() + kOffset * shape.lanes;
    float* means = table.data_ptr<float>() + kMean * shape.lanes;
    for (std::size_t j = 0; j < shape.lanes; ++j) {
        const std::size_t c = j % shape.channels;
        const double scale = 1.0 / std::sqrt(moments.variance[c] + kNormEpsilon);
        scales[j] = static_cast<float>(scale);
        offsets[j] = static_cast<float>(static_cast<double>(beta[c]) - moments.mean[c] * scale);
        means[j] = static_cast<float>(moments.mean[c]);
    }
    return table;
}

struct NormRelu : torch::autograd::Function<NormRelu> {
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                              const at::Tensor& beta, const at::Tensor& moments, bool training) {
        const at::Tensor x = input.contiguous(kChannelsLast);
        const Shape shape{x};
        float* moving = moments.data_ptr<float>();
        const Moments used =
            training ? batch_moments(x, shape, moving) : moving_moments(shape, moving);
        const at::Tensor table = lane_table(shape, used, beta.data_ptr<float>());
        at::Tensor y = at::empty(x.sizes(), x.options().memory_format(kChannelsLast));
        kernels::scale_relu(x.data_ptr<float>(), y.data_ptr<float>(), shape.count, shape.lanes,
                            table[kScale].data_ptr<float>(), table[kOffset].data_ptr<float>());
        context->save_for_backward({x, table});
        context->saved_data["training"] = training;
        return y;
    }

    // With g the gradient behind the ReLU, n rows and x̂ = (x − mean) · scale:
    //   ∂beta = Σ g
    //   ∂x = scale · (g − Σg / n − x̂ · Σ(g · x̂) / n)     training
    //   ∂x = scale · g                                    moving moments
    // Source: Ioffe, Szegedy: Batch normalization, 2015, §3, with γ = 1.
    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& x = saved[0];
        const at::Tensor& table = saved[1];
        const Shape shape{x};
        const at::Tensor g = gradients[0].contiguous(kChannelsLast);
        const float* scale = table[kScale].data_ptr<float>();
        const float* offset = table[kOffset].data_ptr<float>();
        const float* mean = table[kMean].data_ptr<float>();
        std::vector<double> sums(shape.lanes);
        std::vector<double> products(shape.lanes);
        kernels::relu_gradient_sums(x.data_ptr<float>(), g.data_ptr<float>(), shape.count,
                                    shape.lanes, scale, offset, mean, sums.data(), products.data());
        const std::vector<double> sum = fold(sums, shape.channels);
        const std::vector<double> product = fold(products, shape.channels);
        std::vector<float> slope(shape.lanes, 0.0F);
        std::vector<float> constant(shape.lanes, 0.0F);
        at::Tensor beta_gradient =
            at::empty({static_cast<std::int64_t>(shape.channels)}, at::kFloat);
        for (std::size_t c = 0; c < shape.channels; ++c) {
            beta_gradient.data_ptr<float>()[c] = static_cast<float>(sum[c]);
        }
        if (context->saved_data["training"].toBool()) {
            for (std::size_t j = 0; j < shape.lanes; ++j) {
                const std::size_t c = j % shape.channels;
                const auto s = static_cast<double>(scale[j]);
                const double k = -s * s * s * product[c] / shape.rows();
                slope[j] = static_cast<float>(k);
                constant[j] = static_cast<float>(-s * sum[c] / shape.rows() -
                                                 k * static_cast<double>(mean[j]));
            }
        }
        at::Tensor out = at::empty(x.sizes(), x.options().memory_format(kChannelsLast));
        kernels::relu_gradient(x.data_ptr<float>(), g.data_ptr<float>(), out.data_ptr<float>(),
                               shape.count, shape.lanes, scale, offset, slope.data(),
                               constant.data());
        return {out, beta_gradient, {}, {}};
    }
};

struct PoolRelu : torch::autograd::Function<PoolRelu> {
    static kernels::Images images(const at::Tensor& x) {
        const auto size = [&](std::int64_t side) { return static_cast<std::size_t>(x.size(side)); };
        return {size(0), size(2), size(3), size(1)};
    }
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
        const at::Tensor x = input.contiguous(kChannelsLast);
        const std::vector<std::int64_t> sizes{x.size(0), x.size(1), (x.size(2) + 1) / 2,
                                              (x.size(3) + 1) / 2};
        at::Tensor y = at::empty(sizes, x.options().memory_format(kChannelsLast));
        at::Tensor place = at::empty({y.numel()}, at::kByte);
        kernels::pool_relu(x.data_ptr<float>(), images(x), y.data_ptr<float>(),
                           place.data_ptr<std::uint8_t>());
        context->saved_data["place"] = place;
        context->saved_data["sizes"] = x.sizes().vec();
        return y;
    }
    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const at::Tensor g = gradients[0].contiguous(kChannelsLast);
        const at::Tensor place = context->saved_data["place"].toTensor();
        at::Tensor out = at::empty(context->saved_data["sizes"].toIntVector(),
                                   g.options().memory_format(kChannelsLast));
        kernels::pool_relu_gradient(place.data_ptr<std::uint8_t>(), g.data_ptr<float>(),
                                    images(out), out.data_ptr<float>());
        return {out};
    }
};

// The gradient of the weights goes to where the optimizer wants it: LibTorch would write it into
// memory of its own first and read that once more to add it.
struct Dense : torch::autograd::Function<Dense> {
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                              const at::Tensor& weight, const at::Tensor& bias) {
        const at::Tensor x = input.contiguous();
        context->save_for_backward({x, weight});
        return at::linear(x, weight, bias);
    }
    // y = x·Wᵀ + b: ∂x = g·W, ∂W = gᵀ·x, ∂b = the sum of g's rows.
    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& x = saved[0];
        const at::Tensor& weight = saved[1];
        const at::Tensor g = gradients[0].contiguous();
        const ProductShape shape{weight.size(0), weight.size(1), x.size(0)};
        at::Tensor to_input;
        if (context->needs_input_grad(0)) {
            to_input = g.mm(weight);
        }
        at::Tensor to_weight;
        const bool kept = weight.is_leaf() && weight.grad().defined();
        if (!kept) {
            to_weight = at::empty(weight.sizes(), weight.options());
        }
        const at::Tensor& sums = kept ? weight.grad() : to_weight;
        multiply(shape, 1.0F, {g.data_ptr<float>(), shape.rows, true},
                 {x.data_ptr<float>(), shape.columns}, sums.data_ptr<float>(), shape.columns,
                 kept ? Onto::add : Onto::replace);
        return {to_input, to_weight, g.sum(0)};
    }
};

struct ThroughHalf : torch::autograd::Function<ThroughHalf> {
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    static at::Tensor forward(AutogradContext*, const at::Tensor& x) {
        return x.to(at::kHalf).to(x.scalar_type());
    }
    static tensor_list backward(AutogradContext*, tensor_list gradients) {
        return {gradients[0].to(at::kHalf).to(gradients[0].scalar_type())};
    }
};

}  // namespace

bool autocasts_on_cpu() {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    return at::autocast::is_autocast_enabled(at::kCPU);
#else
    return at::autocast::is_cpu_enabled();
#endif
}

double start_weight(double moves) {
    return std::pow(kNormMomentum, moves);
}

// The same of LibTorch's operations. With a momentum of 1 batch_norm() says the batch's moments.
static at::Tensor portable_norm_relu(const at::Tensor& x, const at::Tensor& beta,
                                     const at::Tensor& moments, bool training) {
    const std::int64_t channels = x.size(1);
    const at::Tensor ones = at::ones({channels}, moments.options());
    const at::Tensor both = moments.narrow(0, 0, 2 * channels);
    const at::Tensor moves = moments.narrow(0, 2 * channels, 1);
    at::Tensor used;
    if (training) {
        used = at::zeros({2 * channels}, moments.options());
    } else {
        const at::Tensor weight = at::pow(kNormMomentum, moves);
        const at::Tensor start = at::cat({ones - 1.0, ones});
        used =
            at::where(weight < 1.0, (both - weight * start) / (1.0 - weight).clamp_min(1e-7), both);
        used.narrow(0, channels, channels).clamp_min_(0.0);
    }
    const at::Tensor mean = used.narrow(0, 0, channels);
    const at::Tensor variance = used.narrow(0, channels, channels);
    const at::Tensor y = at::batch_norm(x, ones, beta, mean, variance, training, /*momentum=*/1.0,
                                        kNormEpsilon, /*cudnn_enabled=*/true);
    if (training) {
        const at::NoGradGuard no_gradients;
        const auto rows = static_cast<double>(x.numel() / channels);
        both.mul_(kNormMomentum);
        both.narrow(0, 0, channels).add_(mean, 1.0 - kNormMomentum);
        // batch_norm() says the sample's variance, here it is the population's.
        both.narrow(0, channels, channels)
            .add_(variance, (1.0 - kNormMomentum) * (rows - 1.0) / rows);
        moves.add_(1.0);
    }
    return at::relu(y);
}

at::Tensor norm_relu(const at::Tensor& x, const at::Tensor& beta, const at::Tensor& moments,
                     bool training) {
    return own_loops(x) ? NormRelu::apply(x.to(at::kFloat), beta, moments, training)
                        : portable_norm_relu(x.to(at::kFloat), beta, moments, training);
}

at::Tensor conv_same(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     std::int64_t stride) {
    const auto total = [&](std::int64_t axis) {
        const std::int64_t in = x.size(axis);
        const std::int64_t out = (in + stride - 1) / stride;
        return std::max<std::int64_t>((out - 1) * stride + weight.size(axis) - in, 0);
    };
    const std::int64_t high = total(2);
    const std::int64_t wide = total(3);
    if (high % 2 == 0 && wide % 2 == 0) {
        return at::conv2d(x, weight, bias, stride, {high / 2, wide / 2});
    }
    const at::Tensor padded =
        at::constant_pad_nd(x, {wide / 2, wide - wide / 2, high / 2, high - high / 2});
    return at::conv2d(padded, weight, bias, stride);
}

at::Tensor pool_relu(const at::Tensor& x) {
    return own_loops(x) ? PoolRelu::apply(x.to(at::kFloat))
                        : at::relu(at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1}));
}

at::Tensor dropout(const at::Tensor& x, double rate, std::uint64_t key) {
    if (!x.device().is_cpu()) {
        return std::get<0>(at::native_dropout(x, rate, /*train=*/true));
    }
    at::Tensor mask = at::empty(x.sizes(), at::kFloat);
    kernels::dropout_mask(mask.data_ptr<float>(), static_cast<std::size_t>(x.numel()), key,
                          static_cast<float>(rate));
    return x * mask;
}

at::Tensor dense(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    if (!own_loops(x)) {
        return at::linear(x, weight, bias);
    }
    if (products_are_onednn() && !autocasts_on_cpu()) {
        return Dense::apply(x, weight, bias);
    }
    const at::Tensor pixels = x.view({x.size(0), x.size(1), 1, 1});
    const at::Tensor kernel = weight.view({weight.size(0), weight.size(1), 1, 1});
    return at::conv2d(pixels, kernel, bias).view({x.size(0), weight.size(0)});
}

at::Tensor dense_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return dense(x.reshape({-1, x.size(-1)}), weight, bias)
        .view({x.size(0), x.size(1), weight.size(0)});
}

at::Tensor through_half(const at::Tensor& x) {
    return at::isFloatingType(x.scalar_type()) ? ThroughHalf::apply(x) : x;
}

at::Tensor global_average(const at::Tensor& x) {
    return x.mean({2, 3});
}

}  // namespace lockstep
