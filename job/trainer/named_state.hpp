// A network's parameters and moving averages by name, as safetensors files have them: what a run
// leaves for other programs (train.export) and what it may begin with (train.weights).
// Pure functions on flat buffers in a checkpoint's order; any thread.
#pragma once

#include "job/trainer/model.hpp"
#include "job/trainer/safetensors.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Row-major, convolutions [out, in, height, width], as PyTorch has them. Moving averages of
// norm_layer() come as they are used: without the weight of where they started.
std::vector<NamedTensor> named_state(const std::vector<Layer>& network,
                                     std::span<const float> parameters,
                                     std::span<const float> buffers);

struct ImportedState {
    std::size_t taken = 0;            // tensors
    std::vector<std::string> fresh;   // of the last layer: absent, or made for other classes
    std::vector<std::string> unused;  // in the file, not in the network
};

// The opposite: from a file of F64, F32, F16 or BF16. What the last layer with parameters lacks, or
// has in another shape, stays as it was. Nothing is changed on failure.
// invalid: a tensor is missing, has another shape or a type without fractions; the message names it
// and how many more there are.
Result<ImportedState> import_state(const TensorFile& file, const std::vector<Layer>& network,
                                   std::span<float> parameters, std::span<float> buffers);

}  // namespace lockstep
