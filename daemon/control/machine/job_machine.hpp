// One unfinished job as a machine without I/O: it takes what happens to the job, with the time and
// all that may be known of the world around (Surroundings), and answers with events and with what
// is to be done, as data. It has no clock, sends nothing, stores nothing, waits for nothing: its
// driver, JobActor, does. (It does log, and draws the tokens of the pair test.) What it knows
// beside the job's events has the lifetime of its type:
//
//   JobMachine ⊃ AttemptRun (agents, rendezvous, pre-flight) ⊃ GenerationRun (keys, ABORT, hang)
//
// Who is asked, and in which order, is here; what each concern makes of it is in a file of its own,
// a class or a few functions of a draft and of the attempt (daemon/README.md, "A job").
//
// Two calls a round: take() or look…() puts events and intentions into a draft; stored(), once the
// events are durable, makes the draft the job and answers with what follows.
// If the append fails, not_stored() is told, and the draft is dropped: look…() looks again, the
// inputs of take() that were not answered at once are taken again into a fresh draft. What either
// changes before stored() is what agents have said of themselves, the same if it is heard twice; of
// what it finds only once, a judgement of nodes or an anomaly, the events are kept, and begin the
// next draft. Control thread only.
#pragma once

#include "daemon/control/machine/agent_admission.hpp"
#include "daemon/control/machine/anomaly_run.hpp"
#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/effect.hpp"
#include "daemon/control/machine/generation/next_generation.hpp"
#include "daemon/control/machine/job_input.hpp"
#include "daemon/control/machine/left_behind.hpp"
#include "daemon/control/machine/loss_watch.hpp"
#include "daemon/control/machine/pending_reason.hpp"
#include "daemon/control/machine/save_round.hpp"
#include "daemon/control/machine/wait_clock.hpp"
#include "daemon/telemetry/series/anomalies.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "job/model/event.hpp"
#include "job/model/job.hpp"
#include "job/model/recovery.hpp"
#include "scheduler-integration/observation.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class JobMachine {
  public:
    using MayClaim = AgentAdmission::MayClaim;
    // `files` outlives it.
    JobMachine(Job job, const LeftBehind& files, MayClaim may_claim);

    const Job& job() const { return job_; }
    // What is known of the newest attempt; the driver notes there what it hands over.
    AttemptRun& run() { return run_; }
    const AttemptRun& run() const { return run_; }
    // Why the job waits, in plain words; "" = it does not.
    const std::string& pending_reason() const { return pending_.words; }
    UnixMillis expected_start() const { return pending_.expected_start; }
    void set_pending_reason(std::string reason, UnixMillis expected_start = 0) {
        pending_.set(std::move(reason), expected_start);
    }
    // Of telemetry, at most 250 ms old; nullptr if nothing was reported.
    const telemetry::JobStats* stats(const Surroundings& at) {
        return run_.generation.fresh_stats(at);
    }
    const telemetry::AnomalyWatch& anomalies() const { return anomalies_.watch(); }
    // A rank's process as its agent has told; nothing: not (yet).
    const wire::StartedRank* process(std::int32_t rank) const;

    // What the job needs now. The first call is this daemon's first look at the job: what has
    // happened before is taken for past since then (WaitClock).
    Action what_is_due(const Surroundings& at);

    Draft draft(const Surroundings& at) const;
    void take(Draft& draft, JobInput& input);
    // All of them, in a draft of their own; those that it answers at once are taken out, so that
    // what is left may be taken again. If they make no event it has none: what has found no room
    // yet waits for another draft, and nobody for it.
    Draft take_all(std::vector<JobInput>& inputs, const Surroundings& at);
    // The draft's events are durable: it is the job from now on.
    Effects stored(Draft& draft, const Surroundings& at);

    // The append of its events has failed; it is of no more use.
    void not_stored(Draft& draft) { unstored_ = std::move(draft.once); }

    // Time has passed: whoever waits in vain for a key is answered.
    Effects pass(const Surroundings& at);
    // The job is over, or its daemon, or there is no room: whoever waits for an answer gets this.
    Effects dismiss(const Status& why);
    // Nobody could be heard (this daemon stood still, the job was suspended): the time after which
    // silent agents count as lost begins anew, as does the watch for a hang.
    void restart_silence_timers(const Surroundings& at);
    // Late words of an attempt, or of a job, that is over: its agent delivers them, and goes.
    // An agent of another allocation never was the attempt's, and is fenced.
    Effects acknowledge_late(const AgentInput& input, const std::string& why) const;

    // While agents gather and ranks run (job_machine_phases.cpp). `seen`: what the
    // scheduler says of the attempt. `nodes_too`: also who is not heard, a walk over all nodes.
    void look(Draft& draft, const Observation& seen, bool nodes_too);
    // That who goes was told to by the scheduler, perhaps: its word is wanted soon.
    bool somebody_left() const;
    // The same while the ranks of a generation are being stopped; first ABORT to whoever has not
    // been sent it.
    Effects abort(const Cause& cause, const Surroundings& at);
    using AfterEnd = lockstep::AfterEnd;
    // For end_generation(), once all telemetry is in; nothing: a rank of it may live, or there is
    // something to store first.
    std::optional<AfterEnd> look_while_aborting(Draft& draft, const Observation& seen,
                                                bool nodes_too);
    // False: no generation lives.
    bool end_generation(Draft& draft, const Cause& cause, AfterEnd after);
    // The attempt is being stopped: STOP as below.
    Effects stop(const Cause& cause, const Surroundings& at);
    // STOP, with its grace for ranks, to whoever has not been sent it over this connection.
    Effects say_stop(const std::string& reason);
    // What agents that are gone have left behind: of a look at `seen` that part, which reads files.
    void read_left_behind(Draft& draft, const Observation& seen) const;

    // With the generation that lives, if one does.
    void end_attempt(Draft& draft, const Cause& cause);
    // The same, and another one follows: what was known of it is forgotten.
    void next_attempt(Draft& draft, const Cause& cause);

  private:
    void hear(Draft& draft, AgentInput& input);
    void form_if(Draft& draft, bool ready);
    void hear_lost(Draft& draft, const AgentPtr& link, const wire::AgentMessage& message);
    void hear(Draft& draft, AgentGoneInput& input);
    void become(const After& one, Effects& out, const Surroundings& at);
    void forget_attempt(Effects& out, std::int32_t number);

    AgentAdmission admission_;
    Job job_;
    WaitClock waits_;
    // What is true of an attempt, or of a generation, goes with it; what is here is the job's.
    AttemptRun run_;
    std::vector<EventData> unstored_;  // what is found only once
    PendingReason pending_;
    // Of one generation, but whoever asked is answered also when that has ended.
    SaveRound save_;
    LossWatch loss_;
    AnomalyRun anomalies_;
};

}  // namespace lockstep
