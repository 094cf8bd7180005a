// What the readers of printed losses share; for job/model/spec/capture*.cpp and loss_table.cpp
// only.
#pragma once

#include <re2/re2.h>

// A number as Python, C and numpy print it, also nan and inf.
#define LOCKSTEP_NUM \
    R"(([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)))"
// The same as the repr() of what holds it: tensor(0.5, grad_fn=…), Array(0.5, dtype=float32),
// np.float32(0.5), tf.Tensor(0.5, shape=(), …), [0.5]
#define LOCKSTEP_VALUE \
    R"((?:[a-z_.]{0,20}(?:tensor|array|float(?:16|32|64)?)\s*\(\s*)?\[*\s*)" LOCKSTEP_NUM

namespace lockstep {

// Quiet, with bounded memory. `latin1`: any bytes, and any case; for a pattern of ours.
re2::RE2::Options capture_options(bool latin1);

}  // namespace lockstep
