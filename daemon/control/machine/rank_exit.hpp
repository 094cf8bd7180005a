// What an agent says of a rank's end, over its connection or in its result file, as an event. Pure;
// any thread.
#pragma once

#include "job/model/event.hpp"
#include "job/model/wire/wire.hpp"

namespace lockstep {

// Cut and cleaned: a rank's own words may hold anything. Without attempt and node.
event::RankExited rank_exited(const wire::Exited& exited);

}  // namespace lockstep
