#include "job/trainer/model.hpp"

#include "job/base/check.hpp"
#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"
#include "job/trainer/step_profile.hpp"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

// LibTorch then chooses the type of each operation; of this thread, while it lives. On GPUs without
// its cache: what a graph captures is not to be kept beyond it.
class Autocast {
  public:
    Autocast(bool wanted, at::Device device, at::ScalarType type)
        : wanted_(wanted), gpu_(device.is_cuda()) {
        if (wanted_) {
            switch_to(true, type);
        }
    }
    ~Autocast() {
        if (wanted_) {
            switch_to(false, at::kFloat);
            at::autocast::clear_cache();  // of parameters in that type: the step changes them
        }
    }
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;

  private:
    void switch_to(bool on, at::ScalarType type) const {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
        const at::DeviceType device = gpu_ ? at::kCUDA : at::kCPU;
        if (on) {
            at::autocast::set_autocast_dtype(device, type);
        }
        at::autocast::set_autocast_enabled(device, on);
#else
        if (on && gpu_) {
            at::autocast::set_autocast_gpu_dtype(type);
        } else if (on) {
            at::autocast::set_autocast_cpu_dtype(type);
        }
        gpu_ ? at::autocast::set_enabled(on) : at::autocast::set_cpu_enabled(on);
#endif
        at::autocast::set_autocast_cache_enabled(!on || !gpu_);
    }

    bool wanted_;
    bool gpu_;
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

Model::Model(std::vector<Layer> network, std::uint64_t seed, at::Device device)
    : Model(std::move(network), seed, 0, SIZE_MAX, device) {}

Model::Model(std::vector<Layer> network, std::uint64_t seed, std::size_t first, std::size_t count,
             at::Device device)
    : parameters_(parameters_of(part_of(network, first, std::min(count, network.size() - first))),
                  seed, parameters_before(network, first), device) {
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
        layer_names_.push_back("layer " + std::to_string(first + layer_names_.size() + 1));
        if (!layer.parameters.empty()) {
            const std::string& name = layer.parameters.front().name;
            layer_names_.back() += ": " + name.substr(0, name.rfind('.'));
        }
    }
    buffers_ = at::zeros({floats}, at::kFloat);
    float* at = floats > 0 ? buffers_.data_ptr<float>() : nullptr;
    for (const Layer& layer : layers_) {
        for (const BufferSpec& buffer : layer.buffers) {
            at = std::fill_n(at, buffer.count, buffer.start);
        }
    }
    buffers_ = buffers_.to(device);
    std::int64_t offset = 0;
    for (const Layer& layer : layers_) {
        const std::int64_t size = buffer_floats(layer);
        layer_buffers_.push_back(buffers_.narrow(0, offset, size));
        offset += size;
    }
}

at::Tensor Model::forward(const at::Tensor& x, const Pass& pass) {
    const bool rounds = pass.half && x.device().is_cpu();
    const Autocast autocast{pass.bfloat16 || (pass.half && !rounds), x.device(),
                            pass.half ? at::kHalf : at::kBFloat16};
    at::Tensor value = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const ProfileSpan span{layer_names_[i]};
        if (rounds) {
            std::vector<at::Tensor> rounded;
            std::transform(tensors_[i].begin(), tensors_[i].end(), std::back_inserter(rounded),
                           through_half);
            value = layers_[i].forward(through_half(value), rounded, layer_buffers_[i], pass);
        } else {
            value = layers_[i].forward(value, tensors_[i], layer_buffers_[i], pass);
        }
    }
    value = value.to(at::kFloat);
    return rounds ? through_half(value) : value;
}

std::span<float> Model::buffers() {
    const auto size = static_cast<std::size_t>(buffers_.numel());
    return size == 0 ? std::span<float>{} : std::span<float>{buffers_.data_ptr<float>(), size};
}

std::unique_ptr<Model> make_model(const TrainConfig& config, const ModelShape& shape,
                                  at::Device device) {
    return std::make_unique<Model>(model_layers(config, shape),
                                   static_cast<std::uint64_t>(config.seed), device);
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
    // A GPU would be waited for to know it; the other way gives the same.
    if (targets.device().is_cpu() && asked.all().item<bool>()) {
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
