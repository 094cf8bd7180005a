// The jobs of a sweep, seen together. Blocks; the main thread.
#pragma once

#include "job/cli/context.hpp"

#include <string>
#include <vector>

namespace lockstep::cli {

// Every job of the sweep whose first job `first` is.
Result<std::vector<Json>> jobs_of_sweep(Context& context, const std::string& first);
// A table of what each has reached, the lowest loss first, at most so many of them.
void print_sweep(Context& context, const std::vector<Json>& jobs, std::size_t lines);

}  // namespace lockstep::cli
