#include "daemon/control/machine/commands.hpp"

#include "daemon/control/machine/command_once.hpp"
#include "daemon/control/machine/hang_run.hpp"
#include "daemon/control/machine/profile_run.hpp"
#include "job/base/limits.hpp"
#include "job/model/recovery.hpp"

#include <string>
#include <utility>

namespace lockstep {
namespace {

void answer_when_stored(Draft& draft, std::function<void(Status)> done, const Status& answer) {
    draft.answers.push_back([done = std::move(done), answer](const Status& stored) {
        done(stored && !answer ? answer : stored);
    });
}

// The ranks are being started again already, or will be in another attempt.
bool is_being_recovered(const Job& job) {
    if (job.cancel_requested_at != 0) {
        return false;
    }
    const Generation* live = job.live_generation();
    if (live == nullptr || !live->first_failure) {
        return job.state == JobState::restarting || job.state == JobState::requeued;
    }
    const auto reason = reason_to_stop(job);
    return reason && plan_recovery(job, *reason).kind != Recovery::none;
}

std::string why_not_restarted(const Job& job) {
    const Generation* live = job.live_generation();
    if (live != nullptr && live->first_failure) {
        return "its ranks have failed and the job is ending";
    }
    return "nothing runs that could be started again: the job is " +
           std::string{to_string(job.state)};
}

}  // namespace

void cancel(Draft& draft, const CancelInput& input) {
    if (!is_final(draft.job().state) && draft.job().cancel_requested_at == 0) {
        event::CancelRequested asked;
        asked.by = input.by;
        draft.add(std::move(asked));
    }
    draft.answers.push_back(input.done);
}

void restart(Draft& draft, const SaveRound& saving, const RestartInput& input) {
    if (answer_known(draft, input, Command::restart)) {
        return;
    }
    if (saving.holds(input.by, input.key)) {
        draft.answers.push_back([done = input.done](const Status& stored) {
            done(stored ? Status{fail(key_reused(Command::checkpoint))} : stored);
        });
        return;
    }
    const Job& job = draft.job();
    const Generation* live = job.live_generation();
    const bool may_begin = live != nullptr && !live->first_failure && job.cancel_requested_at == 0;
    const bool between = is_being_recovered(job);
    const bool joins = between || !job.restart_requested_by.empty();
    Status answer;
    if (!may_begin && !between) {
        answer = fail(Errc::conflict, why_not_restarted(job));
    } else if (joins && !input.key.empty() && job.keys_joining >= limits::kCommandKeysJoining) {
        answer = fail(too_many_keys());
    } else if (!joins || !input.key.empty()) {
        event::RestartRequested asked;
        asked.attempt = job.attempt()->number;
        asked.generation = job.generation() != nullptr ? job.generation()->number : 0;
        asked.by = input.by;
        asked.key = input.key;
        draft.add(std::move(asked));
    }
    answer_when_stored(draft, input.done, answer);
}

void dependency_failed(Draft& draft, const DependencyInput& input) {
    event::DependencyFailed failed;
    failed.after = input.after;
    failed.message = input.after + ", which it was to run after, has not succeeded";
    draft.add(std::move(failed));
}

void look_at_ranks(Draft& draft, AttemptRun& run, const EvidenceInput& input) {
    const Generation* live = draft.job().live_generation();
    Status answer;
    if (live == nullptr || draft.job().state != JobState::running ||
        draft.before().live_generation() == nullptr) {
        answer = fail(Errc::conflict, "no rank runs that could be looked at: the job is " +
                                          std::string{to_string(draft.job().state)});
    } else if (!run.generation.evidence && live->looks + 1 >= limits::kEvidenceEvents) {
        answer = fail(Errc::conflict, "the ranks of this generation have been looked at " +
                                          std::to_string(live->looks) +
                                          " times; one look more is kept for a hang");
    } else if (!run.generation.evidence) {  // what is under way already answers this too
        HangWatch::Verdict standing;
        if (const auto* series = draft.at.series) {
            standing = HangWatch::standing(*series);
        }
        ask_for_evidence(draft, run, std::move(standing), "asked for by " + input.by, false);
    }
    answer_when_stored(draft, input.done, answer);
}

void profile(Draft& draft, AttemptRun& run, ProfileInput& input) {
    const Status answer = ask_for_profile(draft, run, input);
    answer_when_stored(draft, input.done, answer);
}

}  // namespace lockstep
