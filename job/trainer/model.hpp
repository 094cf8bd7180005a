// The networks the trainer knows. A model owns its parameters and its moving averages, both in
// flat buffers. Training thread only.
#pragma once

#include "job/model/train_config.hpp"
#include "job/trainer/parameters.hpp"

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

// What a forward pass is for.
struct Pass {
    bool training = false;          // dropout on
    bool batch_statistics = false;  // normalisation uses the batch's moments and moves the others
    std::uint64_t dropout_key = 0;
};

class Model {
  public:
    virtual ~Model() = default;
    // images: [batch, 1, 28, 28] floats in [0, 1], channels-last; returns logits [batch, 10].
    virtual at::Tensor forward(const at::Tensor& images, const Pass& pass) = 0;
    virtual FlatParameters& parameters() = 0;
    // Moving means and variances; empty for a model without normalisation.
    virtual std::span<float> buffers() = 0;
};

// The same configuration and seed give the same weights on every machine.
// mnist_convnet, layer for layer the network of Keras's guide "Distributed training with PyTorch"
// (the Rescaling layer is done by the Loader):
//   conv 12, 3×3, same, no bias → norm → relu → conv 24, 6×6, stride 2, valid, no bias → norm →
//   relu → conv 32, 6×6, stride 2, same → norm → relu → global average → dense 256 → relu →
//   dropout → dense 10; normalisation without scale. 49,242 parameters learn, 136 do not.
// mlp: 784 → dense 256 → relu → dropout → dense 10.
std::unique_ptr<Model> make_model(const TrainConfig& config);

}  // namespace lockstep
