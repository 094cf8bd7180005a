#include "daemon/control/actor/attempt_handover.hpp"

#include "daemon/control/actor/node_notes.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "job/async/on_thread.hpp"
#include "job/base/log.hpp"
#include "job/model/spec/spec_secrets.hpp"

#include <functional>
#include <utility>

namespace lockstep {

AttemptRequest AttemptHandover::request() const {
    const Attempt& attempt = *job().attempt();
    AttemptRequest out = attempt_request(job().id, attempt.number, job().spec, attempt.directory);
    out.user = job().user;
    out.intent_at = attempt.submitting_at;
    out.intent_is_fresh = machine_.run().intent_fresh;
    out.scheduler_id = attempt.scheduler_id;
    out.allocation = attempt.allocation;
    out.exclude = nodes_to_exclude(job());
    if (!job().signature.empty()) {
        out.signature = job().signature;
        out.signed_point = job().sweep ? job().sweep->index : 0;
        out.own_directory =
            attempt_directory(context_.settings.runs_dir, job().id, attempt.number).string();
    }
    const auto& followed = context_.settings.copied.followed;
    if (const auto since = followed.find(job().id.value); since != followed.end()) {
        out.follow_only = "restored from a backup of " + to_rfc3339(since->second).substr(0, 19) +
                          "Z: whether it has run since is not known, so it is not handed in again";
    }
    return out;
}

Task<void> AttemptHandover::create() {
    const auto number = static_cast<std::int32_t>(job().attempts.size()) + 1;
    AgentsListener listener;
    Result<PreparedAttempt> prepared = fail(Errc::unavailable, "not yet");
    do {  // again, if agents have meanwhile to be told something else
        listener = context_.settings.agents;
        // Beside the attempts before it, where the checkpoints are.
        const std::function<Result<PreparedAttempt>()> prepare =
            [folder = first_folder(job(), context_.settings.copied),
             runs = context_.settings.runs_dir, id = job().id, number,
             nodes = job().spec.resources.allocated_nodes(), listener,
             runs_as = context_.scheduler.identities() != nullptr ? job().user : std::string{}] {
                return prepare_attempt(runs_with(folder, runs), id, number, nodes, listener,
                                       runs_as);
            };
        prepared = co_await on_thread<Result<PreparedAttempt>>(context_.files, prepare);
    } while (prepared && listener != context_.settings.agents);
    if (!prepared) {
        std::string why = "cannot prepare the attempt: " + prepared.error().message;
        // Once a reason, not once a tick; what is wrong with all jobs the folder's watch tells.
        if (why != machine_.pending_reason()) {
            if (context_.runs_folder.problem().empty()) {
                log::warn("cannot prepare an attempt",
                          {{"job", job().id.value}, {"what", prepared.error().message}});
            }
            context_.runs_folder.doubt();
        }
        machine_.set_pending_reason(std::move(why));
        co_return;  // tried again at the next tick
    }
    event::AttemptCreated created;
    created.attempt = number;
    created.ticket_hash = prepared->ticket_hash;
    created.directory =
        job().signature.empty()
            ? prepared->directory
            : context_.scheduler.signatures()->folder(job().user, job().id, number).string();
    Draft next = draft();
    next.add(std::move(created));
    const bool stored = co_await steps_.commit(next);
    if (stored) {
        machine_.set_pending_reason("");
        steps_.attempt_created();
        steps_.look_again();
    }
}

// Before an attempt waits in a queue for nothing. What the scheduler may have already is left to
// its agents, who are told the same: they may have the secrets since long.
std::vector<std::string> AttemptHandover::missing_secrets_now() const {
    const Attempt& attempt = *job().attempt();
    const bool fresh = attempt.submissions == 0 && attempt.placed_at == 0 && attempt.claims.empty();
    return fresh && context_.secrets != nullptr
               ? context_.secrets->missing(job().user, job().spec.secrets)
               : std::vector<std::string>{};
}

// An intent is on disk before each try: whatever comes of
// the try, the next daemon knows that there may be something to find.
Task<bool> AttemptHandover::hand_over() {
    if (const auto missing = missing_secrets_now(); !missing.empty()) {
        event::FaultSeen fault;
        fault.attempt = job().attempt()->number;
        fault.cause_class = CauseClass::user_error;
        fault.message = removed_secrets(missing);
        fault.at = context_.clock.wall();
        Draft next = draft();
        next.add(std::move(fault));
        co_await steps_.commit_and_look(std::move(next));
        co_return false;
    }
    const AttemptRequest asked = request();
    machine_.run().intent_fresh = false;
    const Handover done = co_await context_.scheduler.submit(asked);
    bool announced = false;
    Draft next = draft();
    next.warn(done.warning);
    switch (done.kind) {
        case Handover::Kind::placed:
            machine_.run().submitted = true;
            if (job().attempt()->submissions > 0 && job().attempt()->scheduler_id != done.id &&
                job().attempt()->placed_at == 0) {
                event::AttemptSubmitted submitted;
                submitted.attempt = job().attempt()->number;
                submitted.scheduler_id = done.id;
                next.add(std::move(submitted));
                machine_.set_pending_reason("");
            }
            break;
        case Handover::Kind::wait:
            if (job().attempt()->placed_at == 0) {
                machine_.set_pending_reason(done.reason);
            }
            break;
        case Handover::Kind::again: {
            event::AttemptSubmitting intent;
            intent.attempt = job().attempt()->number;
            intent.number = job().attempt()->submissions + 1;
            announced = next.add(std::move(intent));
            break;
        }
        case Handover::Kind::refused: {
            event::FaultSeen fault;
            fault.attempt = job().attempt()->number;
            fault.cause_class = CauseClass::scheduler;
            fault.message = done.reason;
            fault.at = context_.clock.wall();
            next.add(std::move(fault));
            break;
        }
    }
    steps_.prepare(next);
    if (!next.events.empty()) {
        const bool stored = co_await steps_.commit_and_look(std::move(next));
        machine_.run().intent_fresh = stored && announced;
        co_return false;
    }
    co_return machine_.run().submitted;
}

Task<Status> AttemptHandover::adopt() {
    const AttemptRequest asked = request();
    const auto adopted = co_await context_.scheduler.adopt(asked);
    machine_.run().submitted = adopted.has_value();
    LOCKSTEP_CO_TRY(adopted);
    co_return Status{};
}

}  // namespace lockstep
