// Slurm's way of writing many host names, `rack[0-1]_blade[00-03],login1`: expand and compress.
// The order is Slurm's: names stay where they were written, and of several groups in one name the
// last counts fastest, then the first, then the second; so the n-th name of a job's list is its
// SLURM_NODEID n. Grammar: scontrol(1), "show hostnames", and what that prints (Slurm 22.05).
// Pure; any thread.
#pragma once

#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// All names, in order, repeated ones repeated. Empty text is no names. invalid, with the byte
// (from 0): brackets that do not match or nest, an empty or descending range, a name with a
// character no host has, more than limits::kHostlistNames names.
Result<std::vector<std::string>> expand_hostlist(std::string_view text);

// The names as a short hostlist that expands to exactly the same names in the same order: runs
// that ascend by one and differ only in the digits at their end share one bracket. Names that end
// in no digit are written out: Slurm 22.05 refuses text behind the last bracket, though
// expand_hostlist takes it.
std::string compress_hostlist(std::span<const std::string> names);

}  // namespace lockstep
