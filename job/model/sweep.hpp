// A sweep: one document, many jobs. Every combination of the parameters' values is a job of its own
// (not a task of a Slurm job array): it is accepted, submitted exactly once, followed, cancelled
// and explained like any other, on every scheduler; a task of an array shares its script and its
// submission with all others. Plain values and pure functions; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/spec.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct SweepPoint {
    Json parameters;  // {"train.learning_rate": 0.1, …}: what differs
    JobSpec spec;
};

struct Sweep {
    std::int32_t max_parallel = 0;   // jobs of it that may be unfinished at once; 0 = all
    std::vector<SweepPoint> points;  // the last parameter changes fastest; never empty
};

// Of which sweep a job is one; its id is that of the sweep's first job.
struct SweepMember {
    std::string id;
    std::int32_t index = 0;
    std::int32_t size = 0;
    std::int32_t max_parallel = 0;
    Json parameters = Json::object();
};

// Whether the document asks for a sweep: `sweep` is there and not empty.
bool has_sweep(const Json& document);

// {"parameters": {"<path or placeholder>": [values]}, "max_parallel": n}. A name that stands in
// braces in a text of the document, as {lr} in the command, is filled in there. Else it names a
// field by its keys and indices with dots between them: train.learning_rate, environment.SEED,
// command.3. What is on the way is made if it is not there. invalid: with the pointer of the
// parameter, or of the field whose value does not fit at some point.
Result<Sweep> parse_sweep(const Json& document);

}  // namespace lockstep
