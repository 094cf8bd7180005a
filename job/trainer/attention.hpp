// A transformer's own layers in one pass each, where LibTorch 1.13 makes a tensor for each step.
// Pure functions on tensors, with gradients; any thread.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace lockstep {

// Every place of a text looks at itself and at those before it, with `heads` heads: `all` is
// [batch, length, 3 · width] floats, for each place its query, key and value; → [batch, length,
// width]. Source: Vaswani et al.: Attention is all you need, 2017, §3.2. Not of floats on the CPU:
// by LibTorch's operations, in any type.
at::Tensor causal_attention(const at::Tensor& all, std::int64_t heads);

// x · Φ(x).
at::Tensor fused_gelu(const at::Tensor& x);

}  // namespace lockstep
