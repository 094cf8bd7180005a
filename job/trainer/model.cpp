#include "job/trainer/model.hpp"

#include "job/trainer/layers.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class MnistConvnet final : public Model {
  public:
    explicit MnistConvnet(const TrainConfig& config)
        : dropout_(config.dropout),
          parameters_({{"conv_1.kernel", {12, 1, 3, 3}, true},
                       {"norm_1.beta", {12}},
                       {"conv_2.kernel", {24, 12, 6, 6}, true},
                       {"norm_2.beta", {24}},
                       {"large_k.kernel", {32, 24, 6, 6}, true},
                       {"large_k.bias", {32}},
                       {"norm_3.beta", {32}},
                       {"dense_1.kernel", {256, 32}, true},
                       {"dense_1.bias", {256}},
                       {"dense_2.kernel", {10, 256}, true},
                       {"dense_2.bias", {10}}},
                      static_cast<std::uint64_t>(config.seed)) {
        std::int64_t total = 0;
        for (const std::int64_t channels : kChannels) {
            total += moments_size(channels);
        }
        buffers_ = at::zeros({total}, at::kFloat);
        std::int64_t offset = 0;
        for (const std::int64_t channels : kChannels) {
            moments_.push_back(buffers_.narrow(0, offset, moments_size(channels)));
            moments_.back().narrow(0, channels, channels).fill_(1.0);  // variances start at one
            offset += moments_size(channels);
        }
    }

    at::Tensor forward(const at::Tensor& images, const Pass& pass) override {
        const FlatParameters& p = parameters_;
        const at::Tensor none;
        at::Tensor x = conv_same(images, p[0], none, 1);
        x = norm(x, p[1], 0, pass);
        x = at::conv2d(x, p[2], none, /*stride=*/2);
        x = norm(x, p[3], 1, pass);
        x = conv_same(x, p[4], p[5], 2);
        x = norm(x, p[6], 2, pass);
        x = at::relu(dense(global_average(x), p[7], p[8]));
        if (pass.training && dropout_ > 0.0) {
            x = dropout(x, dropout_, pass.dropout_key);
        }
        return dense(x, p[9], p[10]);
    }

    FlatParameters& parameters() override { return parameters_; }
    std::span<float> buffers() override {
        return {buffers_.data_ptr<float>(), static_cast<std::size_t>(buffers_.numel())};
    }

  private:
    static constexpr std::int64_t kChannels[] = {12, 24, 32};

    at::Tensor norm(const at::Tensor& x, const at::Tensor& beta, std::size_t layer,
                    const Pass& pass) {
        return norm_relu(x, beta, moments_[layer], pass.batch_statistics);
    }

    double dropout_;
    FlatParameters parameters_;
    at::Tensor buffers_;
    std::vector<at::Tensor> moments_;  // views of buffers_, as norm_relu() takes them
};

class Mlp final : public Model {
  public:
    explicit Mlp(const TrainConfig& config)
        : dropout_(config.dropout),
          parameters_({{"dense_1.kernel", {256, 784}, true},
                       {"dense_1.bias", {256}},
                       {"dense_2.kernel", {10, 256}, true},
                       {"dense_2.bias", {10}}},
                      static_cast<std::uint64_t>(config.seed)) {}

    at::Tensor forward(const at::Tensor& images, const Pass& pass) override {
        const FlatParameters& p = parameters_;
        at::Tensor x = at::relu(dense(images.reshape({images.size(0), 784}), p[0], p[1]));
        if (pass.training && dropout_ > 0.0) {
            x = dropout(x, dropout_, pass.dropout_key);
        }
        return dense(x, p[2], p[3]);
    }

    FlatParameters& parameters() override { return parameters_; }
    std::span<float> buffers() override { return {}; }

  private:
    double dropout_;
    FlatParameters parameters_;
};

}  // namespace

std::unique_ptr<Model> make_model(const TrainConfig& config) {
    if (config.model == TrainModel::mlp) {
        return std::make_unique<Mlp>(config);
    }
    return std::make_unique<MnistConvnet>(config);
}

}  // namespace lockstep
