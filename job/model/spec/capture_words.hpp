// What the readers of printed losses share; for job/model/spec/capture*.cpp and loss_table.cpp
// only.
#pragma once

#include "job/base/text.hpp"

#include <re2/re2.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// A whole number, also with Python's format ":,": 12,345. The commas of "10, 200" and "0,500" are
// others.
#define LOCKSTEP_WHOLE R"((?:[1-9]\d{0,2}(?:,\d{3})+\b|\d+))"
// A number as Python, C and numpy print it, also nan and inf.
#define LOCKSTEP_NUM              \
    R"(([-+]?(?:)" LOCKSTEP_WHOLE \
    R"(\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)))"
// The same as the repr() of what holds it: tensor(0.5, grad_fn=…), Array(0.5, dtype=float32),
// np.float32(0.5), tf.Tensor(0.5, shape=(), …), [0.5]
#define LOCKSTEP_VALUE \
    R"((?:[a-z_.]{0,20}(?:tensor|array|float(?:16|32|64)?)\s*\(\s*)?\[*\s*)" LOCKSTEP_NUM

namespace lockstep {

// Quiet, with bounded memory. `latin1`: any bytes, and any case; for a pattern of ours.
re2::RE2::Options capture_options(bool latin1);

inline std::string without_commas(std::string_view number) {
    std::string out{number};
    out.erase(std::remove(out.begin(), out.end(), ','), out.end());
    return out;
}
// Of what LOCKSTEP_WHOLE and LOCKSTEP_NUM have found.
inline std::optional<std::int64_t> to_count(std::string_view whole) {
    return to_int(without_commas(whole));
}
inline std::optional<double> to_loss(std::string_view number) {
    return to_double(without_commas(number));
}

}  // namespace lockstep
