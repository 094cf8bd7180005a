// A profile of ranks of the live generation, what they do for some seconds while they train: asked
// of their agents, and kept with the job. Control thread only.
#pragma once

#include "daemon/control/machine/agent.hpp"
#include "daemon/control/machine/job_input.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class Draft;
struct AttemptRun;

// One that is under way.
struct ProfileRun {
    std::int32_t number = 0;
    std::string by{};
    std::int64_t seconds = 0;
    std::chrono::steady_clock::time_point since{};
    std::vector<std::int32_t> wanted{};       // ranks
    std::set<std::int32_t> awaited{};         // slots that have not answered
    std::vector<wire::RankEvidence> ranks{};  // what has come
    std::shared_ptr<ProfileAsked> asked{};    // of the input that began it

    // How long agents are waited for.
    std::chrono::seconds patience() const;
    // Whether all that is awaited is in, or its time is over.
    bool is_in(std::chrono::steady_clock::time_point now) const;
};

// PROFILE to the nodes of the ranks; `input.asked` says what was asked for. conflict: nothing runs,
// one is under way, the generation has had all of its; invalid: no such rank.
Status ask_for_profile(Draft& draft, AttemptRun& run, ProfileInput& input);
void profiled(Draft& draft, AttemptRun& run, const AgentPtr& link, const wire::Profiled& profiled);
// Makes one an event once all is in; `last`: the generation ends, what is there is all.
void look_at_profile(Draft& draft, const AttemptRun& run, bool last);

}  // namespace lockstep
