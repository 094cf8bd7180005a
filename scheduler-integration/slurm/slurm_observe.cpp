// What is said of an attempt in Slurm: its state, and at its end whose doing that was.
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/hostlist.hpp"
#include "scheduler-integration/slurm/slurm_attempt_facts.hpp"
#include "scheduler-integration/slurm/slurm_blame.hpp"
#include "scheduler-integration/slurm/slurm_reason.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

Observation pending(std::string reason, bool held = false) {
    Observation out;
    out.kind = Observation::Kind::state;
    out.state = AllocationState::pending;
    out.reason = std::move(reason);
    out.held = held;
    return out;
}

// Its script was sent SIGTERM although Slurm did not end the job: by `scancel --full --signal`.
bool was_signalled(const SlurmAttempt& attempt) {
    return attempt.last_verdict.end == SlurmEnd::failed && !attempt.cancelled &&
           exit_code_of(attempt) == slurm::kToldToEndExit;
}

Observation ended(const SlurmAttempt& attempt) {
    const SlurmJob& job = *attempt.seen;
    Observation out;
    out.kind = Observation::Kind::state;
    out.state = AllocationState::ended;
    const bool preempted = attempt.detail && attempt.detail->preempted;
    SlurmEnd end = preempted ? SlurmEnd::preempted : attempt.last_verdict.end;
    std::string how = std::string{plain_words(end)};
    if (was_requeued(attempt)) {
        how = (end == SlurmEnd::none ? "" : how + " and ") +
              std::string{"was put back into the queue; its ranks are gone"};
        // By a person, or by a site's hook: taken away like a preempted one's.
        end = end == SlurmEnd::none ? SlurmEnd::preempted : end;
    } else if (was_signalled(attempt)) {
        how = "was cancelled outside Lockstep: its script was sent SIGTERM";
        end = SlurmEnd::cancelled;
    } else if (end == SlurmEnd::cancelled && attempt.cancelled) {
        how = "was cancelled by Lockstep";
        end = SlurmEnd::none;
    } else if (end == SlurmEnd::cancelled) {
        how = "was cancelled outside Lockstep";
        if (job.state.cancelled_by) {
            how += " by uid " + std::to_string(*job.state.cancelled_by);
        }
        if (blame(job, attempt.detail ? &*attempt.detail : nullptr) == Blame::slurm) {
            out.accident.emplace();
            out.accident->kind = CauseClass::scheduler;
            out.accident->message =
                job_words(attempt) + " was ended by Slurm itself before its ranks had started";
        }
    }
    if (end == SlurmEnd::deadline) {  // of the class scheduler it would be asked for again
        out.accident.emplace();
        out.accident->kind = CauseClass::user_error;
        out.accident->message = job_words(attempt) + " " + how + " before its ranks had started";
    }
    if (end == SlurmEnd::node_fail && !attempt.down_nodes.empty()) {
        for (const std::string& node : attempt.down_nodes) {
            how += (&node == attempt.down_nodes.data() ? ": " : ", ") + node;
        }
        how += attempt.down_why.empty() ? "" : " (" + attempt.down_why + ")";
        out.cause.node = attempt.down_nodes.size() == 1 ? attempt.down_nodes.front() : "";
    }
    out.message = job_words(attempt) + " " + how + exit_words(attempt);
    const bool of_itself = end == SlurmEnd::none || end == SlurmEnd::ok || end == SlurmEnd::failed;
    if (is_claimed(attempt) && of_itself && !was_requeued(attempt)) {
        return out;  // the ranks know better
    }
    SlurmEndFacts facts;
    facts.signal = job.signal;
    facts.cancelled_by = job.state.cancelled_by;
    facts.owner = job.uid;
    facts.reason = job.reason;
    out.cause.kind = of_itself ? CauseClass::scheduler : cause_of(end, facts);
    if (out.cause.kind == CauseClass::none) {
        out.cause.kind = CauseClass::scheduler;
    }
    out.cause.message = out.message;
    if (!is_claimed(attempt)) {
        out.cause.message += " before any agent had called in";
        if (of_itself && !attempt.batch_words.empty()) {
            out.cause.message += ": " + attempt.batch_words;
        }
        if (!attempt.stillborn.empty()) {
            out.cause.message +=
                "; " + std::to_string(attempt.stillborn.size()) + " before it failed as well";
        }
        if (of_itself) {
            out.cause.message +=
                "; see " + attempt.request.directory + "/" + std::string{slurm::kBatchLogName};
        }
    }
    return out;
}

Observation in_slurm(const SlurmAttempt& attempt) {
    const SlurmJob& job = *attempt.seen;
    const SlurmPhase phase = attempt.last_verdict.phase;
    if (attempt.ended() || was_requeued(attempt)) {
        Observation out = ended(attempt);
        out.nodes = expand_hostlist(job.nodes).value_or(std::vector<std::string>{});
        return out;
    }
    if (waits(attempt) && !is_claimed(attempt)) {
        const Explanation why = explain_reason(job.reason, job);
        std::string text = why.text + (why.change.empty() ? "" : ": " + why.change);
        if (!attempt.stillborn.empty()) {
            text += "; submitted again: " + attempt.stillborn.back().how +
                    " before any agent had called in";
        }
        Observation out =
            pending(std::move(text), phase == SlurmPhase::held || phase == SlurmPhase::blocked ||
                                         why.reason_class == ReasonClass::never);
        out.expected_start = job.estimated_start * 1000;
        const std::string code = reason_code(job.reason);
        out.later = code == "BeginTime" || code == "Dependency";
        return out;
    }
    // It is in another cluster of the federation: only agents can say how it goes.
    const bool elsewhere = attempt.last_verdict.end == SlurmEnd::revoked;
    if (elsewhere && !is_claimed(attempt)) {
        return pending(job_words(attempt) + " " + std::string{plain_words(SlurmEnd::revoked)});
    }
    if (phase == SlurmPhase::ended && !is_claimed(attempt)) {
        return pending(job_words(attempt) + " has ended before any agent had called in");
    }
    if (phase == SlurmPhase::starting && !is_claimed(attempt)) {
        return pending("Slurm has given it nodes, which are starting up");
    }
    // It may wait: as a running one it would have minutes for its nodes to meet. If it does run,
    // its agents say so.
    if (phase == SlurmPhase::unknown && !is_claimed(attempt)) {
        return pending("Slurm calls its state " +
                       (job.state.raw.empty() ? "nothing" : printable(job.state.raw)) +
                       ", which Lockstep does not know");
    }
    // Not before an agent is there does the time begin that the nodes have to meet.
    if (phase == SlurmPhase::running && imports_image(attempt) && !is_claimed(attempt)) {
        return pending("Slurm has given it nodes, which import its image");
    }
    Observation out;
    out.kind = Observation::Kind::state;
    out.state = AllocationState::running;
    out.nodes = expand_hostlist(job.nodes).value_or(std::vector<std::string>{});
    if (phase == SlurmPhase::finishing) {
        out.ending = job.nodes;  // squeue tells only of those that are not free yet
        const SlurmEnd end = attempt.last_verdict.end;
        out.message = job_words(attempt) + " " +
                      (end == SlurmEnd::none ? "is over" : std::string{plain_words(end)}) +
                      "; Slurm is ending it";
    }
    if (phase == SlurmPhase::ended && !elsewhere) {  // said once
        out.ending = job.nodes;
        out.message = job_words(attempt) + " " +
                      std::string{plain_words(attempt.last_verdict.end)} +
                      "; Slurm is asked once more";
    }
    if (phase == SlurmPhase::paused) {
        out.paused = true;
        out.message = job_words(attempt) + " is suspended: its ranks do not move";
    }
    return out;
}

}  // namespace

Observation observe(const SlurmAttempt& attempt, bool reachable, const std::string& why) {
    Observation out;
    if (attempt.stage == SlurmAttempt::Stage::gone) {
        out.kind = Observation::Kind::absent;
        out.message = attempt.message;
        out.lost = attempt.number_taken;
        return out;
    }
    if (attempt.seen) {
        out = in_slurm(attempt);
        const bool waiting = out.state == AllocationState::pending;
        if (!reachable && waiting) {
            out.kind = Observation::Kind::unreachable;
            out.message = why;
        }
    } else if (attempt.id != 0) {
        out = pending("Slurm has it as job " + std::to_string(attempt.id));
        if (!reachable) {
            out.kind = Observation::Kind::unreachable;
            out.message = why;
        }
    } else if (attempt.request.submission == Submission::manual && !attempt.cancel_wanted &&
               !attempt.over) {
        out = pending("submission is manual: run  sbatch " + attempt.request.directory + "/" +
                          std::string{slurm::kBatchFileName},
                      true);
    } else if (attempt.nothing_left() || (attempt.cancel_wanted && !is_claimed(attempt))) {
        // What is to end and was never seen need not be waited for: it is cancelled should it come.
        out.kind = Observation::Kind::absent;
    } else {
        out = pending(handover(attempt).reason);
    }
    if (attempt.id != 0) {
        out.id = std::to_string(attempt.id);
    }
    return out;
}

}  // namespace lockstep
