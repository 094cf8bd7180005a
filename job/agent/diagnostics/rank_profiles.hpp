// What ranks do for some seconds, recorded by their own processes, of Python
// (job/rank/python/hooks, _lockstep_profile) or of lockstep-train (job/trainer/step_profile.hpp):
// each is asked by a file beside the report socket and SIGURG, and answers with files there, which
// are copied to where the job's files are. Only processes that catch the signal and hold that file
// are asked. Blocking, for twice the seconds and limits::kProfileMore at most beside what the file
// system takes; a thread of its own.
#pragma once

#include "job/model/wire/wire.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct ProfileQuestion {
    std::filesystem::path sockets;  // the folder of the report socket
    std::filesystem::path folder;   // the attempt's; see job/model/profile.hpp
    std::int32_t generation = 0;
    std::int32_t number = 0;
    std::int64_t seconds = 0;
    // Ranks that live, with all others of the node: whose process is below another's is its own.
    std::vector<wire::StartedRank> living{};
    std::vector<std::int32_t> wanted{};  // ranks
    // Set by another thread: nobody waits for the answer any more.
    std::shared_ptr<const std::atomic<bool>> stopped{};
};

using ProfiledRanks = std::vector<wire::RankEvidence>;
// Of each rank that is wanted, in their order: its files, and what there is not and why.
ProfiledRanks profile_ranks(const ProfileQuestion& question);

// What NCCL's Inspector has posted of a rank while it was profiled, for people; "": nothing.
struct PostedCollectives {
    std::string text{};
    bool before = false;  // something was posted earlier
};
// By rank: what its kProfileCollectives is to have.
using ProfileTexts = std::map<std::int32_t, PostedCollectives>;
// The same ranks with these files, which are written beside the others. Of a rank that has ended
// nothing is missing. Blocking, as above.
ProfiledRanks with_collectives(const ProfileQuestion& question, ProfiledRanks ranks,
                               const ProfileTexts& texts);

}  // namespace lockstep
