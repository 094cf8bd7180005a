// What a job asks of the scheduler once it has an attempt: how that is doing, to end it, and how it
// ended. Which nodes it was given is known here alone. Control thread; called by the job's
// coroutine alone (the const ones by anybody); what it is made with must outlive it.
#pragma once

#include "daemon/control/actor/attempt_handover.hpp"
#include "daemon/control/actor/attempt_leftovers.hpp"
#include "daemon/control/actor/job_steps.hpp"
#include "daemon/control/actor/node_witness.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/machine/job_machine.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

// A job of more nodes is large: a round of it costs time for each of them.
inline constexpr std::int32_t kLargeJob = 512;
// How soon the nodes of a large job are looked at again for who is not heard any more.
inline constexpr auto kLookAtNodes = std::chrono::milliseconds{100};

class JobPlacement {
  public:
    JobPlacement(ControlContext& context, JobMachine& machine, JobSteps& steps,
                 AttemptLeftovers& files, bool aside)
        : context_{context},
          machine_{machine},
          steps_{steps},
          files_{files},
          handover_{context, machine, steps},
          aside_{aside} {}

    Task<void> create_attempt() { return handover_.create(); }
    // Until the attempt has its nodes.
    Task<void> place();
    // While it has them.
    Task<void> look_at_allocation();
    // Called with every input and tick until none of the generation's ranks lives.
    Task<void> restart_ranks(Cause cause);
    // Ends what runs: STOP to every agent, then by force. Called with every input and tick until
    // due() says conclude, or, if another attempt follows, until the allocation is over.
    Task<void> stop_attempt(Cause cause);
    // True once it is known how the attempt ended, as far as it can be.
    Task<bool> verdict();

    // It waits in the scheduler's queue for what no place there brings nearer: a person, a time,
    // another job.
    bool aside() const { return aside_; }
    // The attempt has its nodes: nothing in the queue is waited for.
    void left_queue();
    // Whether a node of that name is the newest attempt's, as the scheduler says.
    bool was_given(const std::string& node) const;
    // What the events say of nodes that are the job's, by the scheduler's word. `later`: of those
    // that it has not told of yet, to be kept once the events are stored.
    NodeNotes vouched_notes(const Draft& draft, NodeNotes& later) const;
    void keep(NodeNotes later) { witness_.keep(std::move(later)); }
    // Whether a look at a large job's nodes was too soon and is to be made up for; said once.
    bool take_skipped_look() { return std::exchange(look_skipped_, false); }

  private:
    const Job& job() const { return machine_.job(); }
    Draft draft() const { return machine_.draft(steps_.now()); }
    bool nodes_are_due();
    Task<void> end_unclaimed(const Observation& seen);
    bool was_unwatched(const Observation& seen) const;
    Task<std::optional<wire::GaveUpFile>> first_last_words();
    void look_whether_aside(const Observation& seen);
    void set_aside(bool aside);
    void learn_nodes(const Observation& seen);
    Task<void> learn_launch_words();
    void tell_foreign_nodes(Draft& draft);
    Task<void> wait_in_queue(Observation seen);
    Task<Observation> allocation();
    Task<std::optional<Surroundings>> have_files(const Observation& seen, bool needed);
    Task<void> end_generation(Cause cause, JobMachine::AfterEnd after);
    Task<void> next_attempt(Cause cause);

    ControlContext& context_;
    JobMachine& machine_;
    JobSteps& steps_;
    AttemptLeftovers& files_;  // the machine's
    AttemptHandover handover_;
    NodeWitness witness_;
    bool aside_;
    std::optional<std::chrono::steady_clock::time_point> nodes_looked_;  // see nodes_are_due()
    bool look_skipped_ = false;                                          // it was too soon for one
};

}  // namespace lockstep
