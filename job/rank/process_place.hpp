// Where a process of a job stands, for programs that must not fail over a broken environment: what
// read_rank_context() refuses as a whole is read one by one here, and ranks are known that a
// launcher within the job has started. A plain value: any thread.
#pragma once

#include "job/rank/rank_context.hpp"

#include <array>
#include <cstdint>

namespace lockstep {

// A number of a process's place: what Lockstep calls it, and torchrun, Paddle and Open MPI.
struct PlaceNames {
    const char* own;
    std::array<const char*, 3> launchers;
};
inline constexpr PlaceNames kRankNames{"LOCKSTEP_RANK",
                                       {"RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK"}};
inline constexpr PlaceNames kLocalRankNames{
    "LOCKSTEP_LOCAL_RANK", {"LOCAL_RANK", "PADDLE_RANK_IN_NODE", "OMPI_COMM_WORLD_LOCAL_RANK"}};
inline constexpr PlaceNames kWorldSizeNames{
    "LOCKSTEP_WORLD_SIZE", {"WORLD_SIZE", "PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE"}};

struct ProcessPlace {
    RankContext context;  // rank and local_rank are -1 in a process that starts the ranks itself
    std::int32_t nodes = 1;
    bool managed = false;  // it belongs to a job
};

// Numbers that are none, or out of range, count as not set. Without Lockstep, and without a
// launcher like torchrun, it is rank 0 of 1.
ProcessPlace read_process_place(const Environment& environment = process_environment);

}  // namespace lockstep
