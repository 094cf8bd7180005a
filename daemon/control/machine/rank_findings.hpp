// What was learned of the ranks of a hang, put in order for people: who lags, what its process
// does, where it is, which files there are. Agents' words are cut and cleaned here. Pure; any
// thread.
#pragma once

#include "daemon/control/machine/hang_watch.hpp"
#include "job/base/json.hpp"
#include "job/model/event.hpp"
#include "job/model/python_stack.hpp"
#include "job/model/wire/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One rank as far as is known; what nobody told of stays empty.
struct RankFinding {
    std::int32_t rank = 0;
    std::string node{};
    std::int64_t step = -1;  // the last it has reported
    bool behind = false;
    wire::RankState process{};
    wire::RankEvidence evidence{};
    bool told = false;   // its agent has sent `process`
    bool saved = false;  // and `evidence`
};

// Of `behind`, global ranks in ascending order, those among the `count` ranks from `first` on, as
// numbers of their node: 0..count-1.
std::vector<std::int32_t> local_ranks(const std::vector<std::int32_t>& behind, std::int32_t first,
                                      std::int32_t count);
// Where in `ranks` they are: those that the Python stacks name first; then those that are behind,
// the ones furthest behind before the others; then whose process does not run as one that trains
// would (stopped, dead, in the disk); then the only one that computes while the others wait, or
// waits while they compute; then the rest by rank. At most limits::kEvidenceRanks: of 100,000
// nobody reads the rest.
std::vector<std::size_t> lagging_first(const std::vector<RankFinding>& ranks);
// The items of event::EvidenceTaken::ranks: ranks[order[0]], ranks[order[1]], …
Json findings_json(const std::vector<RankFinding>& ranks, const std::vector<std::size_t>& order);
// "state of 4 ranks, python stacks of 3; not had: native of rank 1: …".
std::string findings_words(const std::vector<RankFinding>& ranks);
// What their Python stacks say together (python_stack.hpp).
StackVerdict compare_stacks(const std::vector<wire::RankEvidence>& saved);
// What an agent says of a rank's evidence, with only names that exist, sizes that can be and text
// that can be shown.
wire::RankEvidence cleaned(const wire::RankEvidence& evidence);
// The same of its files, with a name that `is_name` knows and at most `most` bytes, and of what is
// missing, alone.
wire::RankEvidence cleaned_captures(const wire::RankEvidence& told,
                                    bool (*is_name)(std::string_view), std::size_t most);
// files: [{name, size}], missing: [{what, why}].
void add_captures(Json& item, const wire::RankEvidence& evidence);

}  // namespace lockstep
