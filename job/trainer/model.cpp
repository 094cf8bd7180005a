#include "job/trainer/model.hpp"

#include "job/base/check.hpp"
#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

// LibTorch then chooses the type of each operation; of this thread, while it lives.
class Autocast {
  public:
    explicit Autocast(bool wanted) : wanted_(wanted) {
        if (wanted_) {
            at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
            at::autocast::set_cpu_enabled(true);
        }
    }
    ~Autocast() {
        if (wanted_) {
            at::autocast::set_cpu_enabled(false);
            at::autocast::clear_cache();  // of parameters in bfloat16: the step changes them
        }
    }
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;

  private:
    bool wanted_;
};

std::vector<Layer> part_of(std::vector<Layer> network, std::size_t first, std::size_t count) {
    LOCKSTEP_CHECK(first + count <= network.size());
    const auto begin = network.begin() + static_cast<std::ptrdiff_t>(first);
    return {std::make_move_iterator(begin),
            std::make_move_iterator(begin + static_cast<std::ptrdiff_t>(count))};
}

std::size_t parameters_before(const std::vector<Layer>& network, std::size_t first) {
    std::size_t out = 0;
    for (std::size_t i = 0; i < first; ++i) {
        out += network[i].parameters.size();
    }
    return out;
}

}  // namespace

std::vector<ParameterSpec> parameters_of(const std::vector<Layer>& layers) {
    std::vector<ParameterSpec> out;
    for (const Layer& layer : layers) {
        out.insert(out.end(), layer.parameters.begin(), layer.parameters.end());
    }
    return out;
}

std::int64_t buffer_floats(const Layer& layer) {
    std::int64_t out = 0;
    for (const BufferSpec& buffer : layer.buffers) {
        out += buffer.count;
    }
    return out;
}

ModelShape shape_of(const Dataset& data) {
    return {data.train.input.type, data.train.input.shape, data.classes};
}

std::vector<Layer> model_layers(const TrainConfig& config, const ModelShape& shape) {
    switch (config.model) {
        case TrainModel::mnist_convnet:
            return mnist_convnet_layers(config, shape);
        case TrainModel::mlp:
            return mlp_layers(config, shape);
        case TrainModel::alexnet_split:
            return alexnet_split_layers(config, shape);
        case TrainModel::gpt:
            return gpt_layers(shape);
        case TrainModel::mobilenet_v2:
            return mobilenet_v2_layers(config, shape);
        case TrainModel::seq2seq:
            return seq2seq_layers(shape);
        case TrainModel::linear:
            return linear_layers(shape);
    }
    LOCKSTEP_CHECK(false);
    return {};
}

Model::Model(std::vector<Layer> network, std::uint64_t seed)
    : Model(std::move(network), seed, 0, SIZE_MAX) {}

Model::Model(std::vector<Layer> network, std::uint64_t seed, std::size_t first, std::size_t count)
    : parameters_(parameters_of(part_of(network, first, std::min(count, network.size() - first))),
                  seed, parameters_before(network, first)) {
    count = std::min(count, network.size() - first);
    layers_ = part_of(std::move(network), first, count);
    std::size_t next = 0;
    std::int64_t floats = 0;
    for (const Layer& layer : layers_) {
        std::vector<at::Tensor>& tensors = tensors_.emplace_back();
        for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
            tensors.push_back(parameters_[next++]);
        }
        floats += buffer_floats(layer);
    }
    buffers_ = at::zeros({floats}, at::kFloat);
    float* at = floats > 0 ? buffers_.data_ptr<float>() : nullptr;
    std::int64_t offset = 0;
    for (const Layer& layer : layers_) {
        const std::int64_t size = buffer_floats(layer);
        for (const BufferSpec& buffer : layer.buffers) {
            at = std::fill_n(at, buffer.count, buffer.start);
        }
        layer_buffers_.push_back(buffers_.narrow(0, offset, size));
        offset += size;
    }
}

at::Tensor Model::forward(const at::Tensor& x, const Pass& pass) {
    const Autocast autocast{pass.bfloat16};
    at::Tensor value = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        if (pass.half) {
            std::vector<at::Tensor> rounded;
            std::transform(tensors_[i].begin(), tensors_[i].end(), std::back_inserter(rounded),
                           through_half);
            value = layers_[i].forward(through_half(value), rounded, layer_buffers_[i], pass);
        } else {
            value = layers_[i].forward(value, tensors_[i], layer_buffers_[i], pass);
        }
    }
    value = value.to(at::kFloat);
    return pass.half ? through_half(value) : value;
}

std::span<float> Model::buffers() {
    const auto size = static_cast<std::size_t>(buffers_.numel());
    return size == 0 ? std::span<float>{} : std::span<float>{buffers_.data_ptr<float>(), size};
}

std::unique_ptr<Model> make_model(const TrainConfig& config, const ModelShape& shape) {
    return std::make_unique<Model>(model_layers(config, shape),
                                   static_cast<std::uint64_t>(config.seed));
}

at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& targets, TrainLoss loss) {
    if (loss != TrainLoss::cross_entropy) {
        const at::Tensor numbers = logits.view(targets.sizes());
        return loss == TrainLoss::mse ? at::mse_loss(numbers, targets)
                                      : at::huber_loss(numbers, targets);
    }
    if (logits.dim() == 2) {
        return at::cross_entropy_loss(logits, targets);
    }
    const at::Tensor rows = logits.reshape({-1, logits.size(-1)});
    const at::Tensor asked = targets.ne(kNoAnswer);
    if (asked.all().item<bool>()) {
        return at::cross_entropy_loss(rows, targets.reshape({-1}));
    }
    // Every sample weighs the same, however many answers it has: the mean of a batch is then that
    // of its parts, wherever a strategy cuts it.
    const at::Tensor each = at::cross_entropy_loss(rows, targets.reshape({-1}), /*weight=*/{},
                                                   at::Reduction::None, kNoAnswer)
                                .view(targets.sizes());
    return (each.sum(-1) / asked.sum(-1)).mean();
}

at::Tensor tensor_of(const BatchColumn& column, std::int64_t size) {
    const std::vector<std::int64_t>& shape = column.column->shape;
    if (column.column->type != ColumnType::scaled) {
        std::vector<std::int64_t> sizes{size};
        sizes.insert(sizes.end(), shape.begin(), shape.end());
        return at::from_blob(column.data, sizes,
                             has_floats(column.column->type) ? at::kFloat : at::kLong);
    }
    LOCKSTEP_CHECK(shape.size() == 3);
    const std::int64_t height = shape[0];
    const std::int64_t width = shape[1];
    const std::int64_t channels = shape[2];
    // The strides decide LibTorch's algorithm, also where they describe the same memory.
    return at::from_blob(column.data, {size, channels, height, width},
                         {height * width * channels, 1, width * channels, channels}, at::kFloat);
}

}  // namespace lockstep
