// What a job has reached: the loss and other measures that a person asks for first. Pure: JSON in,
// values and lines out. The main thread.
#pragma once

#include "job/base/json.hpp"
#include "job/cli/terminal.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// Of one rank's series: its newest finite value and the lowest and highest one; and whether
// something that is not finite came after them all.
struct Reached {
    std::optional<double> last;
    std::optional<double> lowest;
    std::optional<double> highest;
    std::string nonfinite{};  // what is newest, "NaN", "inf" or "-inf"; "" = finite
    std::optional<double>
        nonfinite_from{};  // x since which nothing was finite, where that is known
};

// The first rank's line of GET …/series.
Reached reached(const Json& series);

struct FinalValue {
    std::string metric;
    Reached reached;
};

// Of the answer of GET …/metrics: loss, then whatever is a loss or an accuracy of its own; 8 at
// most.
std::vector<std::string> metrics_of_interest(const Json& metrics);
// One line each: "loss  0.0971, lowest 0.0812", "loss  NaN since step 40, lowest 0.25". Nothing for
// what has no value.
std::vector<std::string> results_view(const Terminal& terminal,
                                      const std::vector<FinalValue>& values);

struct SweepRow {
    Json job;
    Reached loss;
};

// The jobs of a sweep: what differs, last and lowest loss; the lowest first, then those without
// a loss in their own order, at the end those whose newest loss is not finite.
std::vector<std::string> sweep_table(const Terminal& terminal, std::vector<SweepRow> rows);

}  // namespace lockstep::cli
