// What a job's new events say of the nodes it was on (daemon/store/node_history.hpp). Nodes are
// blamed as recovery blames them: what ended a generation first, and slots that are not used any
// more; never for what the job did itself (its memory, its exit codes, Xids of its programs).
// Pure; any thread.
#pragma once

#include "daemon/store/node_history.hpp"
#include "job/model/job.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <string>
#include <vector>

namespace lockstep {

// The machine that every node of a job is, with the local scheduler; "" = each is its own.
std::string one_machine(Scheduler& scheduler);

// `job`: as the events left it. `machine`: of one_machine(). Nodes have the names that the agents
// gave them: whether they are the job's at all, NodeWitness knows.
NodeNotes notes_of(const Job& job, const std::vector<Event>& events, const std::string& machine);

}  // namespace lockstep
