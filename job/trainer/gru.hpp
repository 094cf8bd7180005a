// A GRU in one pass forward and one back, where LibTorch makes a dozen tensors for each place.
#pragma once

#include <ATen/ATen.h>

namespace lockstep {

// PyTorch's GRU behind its products of the input: `inputs` [batch, length, 3 · width] floats with
// their bias, `state` [batch, width] before the first place, `kernel` [3 · width, width] and `bias`
// [3 · width] of the states; → the state after each place, [batch, length, width]. With gradients;
// any thread. Source: Cho et al.: Learning phrase representations using RNN encoder-decoder, 2014,
// with the reset gate behind the product.
at::Tensor gru_states(const at::Tensor& inputs, const at::Tensor& state, const at::Tensor& kernel,
                      const at::Tensor& bias);

}  // namespace lockstep
