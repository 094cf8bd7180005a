// What frameworks print when their ranks do not train together as they should. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// A line of a rank of several, and it says that the rank trains by itself: what its job's user is
// told. Knows Paddle (python/paddle/distributed/parallel.py) and Lightning
// (fabric/utilities/distributed.py).
std::optional<std::string> trains_alone(std::string_view line);

// How many trainers there are, as the line says with which Paddle's distributed_batch_reader begins
// (python/paddle/fluid/contrib/reader): "start data reader (trainers_num: 3, trainer_id: 0)". Where
// a job has servers, they are not among them.
std::optional<std::int32_t> printed_world(std::string_view line);

// A process has met `said` ranks, itself included, and its job has `expected` of them. Nothing: as
// it should be.
std::optional<std::string> wrong_world(std::int32_t said, std::int32_t expected);

}  // namespace lockstep
