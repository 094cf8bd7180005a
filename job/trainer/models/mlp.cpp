#include "job/trainer/models/models.hpp"

namespace lockstep {

std::vector<Layer> mlp_layers(const TrainConfig& config, const ModelShape& shape) {
    const std::int64_t pixels = shape.sample[0] * shape.sample[1] * shape.sample[2];
    return {flatten_layer(), dense_layer("dense_1", pixels, 256, /*relu=*/true),
            dropout_layer(config.dropout),
            dense_layer("dense_2", 256, shape.classes, /*relu=*/false)};
}

}  // namespace lockstep
