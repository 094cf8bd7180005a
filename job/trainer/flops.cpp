#include "job/trainer/flops.hpp"

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

double measured_peak_flops() {
    constexpr std::int64_t kSide = 512;
    constexpr int kRounds = 5;
    const at::NoGradGuard no_gradients;
    const at::Tensor a = at::ones({kSide, kSide});
    const at::Tensor b = at::ones({kSide, kSide});
    const at::Tensor none = at::zeros({kSide});
    double best = 1e9;
    for (int round = 0; round < kRounds; ++round) {
        const auto start = std::chrono::steady_clock::now();
        dense(a, b, none);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
    }
    return 2.0 * kSide * kSide * kSide / best;
}

}  // namespace lockstep
