#include "job/trainer/kernels.hpp"

#include "job/base/check.hpp"
#include "job/trainer/clones.hpp"
#include "job/trainer/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace lockstep::kernels {
namespace {

constexpr std::size_t kVector = 16;        // floats; one AVX-512 register, two AVX2 ones
constexpr std::size_t kLanesMax = 16'384;  // 1024 channels in the worst case
// Rows of lanes summed in float before the sum goes to double: 64 additions lose < 6 bits.
constexpr std::size_t kBlock = 64;

// Where a resized line's place lies between two of the line it is made of.
struct Between {
    std::size_t low;
    std::size_t high;
    float part;  // of high
};

Between between(std::size_t place, std::size_t to, std::size_t from) {
    const float middle =
        (static_cast<float>(place) + 0.5F) * static_cast<float>(from) / static_cast<float>(to) -
        0.5F;
    const float at = std::max(middle, 0.0F);
    const std::size_t low = std::min(static_cast<std::size_t>(at), from - 1);
    return {low, std::min(low + 1, from - 1), at - static_cast<float>(low)};
}

// a + (b − a) · part.
LOCKSTEP_CLONES
void blend(const float* __restrict a, const float* __restrict b, float* __restrict out,
           std::size_t count, float part) {
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = a[i] + (b[i] - a[i]) * part;
    }
}

// The places along one side, from `begin` up to `end`, of the three of window `number` that are in
// an image of `size`.
struct Span {
    std::size_t begin;
    std::size_t end;
};

Span window(std::size_t number, std::size_t size) {
    const std::size_t middle = 2 * number;
    return {middle == 0 ? 0 : middle - 1, std::min(middle + 2, size)};
}

// Pixel `place` of a window, where it is larger than what is there.
[[gnu::always_inline]] inline void keep_larger(const float* __restrict x, float* __restrict best,
                                               std::uint8_t* __restrict which, std::size_t count,
                                               std::uint8_t place) {
    for (std::size_t i = 0; i < count; ++i) {
        const float value = x[i];
        const bool takes = value > best[i] || std::isnan(value);
        best[i] = takes ? value : best[i];
        which[i] = takes ? place : which[i];
    }
}

// `first`: nothing is there yet.
[[gnu::always_inline]] inline void add_chosen(const std::uint8_t* __restrict which,
                                              const float* __restrict gradient,
                                              float* __restrict out, std::size_t count,
                                              std::uint8_t place, bool first) {
    if (first) {
        for (std::size_t i = 0; i < count; ++i) {
            out[i] = which[i] == place ? gradient[i] : 0.0F;
        }
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        out[i] += which[i] == place ? gradient[i] : 0.0F;
    }
}

}  // namespace

// A window begins with 0 and no pixel: only what is larger than 0 is kept, so the largest pixel and
// the ReLU behind it are one.
LOCKSTEP_CLONES
void pool_relu(const float* x, const Images& images, float* y, std::uint8_t* place) {
    const std::size_t channels = images.channels;
    for (std::size_t image = 0; image < images.count; ++image) {
        const float* from = x + image * images.height * images.width * channels;
        for (std::size_t row = 0; row < (images.height + 1) / 2; ++row) {
            const Span rows = window(row, images.height);
            for (std::size_t column = 0; column < (images.width + 1) / 2; ++column) {
                const Span columns = window(column, images.width);
                std::fill_n(y, channels, 0.0F);
                std::fill_n(place, channels, kNoPixel);
                for (std::size_t at = rows.begin; at < rows.end; ++at) {
                    for (std::size_t over = columns.begin; over < columns.end; ++over) {
                        const std::size_t number = (at + 1 - 2 * row) * 3 + over + 1 - 2 * column;
                        keep_larger(from + (at * images.width + over) * channels, y, place,
                                    channels, static_cast<std::uint8_t>(number));
                    }
                }
                y += channels;
                place += channels;
            }
        }
    }
}

// A pixel is in one window along a side if its number is even, else in two, or one at the end.
LOCKSTEP_CLONES
void pool_relu_gradient(const std::uint8_t* place, const float* gradient, const Images& images,
                        float* out) {
    const std::size_t channels = images.channels;
    const std::size_t rows = (images.height + 1) / 2;
    const std::size_t columns = (images.width + 1) / 2;
    const auto windows = [](std::size_t pixel, std::size_t count) -> Span {
        return {pixel / 2, std::min((pixel + 1) / 2 + 1, count)};
    };
    for (std::size_t image = 0; image < images.count; ++image) {
        for (std::size_t row = 0; row < images.height; ++row) {
            const Span high = windows(row, rows);
            for (std::size_t column = 0; column < images.width; ++column) {
                const Span wide = windows(column, columns);
                bool first = true;
                for (std::size_t at = high.begin; at < high.end; ++at) {
                    for (std::size_t over = wide.begin; over < wide.end; ++over) {
                        const std::size_t window =
                            ((image * rows + at) * columns + over) * channels;
                        const std::size_t number = (row + 1 - 2 * at) * 3 + column + 1 - 2 * over;
                        add_chosen(place + window, gradient + window, out, channels,
                                   static_cast<std::uint8_t>(number), first);
                        first = false;
                    }
                }
                out += channels;
            }
        }
    }
}

// Each row of pixels is widened once; the rows between two are blends of them.
void resize(const std::uint8_t* in, std::size_t height, std::size_t width, std::size_t channels,
            float* out, std::size_t rows, std::size_t columns) {
    constexpr float kScale = 1.0F / 255.0F;
    constexpr std::size_t kNone = SIZE_MAX;
    std::vector<Between> places(columns);
    for (std::size_t x = 0; x < columns; ++x) {
        places[x] = between(x, columns, width);
    }
    const std::size_t line = columns * channels;
    std::array<std::vector<float>, 2> wide{std::vector<float>(line), std::vector<float>(line)};
    std::array<std::size_t, 2> holds{kNone, kNone};  // row `y` is kept in place y mod 2
    const auto widened = [&](std::size_t y) -> const float* {
        std::vector<float>& to = wide[y % 2];
        if (holds[y % 2] != y) {
            holds[y % 2] = y;
            const std::uint8_t* from = in + y * width * channels;
            for (std::size_t x = 0; x < columns; ++x) {
                for (std::size_t c = 0; c < channels; ++c) {
                    const float low = from[places[x].low * channels + c];
                    const float high = from[places[x].high * channels + c];
                    to[x * channels + c] = (low + (high - low) * places[x].part) * kScale;
                }
            }
        }
        return to.data();
    };
    for (std::size_t y = 0; y < rows; ++y) {
        const Between place = between(y, rows, height);
        blend(widened(place.low), widened(place.high), out + y * line, line, place.part);
    }
}

std::size_t lanes(std::size_t channels) {
    const std::size_t count = std::lcm(channels, kVector);
    LOCKSTEP_CHECK(count <= kLanesMax);
    return count;
}

LOCKSTEP_CLONES
void rescale(const std::uint8_t* __restrict in, float* __restrict out, std::size_t count) {
    constexpr float kScale = 1.0F / 255.0F;
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(in[i]) * kScale;
    }
}

LOCKSTEP_CLONES
void lane_sums(const float* __restrict x, std::size_t count, std::size_t lanes,
               const float* __restrict shift, double* __restrict sum, double* __restrict squares) {
    std::fill_n(sum, lanes, 0.0);
    std::fill_n(squares, lanes, 0.0);
    for (std::size_t lane = 0; lane < lanes; lane += kVector) {
        const std::size_t width = kVector;
        std::size_t at = lane;
        while (at < count) {
            float total[kVector] = {};
            float square[kVector] = {};
            std::size_t row = 0;
            for (; row < kBlock && at + width <= count; ++row, at += lanes) {
                for (std::size_t j = 0; j < kVector; ++j) {
                    const float value = x[at + j] - shift[lane + j];
                    total[j] += value;
                    square[j] += value * value;
                }
            }
            if (row == 0) {  // the last, incomplete row of lanes
                for (std::size_t j = 0; at + j < count; ++j) {
                    const float value = x[at + j] - shift[lane + j];
                    total[j] = value;
                    square[j] = value * value;
                }
                at = count;
            }
            for (std::size_t j = 0; j < kVector; ++j) {
                sum[lane + j] += static_cast<double>(total[j]);
                squares[lane + j] += static_cast<double>(square[j]);
            }
        }
    }
}

LOCKSTEP_CLONES
void scale_relu(const float* __restrict x, float* __restrict y, std::size_t count,
                std::size_t lanes, const float* __restrict scale, const float* __restrict offset) {
    std::size_t at = 0;
    for (; at + lanes <= count; at += lanes) {
        for (std::size_t lane = 0; lane < lanes; lane += kVector) {
            for (std::size_t j = 0; j < kVector; ++j) {
                const float value = x[at + lane + j] * scale[lane + j] + offset[lane + j];
                y[at + lane + j] = value > 0.0F ? value : 0.0F;
            }
        }
    }
    for (std::size_t j = 0; at + j < count; ++j) {
        const float value = x[at + j] * scale[j] + offset[j];
        y[at + j] = value > 0.0F ? value : 0.0F;
    }
}

LOCKSTEP_CLONES
void relu_gradient_sums(const float* __restrict x, const float* __restrict gradient,
                        std::size_t count, std::size_t lanes, const float* __restrict scale,
                        const float* __restrict offset, const float* __restrict mean,
                        double* __restrict sum, double* __restrict product) {
    std::fill_n(sum, lanes, 0.0);
    std::fill_n(product, lanes, 0.0);
    for (std::size_t lane = 0; lane < lanes; lane += kVector) {
        std::size_t at = lane;
        while (at < count) {
            float total[kVector] = {};
            float with_x[kVector] = {};
            std::size_t row = 0;
            for (; row < kBlock && at + kVector <= count; ++row, at += lanes) {
                for (std::size_t j = 0; j < kVector; ++j) {
                    const float value = x[at + j];
                    const float upstream = gradient[at + j];  // always: masked loads are slow
                    const float out = value * scale[lane + j] + offset[lane + j];
                    const float g = out > 0.0F ? upstream : 0.0F;
                    total[j] += g;
                    with_x[j] += g * (value - mean[lane + j]);
                }
            }
            if (row == 0) {
                for (std::size_t j = 0; at + j < count; ++j) {
                    const float out = x[at + j] * scale[lane + j] + offset[lane + j];
                    total[j] = out > 0.0F ? gradient[at + j] : 0.0F;
                    with_x[j] = total[j] * (x[at + j] - mean[lane + j]);
                }
                at = count;
            }
            for (std::size_t j = 0; j < kVector; ++j) {
                sum[lane + j] += static_cast<double>(total[j]);
                product[lane + j] += static_cast<double>(with_x[j]);
            }
        }
    }
}

LOCKSTEP_CLONES
void relu_gradient(const float* __restrict x, const float* __restrict gradient,
                   float* __restrict out, std::size_t count, std::size_t lanes,
                   const float* __restrict scale, const float* __restrict offset,
                   const float* __restrict slope, const float* __restrict constant) {
    std::size_t at = 0;
    for (; at + lanes <= count; at += lanes) {
        for (std::size_t lane = 0; lane < lanes; lane += kVector) {
            for (std::size_t j = 0; j < kVector; ++j) {
                const std::size_t k = lane + j;
                const float value = x[at + k];
                const float upstream = gradient[at + k];
                const float g = value * scale[k] + offset[k] > 0.0F ? upstream : 0.0F;
                out[at + k] = g * scale[k] + value * slope[k] + constant[k];
            }
        }
    }
    for (std::size_t j = 0; at + j < count; ++j) {
        const float value = x[at + j];
        const float g = value * scale[j] + offset[j] > 0.0F ? gradient[at + j] : 0.0F;
        out[at + j] = g * scale[j] + value * slope[j] + constant[j];
    }
}

LOCKSTEP_CLONES
void adam(float* __restrict parameter, const float* __restrict gradient, float* __restrict first,
          float* __restrict second, std::size_t count, const AdamStep& step) {
    const AdamStep s = step;
    for (std::size_t i = 0; i < count; ++i) {
        const float g = gradient[i] * s.gradient_scale + s.decay * parameter[i];
        const float m = first[i] + (1.0F - s.beta1) * (g - first[i]);
        const float v = s.beta2 * second[i] + (1.0F - s.beta2) * g * g;
        first[i] = m;
        second[i] = v;
        parameter[i] = parameter[i] * s.keep -
                       s.step_size * m / (std::sqrt(v) * s.inverse_root_second + s.epsilon);
    }
}

LOCKSTEP_CLONES
void adam_direction(const float* __restrict parameter, const float* __restrict gradient,
                    float* __restrict first, float* __restrict second, float* __restrict direction,
                    std::size_t count, const AdamStep& step) {
    const AdamStep s = step;
    for (std::size_t i = 0; i < count; ++i) {
        const float g = gradient[i] * s.gradient_scale;
        const float m = first[i] + (1.0F - s.beta1) * (g - first[i]);
        const float v = s.beta2 * second[i] + (1.0F - s.beta2) * g * g;
        first[i] = m;
        second[i] = v;
        direction[i] = s.step_size * m / (std::sqrt(v) * s.inverse_root_second + s.epsilon) +
                       s.decay * parameter[i];
    }
}

LOCKSTEP_CLONES
void add_scaled(float* __restrict y, const float* __restrict x, std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) {
        y[i] += factor * x[i];
    }
}

LOCKSTEP_CLONES
void sgd(float* __restrict parameter, const float* __restrict gradient, float* __restrict velocity,
         std::size_t count, const SgdStep& step) {
    const SgdStep s = step;
    for (std::size_t i = 0; i < count; ++i) {
        velocity[i] =
            s.momentum * velocity[i] + gradient[i] * s.gradient_scale + s.decay * parameter[i];
        parameter[i] -= s.rate * velocity[i];
    }
}

LOCKSTEP_CLONES
double sum_of_squares(const float* x, std::size_t count) {
    float total[kVector] = {};
    double sum = 0.0;
    std::size_t at = 0;
    for (; at + kVector <= count; at += kVector) {
        for (std::size_t j = 0; j < kVector; ++j) {
            total[j] += x[at + j] * x[at + j];
        }
    }
    for (const float part : total) {
        sum += static_cast<double>(part);
    }
    for (; at < count; ++at) {
        sum += static_cast<double>(x[at]) * static_cast<double>(x[at]);
    }
    return sum;
}

LOCKSTEP_CLONES
void dropout_mask(float* __restrict mask, std::size_t count, std::uint64_t key, float rate) {
    const float keep = 1.0F / (1.0F - rate);
    const auto limit = static_cast<std::uint32_t>(static_cast<double>(rate) * 4294967296.0);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t hash = Random::mix(key + (i + 1) * 0x9E3779B97F4A7C15ULL);
        mask[i] = static_cast<std::uint32_t>(hash >> 32U) < limit ? 0.0F : keep;
    }
}

}  // namespace lockstep::kernels
