// The networks, one file each, and the layers they are written with. Pure functions.
#pragma once

#include "job/trainer/flops.hpp"
#include "job/trainer/model.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Layer for layer the network of Keras's guide "Distributed training with PyTorch" (the Rescaling
// layer is done by the Loader). For 28 × 28 × 1: 49,242 parameters learn, 136 do not.
std::vector<Layer> mnist_convnet_layers(const TrainConfig& config, const ModelShape& shape);
// The numbers of a sample → dense 256 → relu → dropout → dense.
std::vector<Layer> mlp_layers(const TrainConfig& config, const ModelShape& shape);
// The numbers of a sample → dense.
std::vector<Layer> linear_layers(const ModelShape& shape);

// AlexNet in its two halves, for images of about 32 pixels; see models/alexnet_split.cpp.
std::vector<Layer> alexnet_split_layers(const TrainConfig& config, const ModelShape& shape);
// torchvision's MobileNetV2: its names, so that its weights fit. See models/mobilenet_v2.cpp.
std::vector<Layer> mobilenet_v2_layers(const TrainConfig& config, const ModelShape& shape);
// A small transformer that continues bytes; see models/gpt.cpp.
std::vector<Layer> gpt_layers(const ModelShape& shape);
// An encoder and a decoder with attention, for pairs of texts; see models/seq2seq.cpp.
std::vector<Layer> seq2seq_layers(const ModelShape& shape);

// What their samples cost. Forward is 2 operations for each weight of a product and token, backward
// twice as much; attention's products with each other come on top, the masked half included.
TextCosts gpt_costs(const ModelShape& shape);
TextCosts seq2seq_costs(const ModelShape& shape);

// Of a sample: pixels in their colours, or a table's columns.
std::int64_t floats_of(const ModelShape& shape);

// The building blocks; names of parameters begin with `name`.
enum class Padding { valid, same };
Layer conv_layer(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t side,
                 std::int64_t stride, Padding padding, bool bias);
// How the names of norm_relu()'s buffers end (layers.hpp).
inline constexpr const char* kMovingMean = ".moving_mean";
inline constexpr const char* kMovingVariance = ".moving_variance";
inline constexpr const char* kMoves = ".moves";
Layer norm_layer(const std::string& name, std::int64_t channels);
Layer average_layer();  // over height and width
Layer flatten_layer();
Layer dense_layer(const std::string& name, std::int64_t in, std::int64_t out, bool relu);
Layer dropout_layer(double rate);

}  // namespace lockstep
