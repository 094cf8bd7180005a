#include "job/trainer/models/models.hpp"

namespace lockstep {

std::vector<Layer> linear_layers(const ModelShape& shape) {
    return {flatten_layer(), dense_layer("dense", floats_of(shape), shape.classes, /*relu=*/false)};
}

}  // namespace lockstep
