// Where a profile lies, what ranks did for some seconds: files of an attempt's folder, one folder
// for each generation, profile and rank, written by the rank's agent
// (job/agent/diagnostics/profile_taker.hpp) and read by the daemon for people. Pure; any thread.
//
//   <attempt>/profile/gen-2/take-1/rank-00001/stacks.txt       where Python was: folded stacks
//                                             trace.json.gz    torch's trace or JAX's
//                                             operations.txt   the longest operations, from it
//                                             collectives.txt  NCCL's operations, from its
//                                             Inspector
//
// Of a rank with several Python processes the second one's are 2.stacks.txt and so on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kProfileStacks = "stacks.txt";
inline constexpr std::string_view kProfileTrace = "trace.json.gz";
inline constexpr std::string_view kProfileOperations = "operations.txt";
// What a process may write: no other file of it is taken.
inline constexpr std::array kProfileNames{kProfileStacks, kProfileTrace, kProfileOperations};

// Written by the agent, once for a rank.
inline constexpr std::string_view kProfileCollectives = "collectives.txt";
// Why a rank has none of which the Inspector has never posted anything: usual, as with one GPU, and
// so left out where a profile is told of in a line.
inline constexpr std::string_view kNoCollectivesEver =
    "NCCL's Inspector has posted nothing of this rank: no operation of 8 KiB or more has ended, or "
    "this NCCL does not load the plugin";

// Of the process with this place among those of its rank, from 1.
std::string profile_name(std::size_t place, std::string_view name);
// One that profile_name() gives, or kProfileCollectives; no other is ever asked of the file system.
bool is_profile_name(std::string_view name);
// {"profile", "gen-2", "take-1", "rank-00001"}: each a folder in the one before.
std::array<std::string, 4> profile_folders(std::int32_t generation, std::int32_t number,
                                           std::int32_t rank);

}  // namespace lockstep
