// The number of nodes of an elastic job's generation, in words. Pure; any thread.
#pragma once

#include "job/model/job.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// The first of them by name, and how many more.
std::string node_names(const Attempt& attempt, const std::vector<std::int32_t>& slots);
// What is special about it for the generation that begins with `members` (slots); "" = nothing.
std::string size_words(const Job& job, const std::vector<std::int32_t>& members);
// Why the ranks are started again on `nodes` of them: `more` are there.
std::string growth_words(const Job& job, const std::vector<std::int32_t>& more, std::int32_t nodes);

}  // namespace lockstep
