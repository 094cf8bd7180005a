// Loops of the models of texts, as kernels.hpp has those of the others: on plain memory, without
// LibTorch, compiled for several processors. Pure functions; any thread. Pointers do not overlap;
// counts are in elements.
#pragma once

#include <cstddef>

namespace lockstep::kernels {

// Each of `length` rows of as many scores becomes weights: row i those of its first i + 1 scores,
// whose sum is 1, and 0 for the others.
void causal_softmax(float* scores, std::size_t length);
// The gradient of `rows` such rows' scores times `scale`, in place of that of their weights.
void softmax_gradient(const float* weights, float* gradient, std::size_t rows, std::size_t length,
                      float scale);

// y = x · Φ(x), Φ the normal distribution's, to 2e-7 of x; and out = gradient · y'.
// Source: Hendrycks, Gimpel: Gaussian error linear units, 2016; the error function by Abramowitz,
// Stegun: Handbook of mathematical functions, 1964, 7.1.26.
void gelu(const float* x, float* y, std::size_t count);
void gelu_gradient(const float* x, const float* gradient, float* out, std::size_t count);

// One place of a GRU, for `rows` texts of `width` numbers: reset = σ(in₀ + gates₀ + bias₀), keep =
// σ(in₁ + gates₁ + bias₁), fresh = tanh(in₂ + reset · (gates₂ + bias₂)), state = fresh + keep ·
// (before − fresh). `in` and `gates` hold three blocks of `width` in each row; gates become reset,
// keep and gates₂ + bias₂. `…_step`: from row to row, where rows do not follow on each other.
struct GruPlace {
    std::size_t rows;
    std::size_t width;
    const float* in;
    std::size_t in_step;
    const float* bias;
    const float* before;
    float* gates;
    float* fresh;
    float* state;
    std::size_t state_step;
};
void gru_place(const GruPlace& place);
// And back. `carry` is the gradient of this place's state from later ones; it becomes what the
// place before has of it without its products. gates_gradient has the gradient of gates as they
// came, in_gradient that of in.
struct GruPlaceBack {
    std::size_t rows;
    std::size_t width;
    const float* before;
    const float* gates;
    const float* fresh;
    const float* upstream;  // of the state, from outside
    std::size_t upstream_step;
    float* carry;
    float* in_gradient;
    std::size_t in_step;
    float* gates_gradient;
};
void gru_place_gradient(const GruPlaceBack& place);

}  // namespace lockstep::kernels
