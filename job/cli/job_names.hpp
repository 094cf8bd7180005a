// Which job a person means: an id, a part of one, a name, `last` or `@3`. Also how ids are written
// where there is little room. Blocks; the main thread.
#pragma once

#include "job/base/json.hpp"
#include "job/cli/client.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct FoundJob {
    std::string id;
    // What was chosen of several, for a person; "" when there was nothing to choose.
    std::string note;
};

// The one job that `text` means, in this order:
//   a whole id · `last`: the caller's newest · `@N`: line N of `lockstep jobs` (@1 is the newest) ·
//   a job's name: the newest of that name · any part of an id of 4 characters or more, in any case,
//   with or without `ls-`; the short forms of `lockstep jobs` are such parts.
// With `acting` (cancel, restart …) a name must fit one unfinished job only.
// conflict: several jobs fit; not_found: none; invalid: no such way to name a job.
Result<FoundJob> find_job(const Client& client, const std::string& text, bool acting);

// How many last characters of the ids of `jobs` tell them apart; 6 at least. The first ten
// characters of an id are the time, so that jobs of one sweep differ at the end only.
std::size_t short_id_length(const std::vector<Json>& jobs);
// "…Q2R7T9", or "~Q2R7T9" where there is only ASCII.
std::string short_id(std::string_view id, std::size_t length, bool unicode);

}  // namespace lockstep::cli
