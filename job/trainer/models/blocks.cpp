#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"

#include <cstdint>
#include <functional>
#include <numeric>

namespace lockstep {

std::int64_t floats_of(const ModelShape& shape) {
    return std::accumulate(shape.sample.begin(), shape.sample.end(), std::int64_t{1},
                           std::multiplies<>{});
}

Layer conv_layer(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t side,
                 std::int64_t stride, Padding padding, bool bias) {
    Layer layer;
    layer.parameters.push_back({name + ".kernel", {out, in, side, side}, Start::glorot});
    if (bias) {
        layer.parameters.push_back({name + ".bias", {out}});
    }
    layer.forward = [stride, padding, bias](const at::Tensor& x, std::span<const at::Tensor> p,
                                            const at::Tensor&, const Pass&) {
        const at::Tensor none;
        const at::Tensor& offset = bias ? p[1] : none;
        return padding == Padding::same ? conv_same(x, p[0], offset, stride)
                                        : at::conv2d(x, p[0], offset, stride);
    };
    return layer;
}

Layer norm_layer(const std::string& name, std::int64_t channels) {
    Layer layer;
    layer.parameters.push_back({name + ".beta", {channels}});
    layer.buffers = {{name + kMovingMean, channels, 0.0F},
                     {name + kMovingVariance, channels, 1.0F},
                     {name + kMoves, 1, 0.0F}};
    layer.forward = [](const at::Tensor& x, std::span<const at::Tensor> p,
                       const at::Tensor& moments, const Pass& pass) {
        return norm_relu(x, p[0], moments, pass.batch_statistics);
    };
    return layer;
}

Layer average_layer() {
    return {{}, {}, [](const at::Tensor& x, auto, const at::Tensor&, const Pass&) {
                return global_average(x);
            }};
}

Layer flatten_layer() {
    return {{}, {}, [](const at::Tensor& x, auto, const at::Tensor&, const Pass&) {
                return x.reshape({x.size(0), -1});
            }};
}

Layer dense_layer(const std::string& name, std::int64_t in, std::int64_t out, bool relu) {
    Layer layer;
    layer.parameters = {{name + ".kernel", {out, in}, Start::glorot}, {name + ".bias", {out}}};
    layer.forward = [relu](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                           const Pass&) {
        at::Tensor y = dense(x, p[0], p[1]);
        return relu ? y.relu_() : y;
    };
    return layer;
}

Layer dropout_layer(double rate) {
    return {{}, {}, [rate](const at::Tensor& x, auto, const at::Tensor&, const Pass& pass) {
                return pass.training && rate > 0.0 ? dropout(x, rate, pass.dropout_key) : x;
            }};
}

}  // namespace lockstep
