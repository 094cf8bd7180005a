#include "job/trainer/flops.hpp"

#include "job/trainer/cuda_device.hpp"
#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

namespace lockstep {

TextCosts text_costs(const TrainConfig& config, const ModelShape& shape) {
    switch (config.model) {
        case TrainModel::gpt:
            return gpt_costs(shape);
        case TrainModel::seq2seq:
            return seq2seq_costs(shape);
        default:
            return {};
    }
}

double measured_peak_flops(at::Device device, at::ScalarType type) {
    const bool gpu = device.is_cuda();
    const std::int64_t side = gpu ? 8'192 : 512;
    constexpr int kRounds = 5;
    const at::NoGradGuard no_gradients;
    const at::TensorOptions options = at::TensorOptions{device}.dtype(type);
    // Of numbers as a network has them: on zeros and ones a GPU is faster.
    const at::Tensor a = at::rand({side, side}, options) - 0.5;
    const at::Tensor b = at::rand({side, side}, options) - 0.5;
    const at::Tensor none = at::zeros({side}, options);
    const auto wait = [gpu] { return !gpu || cuda_device::finished([] { return false; }); };
    wait();
    double best = 1e9;
    for (int round = 0; round < kRounds; ++round) {
        const auto start = std::chrono::steady_clock::now();
        const at::Tensor product = gpu ? at::matmul(a, b) : dense(a, b, none);
        wait();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
    }
    const auto n = static_cast<double>(side);
    return 2.0 * n * n * n / best;
}

}  // namespace lockstep
