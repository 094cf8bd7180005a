// size: every question to the scheduler about one job
// What a job asks of the scheduler: to take it, how it is doing, to end it, and how it ended.
#include "daemon/control/attempt_files.hpp"
#include "daemon/control/job_actor.hpp"
#include "daemon/control/node_notes.hpp"
#include "job/async/on_thread.hpp"
#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/spec_secrets.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Agents that were told to stop take their allocation with them; it is ended by force after this.
constexpr auto kLeavePatience = std::chrono::seconds{5};

}  // namespace

AttemptRequest JobActor::request() const {
    const Attempt& attempt = *job_.attempt();
    AttemptRequest out = attempt_request(job_.id, attempt.number, job_.spec, attempt.directory);
    out.user = job_.user;
    out.intent_at = attempt.submitting_at;
    out.intent_is_fresh = run_.intent_fresh;
    out.scheduler_id = attempt.scheduler_id;
    out.allocation = attempt.allocation;
    out.exclude = nodes_to_exclude(job_);
    if (!job_.signature.empty()) {
        out.signature = job_.signature;
        out.signed_point = job_.sweep ? job_.sweep->index : 0;
        out.own_directory =
            attempt_directory(context_.settings.runs_dir, job_.id, attempt.number).string();
    }
    const auto& followed = context_.settings.copied.followed;
    if (const auto since = followed.find(job_.id.value); since != followed.end()) {
        out.follow_only = "restored from a backup of " + to_rfc3339(since->second).substr(0, 19) +
                          "Z: whether it has run since is not known, so it is not handed in again";
    }
    return out;
}

Task<void> JobActor::create_attempt() {
    const auto number = static_cast<std::int32_t>(job_.attempts.size()) + 1;
    AgentsListener listener;
    Result<PreparedAttempt> prepared = fail(Errc::unavailable, "not yet");
    do {  // again, if agents have meanwhile to be told something else
        listener = context_.settings.agents;
        const std::function<Result<PreparedAttempt>()> prepare =
            [runs = context_.settings.runs_dir, id = job_.id, number,
             nodes = job_.spec.resources.allocated_nodes(), listener,
             runs_as = context_.scheduler.identities() != nullptr ? job_.user : std::string{}] {
                return prepare_attempt(runs, id, number, nodes, listener, runs_as);
            };
        prepared = co_await on_thread<Result<PreparedAttempt>>(context_.files, prepare);
    } while (prepared && listener != context_.settings.agents);
    if (!prepared) {
        set_pending_reason("cannot prepare the attempt: " + prepared.error().message);
        log::warn("cannot prepare an attempt",
                  {{"job", job_.id.value}, {"what", prepared.error().message}});
        co_return;  // tried again at the next tick
    }
    event::AttemptCreated created;
    created.attempt = number;
    created.ticket_hash = prepared->ticket_hash;
    created.directory =
        job_.signature.empty()
            ? prepared->directory
            : context_.scheduler.signatures()->folder(job_.user, job_.id, number).string();
    Draft next = draft();
    add(next, std::move(created));
    const bool stored = co_await commit(std::move(next));
    if (stored) {
        set_pending_reason("");
        hooks_.on_attempt(*this);
        inputs_.emplace_back(LookInput{});
    }
}

// Before an attempt waits in a queue for nothing. What the scheduler may have already is left to
// its agents, who are told the same: they may have the secrets since long.
std::vector<std::string> JobActor::missing_secrets_now() const {
    const Attempt& attempt = *job_.attempt();
    const bool fresh = attempt.submissions == 0 && attempt.placed_at == 0 && attempt.claims.empty();
    return fresh && context_.secrets != nullptr
               ? context_.secrets->missing(job_.user, job_.spec.secrets)
               : std::vector<std::string>{};
}

// True once the scheduler has the attempt. An intent is on disk before each try: whatever comes of
// the try, the next daemon knows that there may be something to find.
Task<bool> JobActor::hand_over() {
    if (const auto missing = missing_secrets_now(); !missing.empty()) {
        event::FaultSeen fault;
        fault.attempt = job_.attempt()->number;
        fault.cause_class = to_string(CauseClass::user_error);
        fault.message = removed_secrets(missing);
        fault.at = context_.clock.wall();
        Draft next = draft();
        add(next, std::move(fault));
        co_await commit_and_look(std::move(next));
        co_return false;
    }
    const AttemptRequest asked = request();
    run_.intent_fresh = false;
    const Handover done = co_await context_.scheduler.submit(asked);
    Draft next = draft();
    warn(next, done.warning);
    switch (done.kind) {
        case Handover::Kind::placed:
            run_.submitted = true;
            if (job_.attempt()->submissions > 0 && job_.attempt()->scheduler_id != done.id &&
                job_.attempt()->placed_at == 0) {
                event::AttemptSubmitted submitted;
                submitted.attempt = job_.attempt()->number;
                submitted.scheduler_id = done.id;
                add(next, std::move(submitted));
                set_pending_reason("");
            }
            break;
        case Handover::Kind::wait:
            if (job_.attempt()->placed_at == 0) {
                set_pending_reason(done.reason);
            }
            break;
        case Handover::Kind::again: {
            event::AttemptSubmitting intent;
            intent.attempt = job_.attempt()->number;
            intent.number = job_.attempt()->submissions + 1;
            if (add(next, std::move(intent))) {
                next.effects.push_back([this] { run_.intent_fresh = true; });
            }
            break;
        }
        case Handover::Kind::refused: {
            event::FaultSeen fault;
            fault.attempt = job_.attempt()->number;
            fault.cause_class = to_string(CauseClass::scheduler);
            fault.message = done.reason;
            fault.at = context_.clock.wall();
            add(next, std::move(fault));
            break;
        }
    }
    if (!next.events.empty()) {
        co_await commit_and_look(std::move(next));
        co_return false;
    }
    co_return run_.submitted;
}

// Said once, however often it comes up.
void JobActor::warn(Draft& draft, const std::string& message, const std::string& node) {
    const auto& known = draft.job().warnings;
    if (message.empty() || known.size() >= limits::kJobWarnings ||
        std::find(known.begin(), known.end(), message) != known.end()) {
        return;
    }
    event::WarningGiven warning;
    warning.attempt = draft.job().attempt() != nullptr ? draft.job().attempt()->number : 0;
    if (const Generation* live = draft.job().live_generation()) {
        warning.generation = live->number;
    }
    warning.node = node;
    warning.message = message;
    if (add(draft, std::move(warning))) {
        log::warn("a job has a warning", {{"job", job_.id.value}, {"what", message}});
    }
}

Task<void> JobActor::place() {
    if (!run_.submitted) {
        const bool there = co_await hand_over();
        if (!there) {
            co_return;
        }
    }
    const std::int32_t number = job_.attempt()->number;
    const Observation seen = co_await context_.scheduler.poll(job_.id, number);
    look_whether_aside(seen);
    learn_nodes(seen);
    if (seen.kind == Observation::Kind::absent) {
        run_.submitted = false;  // forgotten: hand it over again
        inputs_.emplace_back(LookInput{});
    } else if (seen.kind == Observation::Kind::unreachable) {
        set_pending_reason(seen.message.empty() ? "the scheduler does not answer" : seen.message);
    } else if (seen.state == AllocationState::pending) {
        co_await wait_in_queue(seen);
    } else if (seen.state == AllocationState::ended && seen.cause.kind != CauseClass::none) {
        co_await end_unclaimed(seen);
    } else {
        event::AttemptPlaced placed;
        placed.attempt = number;
        placed.scheduler_id = !seen.id.empty() ? seen.id
                                               : std::string{context_.scheduler.name()} + "-" +
                                                     job_.id.value + "-a" + std::to_string(number);
        Draft next = draft();
        add(next, std::move(placed));
        const bool stored = co_await commit(std::move(next));
        if (stored) {
            set_pending_reason("");
            inputs_.emplace_back(LookInput{});
        }
    }
}

// The scheduler's word is all there is of an attempt that no agent has called in from.
Task<void> JobActor::end_unclaimed(const Observation& seen) {
    Draft next = draft();
    event::FaultSeen fault;
    fault.attempt = job_.attempt()->number;
    fault.cause_class = to_string(seen.cause.kind);
    fault.message = seen.cause.message;
    fault.node = seen.cause.node;
    fault.at = context_.clock.wall();
    if (const auto words = first_last_words()) {
        fault.message += "; the agent of " + words->node + ": " + words->reason;
    }
    add(next, std::move(fault));
    co_await commit_and_look(std::move(next));
}

// Of the agents that came with nobody hearing them: the daemon's certificate was another one, say.
std::optional<wire::GaveUpFile> JobActor::first_last_words() const {
    for (std::int32_t node = 0; node < job_.spec.resources.allocated_nodes(); ++node) {
        if (auto words = read_gave_up(job_.attempt()->directory, node, "")) {
            return words;
        }
    }
    return std::nullopt;
}

void JobActor::look_whether_aside(const Observation& seen) {
    if (seen.kind == Observation::Kind::unreachable) {
        return;
    }
    const bool aside = seen.kind == Observation::Kind::state &&
                       seen.state == AllocationState::pending && (seen.held || seen.later);
    set_aside(aside);
}

void JobActor::set_aside(bool aside) {
    if (std::exchange(aside_, aside) != aside) {
        hooks_.on_aside(*this);
    }
}

void JobActor::learn_nodes(const Observation& seen) {
    if (seen.kind == Observation::Kind::state) {
        witness_.learn(job_.attempt()->number, seen.id, seen.nodes,
                       static_cast<std::size_t>(job_.spec.resources.allocated_nodes()));
    }
}

bool JobActor::was_given(const std::string& node) const {
    return job_.attempt() != nullptr &&
           witness_.word(job_.attempt()->number, node) == NodeWitness::Word::given;
}

// Agents that say to be on other nodes than the attempt has go on: what a node is called decides
// nothing for its ranks, and a site may have its reasons. But nothing is remembered of such a node.
void JobActor::tell_foreign_nodes(Draft& draft) {
    const Attempt& attempt = *draft.job().attempt();
    if (attempt.claims.size() == run_.claims_compared || !witness_.complete(attempt.number) ||
        !one_machine(context_.scheduler).empty()) {
        return;
    }
    run_.claims_compared = attempt.claims.size();
    std::vector<std::string> texts;
    for (const auto& [slot, claim] : attempt.claims) {
        if (witness_.word(attempt.number, claim.node) == NodeWitness::Word::foreign) {
            texts.push_back("the agent of node " + std::to_string(slot) + " says it is " +
                            claim.node +
                            ", which the scheduler has not given to the job: what happens there "
                            "is not remembered of that node");
        }
    }
    for (const std::string& text : texts) {
        warn(draft, text);
    }
}

Task<void> JobActor::wait_in_queue(Observation seen) {
    set_pending_reason(seen.reason, seen.expected_start);
    Draft next = draft();
    if (seen.held && job_.state == JobState::queued) {
        event::Held held;
        held.attempt = job_.attempt()->number;
        held.reason = seen.reason;
        add(next, std::move(held));
    } else if (!seen.held && job_.state == JobState::held) {
        event::Released released;
        released.attempt = job_.attempt()->number;
        add(next, released);
    }
    if (!next.events.empty()) {
        const bool stored = co_await commit(std::move(next));
        static_cast<void>(stored);  // said again at the next tick
    }
}

Task<void> JobActor::look_at_allocation() {
    if (!run_.submitted) {
        // After a restart of the daemon: the driver adopts what it finds of the attempt. What it
        // cannot find although it was placed is forgotten; with nobody in it, it starts anew.
        const bool there = co_await hand_over();
        if (!there && job_.attempt()->claims.empty()) {
            co_return;
        }
    }
    const Observation seen = co_await allocation();
    if (seen.kind == Observation::Kind::absent && job_.attempt()->claims.empty()) {
        run_.submitted = false;
        co_return;
    }
    if (seen.kind == Observation::Kind::state && seen.state == AllocationState::ended &&
        seen.cause.kind != CauseClass::none && job_.attempt()->claims.empty()) {
        co_await end_unclaimed(seen);
        co_return;
    }
    const bool paused = seen.kind == Observation::Kind::state && seen.paused;
    if (paused || run_.was_paused) {
        set_pending_reason(paused ? seen.message : "");
        forgive_silence();  // agents that stand still say nothing
        run_.was_paused = paused;
    }
    Draft next = draft();
    tell_foreign_nodes(next);
    const bool over = seen.kind == Observation::Kind::state && seen.state == AllocationState::ended;
    if (over) {
        look_at_outlived(next, seen);
    }
    const bool look = nodes_are_due() || over;
    if (look && seen.kind != Observation::Kind::unreachable) {
        read_results(next, seen);
    }
    if (!paused) {
        if (look) {
            note_lost_agents(next);
        }
        look_for_hang(next);
        look_for_anomalies(next);
        look_at_growth(next);
    }
    if (look && job_.state == JobState::restarting) {
        expect_end_if_left();
    }
    tell_checkpoint(next, false);
    look_at_preflight(next);
    form_generation(next);
    if (!paused) {
        tell_missing();
    }
    if (!next.events.empty()) {
        co_await commit_and_look(std::move(next));
    }
}

// Ends what runs: STOP to every agent, then by force. What the ranks did is heard as usual; this is
// called again with every input and tick until due() says conclude, or, if another attempt follows,
// until the allocation is over.
Task<void> JobActor::stop_attempt(Cause cause) {
    const auto now = context_.clock.steady();
    if (!run_.stopping) {
        run_.stopping.emplace();
        run_.stopping->since = now;
        log::info(
            "stopping job",
            {{"job", job_.id.value}, {"class", to_string(cause.kind)}, {"why", cause.message}});
    }
    for (const auto& [node_rank, link] : run_.links) {
        if (!link->stop_sent) {
            link->stop_sent = true;
            wire::Stop stop;
            stop.reason = cause.message;
            stop.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
            link->send(stop);
        }
    }
    const std::int32_t number = job_.attempt()->number;
    if (!run_.submitted) {
        // The daemon was restarted while it was stopping this attempt: the driver must know its
        // agents before it can end them. What was not started must not start now.
        const auto adopted = co_await context_.scheduler.adopt(request());
        // What nobody has claimed has no ranks: it need not be found before the job may end.
        const bool waits = job_.cancel_requested_at == 0 || !job_.attempt()->claims.empty();
        if (!adopted && waits) {
            set_pending_reason("cannot end yet: " + adopted.error().message);
            co_return;
        }
        run_.submitted = true;
    }
    context_.scheduler.expect_end(job_.id, number);
    StopRun& stopping = *run_.stopping;
    if (!run_.links.empty()) {
        stopping.alone_since.reset();
    } else if (!stopping.alone_since) {
        stopping.alone_since = now;
    }
    const bool overdue = now - stopping.since > limits::kStopGrace + kLeavePatience;
    const bool left_behind =
        stopping.alone_since &&
        (job_.attempt()->claims.empty() || now - *stopping.alone_since >= kLeavePatience);
    if ((left_behind || overdue) && !stopping.cancelled) {
        const Status cancelled = co_await context_.scheduler.cancel(job_.id, number);
        run_.stopping->cancelled = cancelled.has_value();
    }
    const Observation seen = co_await allocation();
    // Forgotten by the scheduler is no proof that its agents have left, and ranks of another
    // attempt must not start beside theirs.
    const bool left = run_.links.empty() || overdue || !job_.spec.recovery.wanted;
    const bool over =
        (seen.kind == Observation::Kind::absent && left) ||
        (seen.kind == Observation::Kind::state && seen.state == AllocationState::ended);
    Draft next = draft();
    if (over) {
        read_results(next, seen);
        add_verdict(next, seen);
    }
    set_pending_reason(!over && seen.kind == Observation::Kind::state && !seen.ending.empty()
                           ? "waits for Slurm to end node " + seen.ending
                           : "");
    const bool stored = co_await commit(std::move(next));
    if (!stored) {
        co_await sleep_on(retry_, kStoreRetry);  // nothing is lost: the ranks' files are there
        co_return;
    }
    if (!over || !inputs_.empty()) {
        co_return;
    }
    // The scheduler's word may have changed what follows.
    const Action follows = due(job_, context_.clock.wall());
    if (follows.kind == ActionKind::next_attempt) {
        co_await end_attempt(follows.cause);
    } else if (follows.kind == ActionKind::restart) {
        // In an allocation that is over: said next, as the fault of the attempt.
        run_.stopping.reset();
        co_await end_generation(follows.cause, AfterEnd::look);
    } else {
        co_await conclude();
    }
}

}  // namespace lockstep
