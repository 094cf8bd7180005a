#include "job/trainer/text_kernels.hpp"

#include "job/trainer/clones.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace lockstep::kernels {
namespace {

constexpr std::size_t kTextVector = 16;  // floats, as in kernels.cpp

// e^x to 1e-7 of it, in steps that the vectorizer takes; source: Moshier: Cephes, expf.c. What a
// float does not hold ends where floats do.
inline float exp_of(float x) {
    constexpr float kLeast = -87.3F;
    constexpr float kMost = 88.3F;
    constexpr float kRound = 12'582'912.0F;  // 1.5 · 2²³: beyond it floats are whole numbers
    x = x < kLeast ? kLeast : x;
    x = x > kMost ? kMost : x;
    const float n = (x * 1.44269504F + kRound) - kRound;
    const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23U;
    return (p * r * r + r + 1.0F) * std::bit_cast<float>(exponent);
}

// Φ(x) and the density there.
struct Normal {
    float below;
    float density;
};
inline Normal normal_at(float x) {
    constexpr float kRootHalf = 0.70710678F;
    constexpr float kRootTwoPi = 0.39894228F;  // 1 / √(2π)
    const float away = std::fabs(x) * kRootHalf;
    const float t = 1.0F / (1.0F + 0.3275911F * away);
    const float e = exp_of(-away * away);
    float p = 1.061405429F;
    p = p * t - 1.453152027F;
    p = p * t + 1.421413741F;
    p = p * t - 0.284496736F;
    p = p * t + 0.254829592F;
    const float tail = 0.5F * p * t * e;
    return {x < 0.0F ? tail : 1.0F - tail, kRootTwoPi * e};
}

// Where e^x ends, so do these: at 0, 1 and −1.
inline float sigmoid_of(float x) {
    return 1.0F / (1.0F + exp_of(-x));
}
inline float tanh_of(float x) {
    return 1.0F - 2.0F / (1.0F + exp_of(2.0F * x));
}

LOCKSTEP_CLONES
void gru_row(const float* __restrict in, const float* __restrict bias,
             const float* __restrict before, float* __restrict gates, float* __restrict fresh,
             float* __restrict state, std::size_t width) {
    for (std::size_t j = 0; j < width; ++j) {
        const float reset = sigmoid_of(in[j] + gates[j] + bias[j]);
        const float keep = sigmoid_of(in[width + j] + gates[width + j] + bias[width + j]);
        const float old = gates[2 * width + j] + bias[2 * width + j];
        const float now = tanh_of(in[2 * width + j] + reset * old);
        gates[j] = reset;
        gates[width + j] = keep;
        gates[2 * width + j] = old;
        fresh[j] = now;
        state[j] = now + keep * (before[j] - now);
    }
}

LOCKSTEP_CLONES
void gru_row_gradient(const float* __restrict before, const float* __restrict gates,
                      const float* __restrict fresh, const float* __restrict upstream,
                      float* __restrict carry, float* __restrict in_gradient,
                      float* __restrict gates_gradient, std::size_t width) {
    for (std::size_t j = 0; j < width; ++j) {
        const float reset = gates[j];
        const float keep = gates[width + j];
        const float now = fresh[j];
        const float g = upstream[j] + carry[j];
        const float g_now = g * (1.0F - keep) * (1.0F - now * now);
        const float g_reset = g_now * gates[2 * width + j] * reset * (1.0F - reset);
        const float g_keep = g * (before[j] - now) * keep * (1.0F - keep);
        in_gradient[j] = g_reset;
        in_gradient[width + j] = g_keep;
        in_gradient[2 * width + j] = g_now;
        gates_gradient[j] = g_reset;
        gates_gradient[width + j] = g_keep;
        gates_gradient[2 * width + j] = g_now * reset;
        carry[j] = g * keep;
    }
}

}  // namespace

void gru_place(const GruPlace& p) {
    for (std::size_t row = 0; row < p.rows; ++row) {
        gru_row(p.in + row * p.in_step, p.bias, p.before + row * p.width,
                p.gates + row * 3 * p.width, p.fresh + row * p.width, p.state + row * p.state_step,
                p.width);
    }
}

void gru_place_gradient(const GruPlaceBack& p) {
    for (std::size_t row = 0; row < p.rows; ++row) {
        gru_row_gradient(p.before + row * p.width, p.gates + row * 3 * p.width,
                         p.fresh + row * p.width, p.upstream + row * p.upstream_step,
                         p.carry + row * p.width, p.in_gradient + row * p.in_step,
                         p.gates_gradient + row * 3 * p.width, p.width);
    }
}

LOCKSTEP_CLONES
void causal_softmax(float* scores, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) {
        float* row = scores + i * length;
        const std::size_t count = i + 1;
        const float largest = *std::max_element(row, row + count);
        for (std::size_t j = 0; j < count; ++j) {
            row[j] = exp_of(row[j] - largest);
        }
        float total[kTextVector] = {};
        std::size_t at = 0;
        for (; at + kTextVector <= count; at += kTextVector) {
            for (std::size_t j = 0; j < kTextVector; ++j) {
                total[j] += row[at + j];
            }
        }
        for (std::size_t j = 0; at + j < count; ++j) {
            total[j] += row[at + j];
        }
        const float scale = 1.0F / std::accumulate(total, total + kTextVector, 0.0F);
        for (std::size_t j = 0; j < count; ++j) {
            row[j] *= scale;
        }
        std::fill(row + count, row + length, 0.0F);
    }
}

LOCKSTEP_CLONES
void softmax_gradient(const float* __restrict weights, float* __restrict gradient, std::size_t rows,
                      std::size_t length, float scale) {
    for (std::size_t i = 0; i < rows; ++i) {
        const float* weight = weights + i * length;
        float* g = gradient + i * length;
        float total[kTextVector] = {};
        std::size_t at = 0;
        for (; at + kTextVector <= length; at += kTextVector) {
            for (std::size_t j = 0; j < kTextVector; ++j) {
                total[j] += weight[at + j] * g[at + j];
            }
        }
        for (std::size_t j = 0; at + j < length; ++j) {
            total[j] += weight[at + j] * g[at + j];
        }
        const float mean = std::accumulate(total, total + kTextVector, 0.0F);
        for (std::size_t j = 0; j < length; ++j) {
            g[j] = scale * weight[j] * (g[j] - mean);
        }
    }
}

LOCKSTEP_CLONES
void gelu(const float* __restrict x, float* __restrict y, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        y[i] = x[i] * normal_at(x[i]).below;
    }
}

LOCKSTEP_CLONES
void gelu_gradient(const float* __restrict x, const float* __restrict gradient,
                   float* __restrict out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const Normal at = normal_at(x[i]);
        out[i] = gradient[i] * (at.below + x[i] * at.density);
    }
}

}  // namespace lockstep::kernels
