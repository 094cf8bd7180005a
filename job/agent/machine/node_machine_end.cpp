// How a node ends: what its ranks did is written down and delivered, then the agent goes.
#include "job/agent/machine/node_machine.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

void NodeMachine::done() {
    wire::Done done;
    done.generation = run_.world.generation;
    want(node_effect::Report{done});
}

void NodeMachine::save_result() {
    want(node_effect::SaveResult{run_.result});
}

void NodeMachine::drop_ready_ranks() {
    if (run_.phase == Phase::ready) {
        run_.phase = Phase::waiting;
        want(node_effect::DropRanks{});
        done();
    }
}

void NodeMachine::hear(const node_input::ShutDown& order) {
    farewell_ = order.farewell;
    ended_ranks_ = ended_ranks_ || ranks_run();
    shut_down(order.grace);
}

void NodeMachine::shut_down(std::chrono::milliseconds grace) {
    stopping_ = true;
    want(node_effect::EndStandbys{});
    want(node_effect::StopEvidence{});
    next_world_.reset();
    awaiting_.reset();
    if (setup_running_) {
        want(node_effect::EndSetup{});  // it is waited for before the agent goes
    }
    if (ranks_run()) {
        want(node_effect::StopRanks{grace});
        return;
    }
    drop_ready_ranks();
    if (!std::exchange(settling_, true)) {
        leave_until_ = now_.steady + timing_.settle;
        want(node_effect::Leave{true});
    }
}

// Everything that was accepted from the ranks reaches the daemon before the agent goes, if the
// daemon is there to take it.
void NodeMachine::hear(const node_input::LeavingBegun& leaving) {
    want(node_effect::SendRows{});
    // A surplus copy of the attempt, ended before it was given a world, has nothing to say: what
    // the kept one's ranks did must not go for it.
    const bool speaks = run_.world.generation != 0 || !leaving.speaks_for_another;
    if (!run_.saved && speaks) {
        save_result();
    }
    if (!farewell_.empty()) {
        wire::Bye bye;
        bye.reason = farewell_;
        want(node_effect::Report{std::move(bye)});
    }
}

void NodeMachine::hear(const node_input::LeavingLook& look) {
    if (finished_ || !settling_) {
        return;
    }
    const bool late = now_.steady >= leave_until_;
    if (fenced_) {
        if (!ranks_run() || late) {
            finish(kAgentFenced);
        }
        return;
    }
    if ((look.settled && !setup_running_) || late) {
        if (!look.settled) {
            log::warn("leaving with messages that were not acknowledged");
        }
        finish(code_at_end());
    }
}

// What the scheduler is to record of the attempt. Without lockstepd's word the ranks of a node that
// cannot be done without have failed if they were ended; where others may go on, it is theirs to
// say.
int NodeMachine::code_at_end() const {
    if (outcome_) {
        return *outcome_ == JobState::succeeded   ? kAgentDone
               : *outcome_ == JobState::cancelled ? kAgentCancelled
                                                  : kAgentFailed;
    }
    return ended_ranks_ && job_ && job_->fixed ? kAgentFailed : kAgentDone;
}

void NodeMachine::hear(const node_input::Orphaned& orphaned) {
    want(node_effect::LeaveLastWords{"no daemon for too long: " + orphaned.why});
    if (!run_.saved) {
        finish(kAgentLonely);
        return;
    }
    const auto& exits = run_.result.exits;
    const bool well = run_.result.faults.empty() &&
                      std::all_of(exits.begin(), exits.end(), [](const wire::Exited& one) {
                          return one.exit_code == 0 && one.signal == 0;
                      });
    finish(well ? kAgentDone : kAgentFailed);
}

void NodeMachine::finish(int code) {
    if (!std::exchange(finished_, true)) {
        const bool ended_as_told = (outcome_ == JobState::succeeded && code == kAgentDone) ||
                                   (outcome_ == JobState::cancelled && code == kAgentCancelled);
        if (ended_as_told && job_ && !job_->fixed) {
            want(node_effect::SaveOutcome{*outcome_});
        }
        want(node_effect::Exit{code});
    }
}

}  // namespace lockstep
