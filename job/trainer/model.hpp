// A network as a list of layers. A model has all of them, or a part (a pipeline's stage); it owns
// the parameters and moving averages of its layers, both in flat buffers. Training thread only.
#pragma once

#include "job/model/spec/train_config.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/loader.hpp"
#include "job/trainer/parameters.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// What a forward pass is for.
struct Pass {
    bool training = false;          // dropout on
    bool batch_statistics = false;  // normalisation uses the batch's moments and moves the others
    bool bfloat16 = false;          // convolutions and products in it, as torch.autocast does
    // On a GPU convolutions and products are in half precision, as torch.autocast does. On the CPU
    // what enters and leaves every layer, its parameters too, is rounded to it, and so are their
    // gradients; it computes with floats in between.
    bool half = false;
    std::uint64_t dropout_key = 0;
};

// One of the numbers that a layer keeps beside its parameters: moving averages, counters.
struct BufferSpec {
    std::string name;
    std::int64_t count = 0;
    float start = 0.0F;
};

// One step of the computation; between two layers a pipeline may cut. The batch is the first
// dimension of what goes in and comes out.
struct Layer {
    using Forward =
        std::function<at::Tensor(const at::Tensor& x, std::span<const at::Tensor> parameters,
                                 const at::Tensor& buffer, const Pass& pass)>;
    std::vector<ParameterSpec> parameters;
    std::vector<BufferSpec> buffers;  // `buffer` has them one after the other
    Forward forward;
};

// What a network is made for: the data set's columns.
struct ModelShape {
    ColumnType input = ColumnType::scaled;
    std::vector<std::int64_t> sample;  // images: height, width, channels; text: length
    std::int64_t classes = 10;
};

ModelShape shape_of(const Dataset& data);

// The layers of the network that `config` names; one file in models/ for each.
// Images come as [batch, channels, height, width] floats in [0, 1], text as [batch, length]
// integers, tables as [batch, columns] floats; the last layer gives logits [batch, classes], or
// [batch, length, classes].
std::vector<Layer> model_layers(const TrainConfig& config, const ModelShape& shape);

// Their parameters, in the order of use.
std::vector<ParameterSpec> parameters_of(const std::vector<Layer>& layers);
std::int64_t buffer_floats(const Layer& layer);

class Model {
  public:
    // Layers first, …, first + count − 1 of the network. The same seed gives the same weights on
    // every machine, whichever part a model has.
    Model(std::vector<Layer> network, std::uint64_t seed, std::size_t first, std::size_t count,
          at::Device device = at::kCPU);
    Model(std::vector<Layer> network, std::uint64_t seed, at::Device device = at::kCPU);

    at::Tensor forward(const at::Tensor& x, const Pass& pass);
    FlatParameters& parameters() { return parameters_; }
    // Moving means and variances; empty for a model without normalisation. Of a model on the CPU.
    std::span<float> buffers();
    const at::Tensor& flat_buffers() const { return buffers_; }  // on its device

  private:
    std::vector<Layer> layers_;
    std::vector<std::string> layer_names_;  // for profiles
    FlatParameters parameters_;
    std::vector<std::vector<at::Tensor>> tensors_;  // by layer
    at::Tensor buffers_;
    std::vector<at::Tensor> layer_buffers_;  // views of buffers_
};

// The whole network of `config`.
std::unique_ptr<Model> make_model(const TrainConfig& config, const ModelShape& shape,
                                  at::Device device = at::kCPU);

// cross_entropy: mean over the samples of each one's mean: logits [batch, …, classes] against
// classes [batch, …], of which those that are kNoAnswer do not count; a sample has others, too.
// Of numbers: [batch, 1] against [batch]; huber is straight from an error of 1 on.
at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& targets,
                     TrainLoss loss = TrainLoss::cross_entropy);

// A column of a batch as LibTorch sees it, without a copy: images channels-last. The batch must
// stay valid while the tensor is used.
at::Tensor tensor_of(const BatchColumn& column, std::int64_t size);

}  // namespace lockstep
