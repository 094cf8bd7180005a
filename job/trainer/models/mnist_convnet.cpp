#include "job/trainer/models/models.hpp"

namespace lockstep {

std::vector<Layer> mnist_convnet_layers(const TrainConfig& config, const ModelShape& shape) {
    return {conv_layer("conv_1", shape.sample[2], 12, 3, 1, Padding::same, false),
            norm_layer("norm_1", 12),
            conv_layer("conv_2", 12, 24, 6, 2, Padding::valid, false),
            norm_layer("norm_2", 24),
            conv_layer("large_k", 24, 32, 6, 2, Padding::same, true),
            norm_layer("norm_3", 32),
            average_layer(),
            dense_layer("dense_1", 32, 256, /*relu=*/true),
            dropout_layer(config.dropout),
            dense_layer("dense_2", 256, shape.classes, /*relu=*/false)};
}

}  // namespace lockstep
