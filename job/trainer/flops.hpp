// How much a network computes and how much a rank can: what MFU is made of (Chowdhery et al.: PaLM,
// 2022, appendix B). Training thread.
#pragma once

#include "job/trainer/model.hpp"

#include <cstdint>

namespace lockstep {

struct TextCosts {
    std::int64_t tokens = 0;  // places of a sample, those that only pad it included; 0: no text
    double flops = 0.0;       // of its forward and backward: products, not what is done by element
};
// Of one sample. Only gpt and seq2seq read text.
TextCosts text_costs(const TrainConfig& config, const ModelShape& shape);

// Floating point operations a second that this rank reaches with products of 512 × 512 floats, on a
// GPU with products of 8192 × 8192 of `type`: what MFU takes for the device's peak, which no data
// sheet says for all CPUs, and for none as it is clocked here. Takes about 20 ms.
double measured_peak_flops(at::Device device = at::kCPU, at::ScalarType type = at::kFloat);

}  // namespace lockstep
