// The double's RAS: each process listens at NCCL_RAS_ADDR, as NCCL's does
// (src/ras/client_support.cc of 2.30.7: rasClientInitSocket binds with SO_REUSEPORT, so that the
// processes of a node share the address), and answers for all ranks of its communicators. NCCL's
// processes ask each other; here the counts lie in a file of shared memory for each communicator,
// so all must be on one machine. DIAGNOSTICS, CONTROL, MONITOR and the text form are not there.
#pragma once

#include "tests/support/nccl_double/hub.hpp"

#include <atomic>
#include <cstdint>
#include <string>

namespace nccl_double {

struct RasSlot;

// Before the rank begins to connect. Null without NCCL_RAS_ADDR, or if there is no shared memory.
RasSlot* register_with_ras(const std::string& communicator, int rank, int ranks);
// It is through its initialisation.
void joined_ras(RasSlot* slot);
// As NCCL counts: on the host when the operation is launched; send and recv are not.
void count_launch(RasSlot* slot, Kind kind);
// Its process answers still, and does not count it as a member any more.
void leave_ras(RasSlot* slot);

}  // namespace nccl_double
