#include "job/trainer/models/models.hpp"

namespace lockstep {

std::vector<Layer> mlp_layers(const TrainConfig& config, const ModelShape& shape) {
    return {flatten_layer(), dense_layer("dense_1", floats_of(shape), 256, /*relu=*/true),
            dropout_layer(config.dropout),
            dense_layer("dense_2", 256, shape.classes, /*relu=*/false)};
}

}  // namespace lockstep
