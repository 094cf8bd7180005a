// AlexNet in its two halves (Krizhevsky, Sutskever, Hinton: ImageNet classification with deep
// convolutional neural networks, 2012, figure 2): layers 2, 4 and 5 look only at the channels of
// their own half, which was the one on the same GPU; layer 3 and the dense ones look at both.
// The channels are the paper's; kernels and strides are for images of about 32 pixels instead of
// 224, and the dense layers have 1024 units instead of 4096.
#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t kHalves = 2;
constexpr std::int64_t kDenseUnits = 1024;

// Convolution of the same size, relu; `pool`: the largest of 3 × 3, every second pixel.
Layer alex_layer(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t side,
                 std::int64_t groups, bool pool) {
    Layer layer;
    layer.parameters = {{name + ".kernel", {out, in / groups, side, side}, Start::glorot},
                        {name + ".bias", {out}}};
    layer.forward = [side, groups, pool](const at::Tensor& x, std::span<const at::Tensor> p,
                                         const at::Tensor&, const Pass&) {
        const std::int64_t around = side / 2;
        at::Tensor y = at::conv2d(x, p[0], p[1], /*stride=*/1, around, /*dilation=*/1, groups);
        return pool ? pool_relu(y) : y.relu_();
    };
    return layer;
}

std::int64_t half_up(std::int64_t size) {
    return (size + 1) / 2;
}

}  // namespace

std::vector<Layer> alexnet_split_layers(const TrainConfig& config, const ModelShape& shape) {
    const std::int64_t high = half_up(half_up(half_up(shape.sample[0])));
    const std::int64_t wide = half_up(half_up(half_up(shape.sample[1])));
    return {alex_layer("conv_1", shape.sample[2], 96, 5, 1, /*pool=*/true),
            alex_layer("conv_2", 96, 256, 5, kHalves, /*pool=*/true),
            alex_layer("conv_3", 256, 384, 3, 1, /*pool=*/false),
            alex_layer("conv_4", 384, 384, 3, kHalves, /*pool=*/false),
            alex_layer("conv_5", 384, 256, 3, kHalves, /*pool=*/true),
            flatten_layer(),
            dropout_layer(config.dropout),
            dense_layer("dense_6", 256 * high * wide, kDenseUnits, /*relu=*/true),
            dense_layer("dense_7", kDenseUnits, kDenseUnits, /*relu=*/true),
            dense_layer("dense_8", kDenseUnits, shape.classes, /*relu=*/false)};
}

}  // namespace lockstep
