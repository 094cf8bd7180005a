// The jobs of a sweep, seen together. Blocks; the main thread.
#pragma once

#include "job/cli/context.hpp"
#include "job/cli/results.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// Every job of the sweep whose first job `first` is.
Result<std::vector<Json>> jobs_of_sweep(Context& context, const std::string& first);
// What rank 0 of the job has reached in the metric; none where the daemon does not tell.
std::optional<Reached> read_reached(Context& context, const std::string& id,
                                    const std::string& metric);
// A table of what each has reached, the lowest loss first, at most so many of them.
void print_sweep(Context& context, const std::vector<Json>& jobs, std::size_t lines);

}  // namespace lockstep::cli
