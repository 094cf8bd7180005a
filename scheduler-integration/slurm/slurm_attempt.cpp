#include "scheduler-integration/slurm/slurm_attempt.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_attempt_facts.hpp"
#include "scheduler-integration/slurm/slurm_blame.hpp"
#include "scheduler-integration/slurm/slurm_copies.hpp"
#include "scheduler-integration/slurm/slurm_errors.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// An sbatch that fails without a word of Slurm's and leaves nothing behind is tried so often.
constexpr std::size_t kFailuresBelieved = 2;

std::int64_t number_in(const std::string& text) {
    return to_int(text).value_or(0);
}

// Also while sbatch is still at it: its job is there, and may be over before it says so. But what
// Slurm itself may have ended before any agent had called in is to be handed in again, which has to
// wait for that sbatch.
bool end_is_known(const SlurmAttempt& attempt) {
    if (!attempt.confirmed || !attempt.last_verdict.terminal) {
        return false;
    }
    const bool again = !is_claimed(attempt) && !attempt.cancelled && !attempt.cancel_wanted &&
                       !attempt.over && blame(*attempt.seen, nullptr) != Blame::others;
    return attempt.stage == SlurmAttempt::Stage::known ||
           (attempt.stage == SlurmAttempt::Stage::sending && attempt.id != 0 && !again);
}

// It ended before any agent had called in, and not because of us. What a person handed in is the
// person's to hand in again.
bool came_to_nothing(const SlurmAttempt& attempt) {
    return attempt.seen && attempt.stage == SlurmAttempt::Stage::known && end_is_known(attempt) &&
           !is_claimed(attempt) && !attempt.cancelled && !attempt.cancel_wanted && !attempt.over &&
           attempt.request.submission == Submission::automatic &&
           attempt.request.follow_only.empty();
}

// As if the job had never been. What was found in doubt may be an earlier try's, and the last one
// may still come.
void let_go(SlurmAttempt& attempt) {
    attempt.stage =
        attempt.was_in_doubt ? SlurmAttempt::Stage::in_doubt : SlurmAttempt::Stage::gone;
    forget_job(attempt);
}

std::string listed_names(const std::vector<std::string>& nodes) {
    std::string out;
    for (const std::string& node : nodes) {
        out += (out.empty() ? "" : ", ") + node;
    }
    return out;
}

// Forgets a job that Slurm ended by itself, so that it is submitted again; a few times only.
void let_go_if_stillborn(SlurmAttempt& attempt, const SlurmPatience& patience) {
    if (!came_to_nothing(attempt) || wants_detail(attempt) ||
        attempt.stillborn.size() >= patience.stillborn) {
        return;
    }
    const SlurmJobDetail* detail = attempt.detail ? &*attempt.detail : nullptr;
    if (!attempt.abandoned && blame(*attempt.seen, detail) != Blame::slurm) {
        return;
    }
    std::string how = job_words(attempt);
    if (attempt.abandoned) {
        how += " was not started on its nodes";
    } else if (attempt.last_verdict.end == SlurmEnd::cancelled) {
        how += " was ended by Slurm itself";
    } else {
        how += " " + std::string{plain_words(attempt.last_verdict.end)} + exit_words(attempt);
    }
    attempt.message = how;
    attempt.stillborn.push_back({attempt.id, attempt.seen->submitted_at, std::move(how)});
    let_go(attempt);
}

// slurmctld had answered before the question went out: what it took is in this answer. Of some that
// it refuses it keeps a FAILED record without nodes; that is not the job.
bool believe_denial(SlurmAttempt& attempt, const std::vector<SlurmJob>& rows, SteadyTime asked) {
    if (attempt.stage != SlurmAttempt::Stage::in_doubt || !attempt.denied ||
        asked < attempt.last_try_end) {
        return false;
    }
    const bool there = std::any_of(rows.begin(), rows.end(), [&](const SlurmJob& row) {
        return !is_stillborn(attempt, row) && (!row.verdict().terminal || !row.nodes.empty());
    });
    attempt.denied = there;
    if (!there) {
        attempt.stage = SlurmAttempt::Stage::refused;
    }
    return !there;
}

void see(SlurmAttempt& attempt, const SlurmJob& row, SteadyTime at) {
    const SlurmVerdict verdict = row.verdict();
    if (row.id != attempt.id || !verdict.terminal) {
        attempt.detail.reset();
    }
    // What lockstepd has ended itself ends as it says, and is not put back (--no-requeue).
    const bool told = is_claimed(attempt) && attempt.ending && verdict.end == SlurmEnd::failed;
    attempt.confirmed = verdict.terminal &&
                        (!verdict.confirm || told ||
                         (attempt.seen && attempt.id == row.id && attempt.last_verdict == verdict));
    attempt.id = row.id;
    // A job that is the attempt's now: it only has a number that a surplus one had.
    std::erase_if(attempt.fenced, [&](const auto& one) { return one.id == row.id; });
    attempt.seen = row;
    attempt.seen_at = at;
    attempt.unseen_in_a_row = 0;
    attempt.tried_in_vain = false;
    attempt.last_verdict = verdict;
    attempt.empty_answers = 0;
    attempt.unwatched = false;
    if (is_claimed(attempt) || verdict.phase != SlurmPhase::running) {
        attempt.running_since.reset();
    } else if (!attempt.running_since) {
        attempt.running_since = at;
    }
    if (attempt.stage != SlurmAttempt::Stage::sending) {
        attempt.was_in_doubt =
            attempt.was_in_doubt || attempt.stage == SlurmAttempt::Stage::in_doubt;
        attempt.stage = SlurmAttempt::Stage::known;
    }
}

}  // namespace

SlurmAttempt take_up(AttemptRequest request, SteadyTime now, std::chrono::milliseconds age) {
    SlurmAttempt out;
    out.name = slurm::batch_job_name(request.name, request.job, request.attempt);
    out.id = number_in(request.scheduler_id);
    out.claimed = number_in(request.allocation);
    if (out.claimed != 0) {
        out.id = out.claimed;
        out.claimed_at = now;
    }
    if (out.id != 0) {
        out.stage = SlurmAttempt::Stage::known;
    } else if (!request.follow_only.empty()) {
        out.stage = SlurmAttempt::Stage::in_doubt;
        out.message = request.follow_only;
    } else if (request.intent_at != 0 && !request.intent_is_fresh) {
        out.stage = SlurmAttempt::Stage::in_doubt;
        out.message = "lockstepd was restarted while it handed the job to Slurm";
    }
    out.last_try_end = now;
    out.looked_at = now - age;
    out.request = std::move(request);
    return out;
}

bool may_send(const SlurmAttempt& attempt) {
    return attempt.request.submission == Submission::automatic && !attempt.cancel_wanted &&
           !attempt.over && attempt.claimed == 0 && attempt.request.follow_only.empty() &&
           (attempt.stage == SlurmAttempt::Stage::idle ||
            attempt.stage == SlurmAttempt::Stage::safe ||
            attempt.stage == SlurmAttempt::Stage::gone);
}

Handover handover(const SlurmAttempt& attempt) {
    Handover out;
    out.warning = attempt.warning;
    const bool manual = attempt.request.submission == Submission::manual;
    if (attempt.was_in_doubt && attempt.seen && !is_claimed(attempt) &&
        attempt.last_verdict.terminal && !attempt.ended()) {
        // Recorded as placed, it would take the doubt of the next daemon.
        out.reason = job_words(attempt) + " has ended before any agent had called in; " +
                     "whether Slurm has another one is not known yet";
    } else if (attempt.id != 0 && attempt.stage != SlurmAttempt::Stage::gone) {
        out.kind = Handover::Kind::placed;
        out.id = std::to_string(attempt.id);
    } else if (attempt.stage == SlurmAttempt::Stage::refused) {
        out.kind = Handover::Kind::refused;
        const std::string_view field = field_of_refusal(attempt.message);
        out.reason = (field.empty() ? "" : std::string{field} + ": ") + attempt.message;
    } else if (attempt.stage == SlurmAttempt::Stage::gone && !attempt.request.follow_only.empty()) {
        out.kind = Handover::Kind::refused;
        out.reason = attempt.message + "; " + attempt.request.follow_only;
    } else if (attempt.stage == SlurmAttempt::Stage::sending) {
        out.reason = "being handed to Slurm";
    } else if (attempt.stage == SlurmAttempt::Stage::in_doubt) {
        out.reason = "whether Slurm has it is not known yet: " + attempt.message;
        if (attempt.cancel_wanted) {
            out.reason =
                "it is being ended; what Slurm may have of it is cancelled when it appears";
        }
    } else if (manual) {
        out.kind = Handover::Kind::placed;  // everything is prepared; a person does the rest
    } else if (may_send(attempt)) {
        out.kind = Handover::Kind::again;
    } else {
        out.reason = "it is being ended";
    }
    return out;
}

void take_reply(SlurmAttempt& attempt, const SubmitReply& reply, SteadyTime now) {
    attempt.last_try_end = now;
    attempt.empty_answers = 0;
    attempt.was_in_doubt = false;
    attempt.looked_at = now;
    attempt.unwatched = false;
    attempt.denied = false;
    attempt.tried_in_vain = reply.ended_badly;
    if (reply.kind == SubmitReply::Kind::accepted) {
        // Its number may have been another job's before.
        std::erase_if(attempt.fenced, [&](const auto& one) { return one.id == reply.id; });
        if (attempt.id != reply.id && !is_claimed(attempt) && attempt.last_verdict.terminal) {
            forget_job(attempt);  // what squeue showed meanwhile was an earlier one, and dead
        }
    }
    if (attempt.id != 0) {  // squeue was faster
        attempt.stage = SlurmAttempt::Stage::known;
        return;
    }
    attempt.message = reply.message;
    switch (reply.kind) {
        case SubmitReply::Kind::accepted:
            attempt.stage = SlurmAttempt::Stage::known;
            attempt.id = reply.id;
            break;
        case SubmitReply::Kind::rejected:
            attempt.stage = SlurmAttempt::Stage::refused;
            if (!attempt.request.exclude.empty() && !attempt.without_exclusion) {
                attempt.without_exclusion = true;
                attempt.stage = SlurmAttempt::Stage::safe;
                attempt.warning = "Slurm does not take attempt " +
                                  std::to_string(attempt.request.attempt) + " without " +
                                  listed_names(attempt.request.exclude) + " (" + reply.message +
                                  "): it may run there again, although it failed there before";
            }
            break;
        case SubmitReply::Kind::later:
            attempt.stage = SlurmAttempt::Stage::safe;
            attempt.not_before = now + limits::kSubmitLimitPause;
            break;
        case SubmitReply::Kind::not_submitted:
            attempt.stage = SlurmAttempt::Stage::safe;
            break;
        case SubmitReply::Kind::denied:
            attempt.denied = true;
            attempt.stage = SlurmAttempt::Stage::in_doubt;
            break;
        case SubmitReply::Kind::ambiguous:
            attempt.stage = SlurmAttempt::Stage::in_doubt;
            break;
    }
}

void take_rows(SlurmAttempt& attempt, const std::vector<SlurmJob>& rows, SteadyTime asked,
               const SlurmPatience& patience) {
    attempt.surplus.clear();
    if (attempt.stage == SlurmAttempt::Stage::refused || believe_denial(attempt, rows, asked)) {
        return;  // Slurm keeps a FAILED record of some that it refuses
    }
    if (asked > attempt.looked_at) {
        // slurmctld counts whole seconds (job_mgr.c, _list_find_job_old()): it forgets a job up to
        // one of them early.
        const std::chrono::milliseconds age = patience.min_job_age;
        attempt.unwatched =
            attempt.unwatched ||
            (age.count() > 0 &&
             asked - attempt.looked_at >= age - std::min(std::chrono::milliseconds{1000}, age / 2));
        attempt.looked_at = asked;
    }
    if (const SlurmJob* chosen = choose_copy(attempt, rows)) {
        see(attempt, *chosen, asked);
    }
    find_surplus(attempt, rows);
    if (was_requeued(attempt)) {
        attempt.surplus.push_back(attempt.id);
    }
    const std::size_t before = attempt.stillborn.size();
    let_go_if_stillborn(attempt, patience);
    if (attempt.stillborn.size() != before) {
        return;
    }
    const bool there = std::any_of(rows.begin(), rows.end(),
                                   [&](const SlurmJob& row) { return row.id == attempt.id; });
    if (there || asked < attempt.last_try_end) {
        return;
    }
    if (attempt.stage == SlurmAttempt::Stage::known && !attempt.ended()) {
        if (attempt.empty_answers == 0) {
            attempt.first_empty = asked;
            attempt.empty_answers = 1;
        } else if (asked - attempt.first_empty >= patience.between_empty) {
            ++attempt.empty_answers;
        }
    } else if (attempt.stage == SlurmAttempt::Stage::in_doubt &&
               asked >= attempt.last_try_end + patience.quarantine) {
        attempt.first_empty = attempt.last_try_end;
        attempt.empty_answers = 2;
    }
}

bool SlurmAttempt::ended() const {
    return end_is_known(*this) && !wants_detail(*this);
}

bool wants_detail(const SlurmAttempt& attempt) {
    if (!end_is_known(attempt) || attempt.detail) {
        return false;
    }
    if (is_claimed(attempt)) {
        return attempt.ending && !attempt.over &&
               !(attempt.done && attempt.last_verdict.end == SlurmEnd::ok);
    }
    return came_to_nothing(attempt) && !attempt.abandoned &&
           blame(*attempt.seen, nullptr) == Blame::unclear;
}

void take_detail(SlurmAttempt& attempt, const SlurmJobDetail& detail,
                 const SlurmPatience& patience) {
    attempt.detail = detail;
    let_go_if_stillborn(attempt, patience);
}

bool nobody_came(const SlurmAttempt& attempt, SteadyTime asked, const SlurmPatience& patience) {
    const auto time = imports_image(attempt) ? std::max(patience.importing, patience.unclaimed)
                                             : patience.unclaimed;
    return attempt.stage == SlurmAttempt::Stage::known && attempt.running_since &&
           asked - *attempt.running_since >= time && !is_claimed(attempt) &&
           !attempt.cancel_wanted && !attempt.over && !attempt.abandoned &&
           attempt.stillborn.size() < patience.stillborn &&
           attempt.request.submission == Submission::automatic &&
           attempt.request.follow_only.empty();
}

bool wants_history(const SlurmAttempt& attempt, SteadyTime asked) {
    return attempt.empty_answers >= 2 && asked >= attempt.last_try_end &&
           (attempt.stage == SlurmAttempt::Stage::known ||
            attempt.stage == SlurmAttempt::Stage::in_doubt) &&
           !attempt.ended();
}

void take_history(SlurmAttempt& attempt, const std::vector<SlurmJob>& rows, SteadyTime asked,
                  const SlurmPatience& patience) {
    const SlurmJob* chosen = choose_copy(attempt, rows);
    if (chosen != nullptr && chosen->verdict().terminal) {
        see(attempt, *chosen, attempt.seen_at);
        attempt.confirmed = true;  // the controller no longer has it: nothing follows
        let_go_if_stillborn(attempt, patience);
        return;
    }
    if (chosen != nullptr && asked - attempt.first_empty < limits::kStaleAccounting) {
        return;
    }
    // A wrapper around sbatch that refuses in words of its own looks like one that failed on the
    // way; the second time, with nothing in Slurm after either, it is believed.
    if (attempt.stage == SlurmAttempt::Stage::in_doubt &&
        std::exchange(attempt.tried_in_vain, false) && ++attempt.failures >= kFailuresBelieved) {
        attempt.stage = SlurmAttempt::Stage::refused;
        return;
    }
    attempt.message = attempt.id == 0        ? "it never reached Slurm"
                      : attempt.number_taken ? "Slurm has lost job " + std::to_string(attempt.id) +
                                                   ", whose number is another job's now"
                                             : job_words(attempt) + " is no longer in Slurm";
    const bool doubt =
        attempt.unwatched && !patience.accounting && !is_claimed(attempt) && attempt.id != 0;
    if (doubt) {
        attempt.message += "; lockstepd was away for longer than Slurm remembers an ended job (" +
                           std::to_string(patience.min_job_age.count()) +
                           " s), and there is no slurmdbd to ask: cancelled outside?";
    }
    const bool hidden = count_unseen(attempt, patience);
    const bool over = hidden || (doubt && patience.doubt_ends);
    if (doubt && !over) {
        attempt.warning = attempt.message + " It is submitted again (--on-external-cancel)";
    }
    if (!is_claimed(attempt)) {
        let_go(attempt);
    }
    attempt.stage = over ? SlurmAttempt::Stage::refused : SlurmAttempt::Stage::gone;
}

}  // namespace lockstep
