// How a helper program of the pre-flight ended, in words for a table's line: the tests of GPUs, of
// pairs of nodes and of NCCL say it alike. Pure functions; any thread.
#pragma once

#include "job/async/subprocess.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <cstddef>
#include <string>

namespace lockstep {

struct HelperLimits {
    std::chrono::seconds time{0};  // that it had
    std::size_t words = 0;         // most bytes of what it said itself
};

// "exit code 3, in: setup: the last it has said", "signal 9", "not over within 20 s". `stage` is
// what it was at; "" = it has not said.
std::string helper_end(const ProcessResult& result, const std::string& stage,
                       const HelperLimits& limits);

// What kept it from starting; "" for a program that is not installed, which is no fault of the
// node.
std::string helper_unstarted(const Error& error, const HelperLimits& limits);

}  // namespace lockstep
