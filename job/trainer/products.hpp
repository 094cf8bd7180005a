// Products of matrices of floats on plain memory. By oneDNN, which Debian's LibTorch has for its
// convolutions, so that no further library is needed. LibTorch's own products go the same way, see
// products.cpp. In a build without oneDNN's header: by LibTorch and its BLAS, of which Debian's
// first one is the reference implementation, 10 times slower. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// A row-major matrix: `step` floats from one row to the next. `transposed`: its transpose is meant.
struct Factor {
    const float* data;
    std::int64_t step;
    bool transposed = false;
};

struct ProductShape {
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t inner;
};

enum class Onto : bool { replace, add };

// out = scale · left · right, or out + that, [rows, inner] × [inner, columns]; `step` floats from
// one row of out to the next. out is no part of the factors. Throws std::bad_alloc.
void multiply(ProductShape shape, float scale, Factor left, Factor right, float* out,
              std::int64_t step, Onto onto = Onto::replace);

// Whether that is oneDNN.
bool products_are_onednn();
// Who computes products: "oneDNN 2.6.3", or "BLAS" for what LibTorch is linked with.
std::string products_by();

}  // namespace lockstep
