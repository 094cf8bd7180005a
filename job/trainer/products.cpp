#include "job/trainer/products.hpp"

#ifdef LOCKSTEP_ONEDNN
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#else
#include <ATen/ATen.h>
#endif

namespace lockstep {

bool products_are_onednn() {
#ifdef LOCKSTEP_ONEDNN
    return true;
#else
    return false;
#endif
}

#ifdef LOCKSTEP_ONEDNN

void multiply(ProductShape shape, float scale, Factor left, Factor right, float* out,
              std::int64_t step, Onto onto) {
    // What can fail with factors that are there is the memory in which it packs them.
    if (dnnl_sgemm(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', shape.rows,
                   shape.columns, shape.inner, scale, left.data, left.step, right.data, right.step,
                   onto == Onto::add ? 1.0F : 0.0F, out, step) != dnnl_success) {
        throw std::bad_alloc{};
    }
}

std::string products_by() {
    const dnnl_version_t* version = dnnl_version();
    return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch);
}

#else

void multiply(ProductShape shape, float scale, Factor left, Factor right, float* out,
              std::int64_t step, Onto onto) {
    const at::NoGradGuard no_gradients;
    const auto matrix = [](const float* data, std::int64_t rows, std::int64_t columns,
                           std::int64_t from_row_to_row) {
        return at::from_blob(const_cast<float*>(data), {rows, columns}, {from_row_to_row, 1},
                             at::kFloat);
    };
    const auto factor = [&](Factor f, std::int64_t rows, std::int64_t columns) {
        return f.transposed ? matrix(f.data, columns, rows, f.step).t()
                            : matrix(f.data, rows, columns, f.step);
    };
    at::Tensor to = matrix(out, shape.rows, shape.columns, step);
    at::addmm_out(to, to, factor(left, shape.rows, shape.inner),
                  factor(right, shape.inner, shape.columns), onto == Onto::add ? 1.0 : 0.0, scale);
}

std::string products_by() {
    return "BLAS";
}

#endif

}  // namespace lockstep

#ifdef LOCKSTEP_ONEDNN
// The program's own symbols come before those of its libraries: LibTorch, which calls BLAS by this
// name, gets oneDNN. BLAS matrices are column by column: the transposes of oneDNN's.
// NOLINTNEXTLINE(readability-identifier-naming): the name is BLAS's
extern "C" __attribute__((visibility("default"))) void sgemm_(
    const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
    const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
    const float* beta, float* c, const int* ldc) {
    if (*m <= 0 || *n <= 0) {
        return;
    }
    if (*k == 0) {  // nothing is added, and oneDNN would leave c
        for (std::ptrdiff_t column = 0; column < *n; ++column) {
            float* first = c + column * *ldc;
            std::transform(first, first + *m, first,
                           [&](float value) { return *beta == 0.0F ? 0.0F : *beta * value; });
        }
        return;
    }
    const auto known = [](char how) { return how == 'N' || how == 'n' ? 'N' : 'T'; };
    if (dnnl_sgemm(known(*trans_b), known(*trans_a), *n, *m, *k, *alpha, b, *ldb, a, *lda, *beta, c,
                   *ldc) != dnnl_success) {
        // BLAS has no way to say so, and Fortran none to let an exception through.
        std::fputs("lockstep-train: no memory for a product of matrices\n", stderr);
        std::abort();
    }
}
#endif
