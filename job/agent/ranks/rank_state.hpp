// What a rank's process is doing, from /proc: cheap, and it works on what neither answers nor dies.
// Any thread.
#pragma once

#include "job/model/wire/wire.hpp"

#include <cstdint>

namespace lockstep {

// State and kernel function (proc(5), stat and wchan). A process that is gone has state "X"; where
// the kernel keeps wchan to itself, it is empty.
wire::RankState look_at_rank(std::int32_t rank, std::int64_t pid);

}  // namespace lockstep
