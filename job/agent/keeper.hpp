// `lockstep-agent run --restarts N`: the process that stands above an agent and starts it again
// when a signal has ended it (a crash, the kernel for lack of memory, somebody's kill -9). What the
// agent leaves behind, ranks and what they started, is ended first: no two generations live on a
// node.
//
//   batch script or lockstepd ── keeper ── agent ── ranks
//
// An agent that ends by itself, whatever its exit code, is not started again, nor one that was told
// to end. The agent dies with the keeper (PR_SET_PDEATHSIG), its ranks with the agent.
#pragma once

#include <sys/types.h>

#include <functional>

namespace lockstep {

// The parent of a process; 0: there is no such process (any more).
pid_t parent_process(pid_t pid);

// Runs `agent` in a child, which returns from here with its result; `again`: it is not the first.
// In the keeper itself: returns the exit code of the last one, 128 + signal if a signal ended it.
// Main thread, once, before there is any other thread. Takes the process's signals meanwhile:
// passes on SIGTERM and SIGINT.
int keep_agent(int restarts, const std::function<int(bool again)>& agent);

}  // namespace lockstep
