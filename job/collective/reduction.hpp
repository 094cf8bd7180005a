// Reductions of values in host memory, element by element. Half-precision values are reduced in
// single precision and rounded to the nearest, ties to even, each time.
// Pure functions: any thread.
#pragma once

#include "job/collective/communicator.hpp"

#include <cstddef>

namespace lockstep {

// out[i] = a[i] op b[i] for `count` values; `out` may be `a` or `b`.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);

// Of average it is the sum: divide() does the rest, once. A minimum or maximum of NaNs is
// unspecified.
ReduceFunction reduce_function(Dtype type, ReduceOp op);
// values[i] /= by. For f16, bf16, f32 and f64.
void divide(void* values, std::size_t count, Dtype type, std::int32_t by);

}  // namespace lockstep
