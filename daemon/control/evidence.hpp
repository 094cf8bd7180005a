// What was learned of the ranks of a hang, put in order for people: who lags, what its process
// does, where it is, which files there are. Agents' words are cut and cleaned here. Pure; any
// thread.
#pragma once

#include "daemon/control/hang_watch.hpp"
#include "job/base/json.hpp"
#include "job/model/event.hpp"
#include "job/model/wire.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
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

// Those that are behind first, the ones furthest behind before the others; then whose process does
// not run as one that trains would (stopped, dead, in the disk); then the only one that computes
// while the others wait, or waits while they compute; then the rest by rank.
void lagging_first(std::vector<RankFinding>& ranks);
// The items of event::EvidenceTaken::ranks: as many as limits::kEvidenceRanks, in the given order.
Json findings_json(const std::vector<RankFinding>& ranks);
// "state of 4 ranks, python stacks of 3; not had: native of rank 1: …".
std::string findings_words(const std::vector<RankFinding>& ranks);
// What an agent says of a rank's evidence, with only names that exist, sizes that can be and text
// that can be shown.
wire::RankEvidence cleaned(const wire::RankEvidence& evidence);

}  // namespace lockstep
