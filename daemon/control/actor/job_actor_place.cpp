// size: every question to the scheduler about one job
// What a job asks of the scheduler: to take it, how it is doing, to end it, and how it ended.
#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/actor/node_notes.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "daemon/control/machine/verdict.hpp"
#include "job/async/on_thread.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/spec_secrets.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Connections that wait to be accepted: those over the kernel's limit are tried again by their
// agents' kernels after a second, and then after two.
void warn_of_queue(const Job& job) {
    const auto text = read_file("/proc/sys/net/core/somaxconn", 64);
    const auto limit = text ? to_int(trim(*text)) : std::nullopt;
    const std::int32_t nodes = job.spec.resources.allocated_nodes();
    if (limit && *limit < nodes) {
        log::warn("fewer connections may wait than the job has nodes; raise net.core.somaxconn",
                  {{"job", job.id.value}, {"somaxconn", *limit}, {"nodes", nodes}});
    }
}

}  // namespace

std::optional<wire::ResultFile> JobActor::Files::result(const Attempt& attempt,
                                                        std::int32_t slot) const {
    return read_result(attempt.directory, slot);
}

std::optional<wire::GaveUpFile> JobActor::Files::gave_up(const Attempt& attempt, std::int32_t slot,
                                                         const std::string& incarnation) const {
    return read_gave_up(attempt.directory, slot, incarnation);
}

std::optional<MemoryEvidence> JobActor::Files::memory(const Attempt& attempt,
                                                      std::int32_t nodes) const {
    return scheduler_.memory_evidence(attempt.directory, nodes);
}

AttemptRequest JobActor::request() const {
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

Task<void> JobActor::create_attempt() {
    const auto number = static_cast<std::int32_t>(job().attempts.size()) + 1;
    AgentsListener listener;
    Result<PreparedAttempt> prepared = fail(Errc::unavailable, "not yet");
    do {  // again, if agents have meanwhile to be told something else
        listener = context_.settings.agents;
        const std::function<Result<PreparedAttempt>()> prepare =
            [runs = context_.settings.runs_dir, id = job().id, number,
             nodes = job().spec.resources.allocated_nodes(), listener,
             runs_as = context_.scheduler.identities() != nullptr ? job().user : std::string{}] {
                return prepare_attempt(runs, id, number, nodes, listener, runs_as);
            };
        prepared = co_await on_thread<Result<PreparedAttempt>>(context_.files, prepare);
    } while (prepared && listener != context_.settings.agents);
    if (!prepared) {
        set_pending_reason("cannot prepare the attempt: " + prepared.error().message);
        log::warn("cannot prepare an attempt",
                  {{"job", job().id.value}, {"what", prepared.error().message}});
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
    const bool stored = co_await commit(next);
    if (stored) {
        set_pending_reason("");
        hooks_.on_attempt(*this);
        inputs_.emplace_back(LookInput{});
    }
}

// Before an attempt waits in a queue for nothing. What the scheduler may have already is left to
// its agents, who are told the same: they may have the secrets since long.
std::vector<std::string> JobActor::missing_secrets_now() const {
    const Attempt& attempt = *job().attempt();
    const bool fresh = attempt.submissions == 0 && attempt.placed_at == 0 && attempt.claims.empty();
    return fresh && context_.secrets != nullptr
               ? context_.secrets->missing(job().user, job().spec.secrets)
               : std::vector<std::string>{};
}

// True once the scheduler has the attempt. An intent is on disk before each try: whatever comes of
// the try, the next daemon knows that there may be something to find.
Task<bool> JobActor::hand_over() {
    if (const auto missing = missing_secrets_now(); !missing.empty()) {
        event::FaultSeen fault;
        fault.attempt = job().attempt()->number;
        fault.cause_class = CauseClass::user_error;
        fault.message = removed_secrets(missing);
        fault.at = context_.clock.wall();
        Draft next = draft();
        next.add(std::move(fault));
        co_await commit_and_look(std::move(next));
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
                set_pending_reason("");
            }
            break;
        case Handover::Kind::wait:
            if (job().attempt()->placed_at == 0) {
                set_pending_reason(done.reason);
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
    prepare(next);
    if (!next.events.empty()) {
        const bool stored = co_await commit_and_look(std::move(next));
        machine_.run().intent_fresh = stored && announced;
        co_return false;
    }
    co_return machine_.run().submitted;
}

Task<void> JobActor::place() {
    if (!machine_.run().submitted) {
        const bool there = co_await hand_over();
        if (!there) {
            co_return;
        }
    }
    const std::int32_t number = job().attempt()->number;
    const Observation seen = co_await context_.scheduler.poll(job().id, number);
    look_whether_aside(seen);
    learn_nodes(seen);
    if (seen.kind == Observation::Kind::absent) {
        machine_.run().submitted = false;  // forgotten: hand it over again
        inputs_.emplace_back(LookInput{});
    } else if (seen.kind == Observation::Kind::unreachable) {
        set_pending_reason(seen.message.empty() ? "the scheduler does not answer" : seen.message);
    } else if (seen.state == AllocationState::pending) {
        co_await wait_in_queue(seen);
    } else if (allocation_ended(seen) && seen.cause.kind != CauseClass::none) {
        co_await end_unclaimed(seen);
    } else {
        event::AttemptPlaced placed;
        placed.attempt = number;
        placed.scheduler_id = !seen.id.empty() ? seen.id
                                               : std::string{context_.scheduler.name()} + "-" +
                                                     job().id.value + "-a" + std::to_string(number);
        Draft next = draft();
        next.add(std::move(placed));
        const bool stored = co_await commit(next);
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
    fault.attempt = job().attempt()->number;
    fault.cause_class = seen.cause.kind;
    fault.message = seen.cause.message;
    fault.node = seen.cause.node;
    fault.at = context_.clock.wall();
    if (const auto words = first_last_words()) {
        fault.message += "; the agent of " + words->node + ": " + words->reason;
    }
    next.add(std::move(fault));
    co_await commit_and_look(std::move(next));
}

// Of the agents that came with nobody hearing them: the daemon's certificate was another one, say.
std::optional<wire::GaveUpFile> JobActor::first_last_words() const {
    for (std::int32_t node = 0; node < job().spec.resources.allocated_nodes(); ++node) {
        if (auto words = read_gave_up(job().attempt()->directory, node, "")) {
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
        witness_.learn(job().attempt()->number, seen.id, seen.nodes,
                       static_cast<std::size_t>(job().spec.resources.allocated_nodes()));
    }
}

bool JobActor::was_given(const std::string& node) const {
    return job().attempt() != nullptr &&
           witness_.word(job().attempt()->number, node) == NodeWitness::Word::given;
}

// Agents that say to be on other nodes than the attempt has go on: what a node is called decides
// nothing for its ranks, and a site may have its reasons. But nothing is remembered of such a node.
void JobActor::tell_foreign_nodes(Draft& draft) {
    const Attempt& attempt = *draft.job().attempt();
    if (attempt.claims.size() == machine_.run().claims_compared ||
        !witness_.complete(attempt.number) || !one_machine(context_.scheduler).empty()) {
        return;
    }
    machine_.run().claims_compared = attempt.claims.size();
    std::vector<std::string> texts;
    for (const auto& [slot, claim] : attempt.claims) {
        if (witness_.word(attempt.number, claim.node) == NodeWitness::Word::foreign) {
            texts.push_back("the agent of node " + std::to_string(slot) + " says it is " +
                            claim.node +
                            ", which the scheduler has not given to the job: what happens there "
                            "is not remembered of that node");
        }
    }
    const std::size_t from = draft.events.size();
    for (const std::string& text : texts) {
        draft.warn(text);
    }
    draft.found_once(from);  // they are compared once
}

Task<void> JobActor::wait_in_queue(Observation seen) {
    set_pending_reason(seen.reason, seen.expected_start);
    Draft next = draft();
    if (seen.held && job().state == JobState::queued) {
        event::Held held;
        held.attempt = job().attempt()->number;
        held.reason = seen.reason;
        next.add(std::move(held));
    } else if (!seen.held && job().state == JobState::held) {
        event::Released released;
        released.attempt = job().attempt()->number;
        next.add(released);
    }
    prepare(next);
    if (!next.events.empty()) {
        const bool stored = co_await commit(next);
        static_cast<void>(stored);  // said again at the next tick
    }
}

// What the scheduler says of the attempt, agents having called in or not. An end that it names
// nobody for is a person's once a rank may have run, and its own accident before: the same border
// as recovery's, and what is said of an accident ("before its ranks had started") is true there.
Task<Observation> JobActor::allocation() {
    Observation seen = co_await context_.scheduler.poll(job().id, job().attempt()->number);
    learn_nodes(seen);
    if (seen.accident && unstarted(*job().attempt())) {
        seen.cause = *seen.accident;
        seen.message = seen.cause.message;
    }
    co_return seen;
}

Task<void> JobActor::look_at_allocation() {
    if (job().generation() == nullptr && !std::exchange(machine_.run().queue_checked, true)) {
        warn_of_queue(job());
    }
    if (!machine_.run().submitted) {
        // After a restart of the daemon: the driver adopts what it finds of the attempt. What it
        // cannot find although it was placed is forgotten; with nobody in it, it starts anew.
        const bool there = co_await hand_over();
        if (!there && job().attempt()->claims.empty()) {
            co_return;
        }
    }
    const Observation seen = co_await allocation();
    if (seen.kind == Observation::Kind::absent && job().attempt()->claims.empty()) {
        machine_.run().submitted = false;
        co_return;
    }
    const bool over = allocation_ended(seen);
    if (over && seen.cause.kind != CauseClass::none && job().attempt()->claims.empty()) {
        co_await end_unclaimed(seen);
        co_return;
    }
    Draft next = draft();
    tell_foreign_nodes(next);
    const bool nodes_too = nodes_are_due() || over;
    machine_.look(next, seen, nodes_too);
    prepare(next);
    if (!next.events.empty()) {
        co_await commit_and_look(std::move(next));
    }
}

// Called with every input and tick until none of the generation's ranks lives.
Task<void> JobActor::restart_ranks(Cause cause) {
    perform(machine_.abort(cause, now()));
    if (!machine_.run().submitted) {  // the daemon was restarted meanwhile
        static_cast<void>(co_await adopt());
    }
    const bool nodes_too = nodes_are_due();
    if (nodes_too && machine_.somebody_left()) {
        context_.scheduler.expect_end(job().id, job().attempt()->number);
    }
    const Observation seen = co_await allocation();
    Draft next = draft();
    machine_.look_while_aborting(next, seen, nodes_too);
    prepare(next);
    if (!next.events.empty()) {
        co_await commit_and_look(std::move(next));
        co_return;
    }
    const bool over = allocation_ended(seen);
    if (over || !machine_.ranks_are_left()) {
        using AfterEnd = JobMachine::AfterEnd;
        const AfterEnd after = over ? AfterEnd::look : AfterEnd::next_generation;
        co_await end_generation(std::move(cause), after);
    }
}

Task<void> JobActor::end_generation(Cause cause, JobMachine::AfterEnd after) {
    co_await hooks_.flush_telemetry();
    Draft next = draft();
    const bool ended = machine_.end_generation(next, cause, after);
    prepare(next);
    if (ended) {
        co_await commit_and_look(std::move(next));
    }
}

// The allocation is over, another attempt follows.
Task<void> JobActor::next_attempt(Cause cause) {
    co_await hooks_.flush_telemetry();
    Draft next = draft();
    machine_.next_attempt(next, cause);
    co_await commit_and_look(std::move(next));
}

// The scheduler takes up what an earlier daemon handed over. An error: it does not know yet.
Task<Status> JobActor::adopt() {
    const AttemptRequest asked = request();
    const auto adopted = co_await context_.scheduler.adopt(asked);
    machine_.run().submitted = adopted.has_value();
    if (!adopted) {
        co_return fail(adopted.error());
    }
    co_return Status{};
}

// Ends what runs: STOP to every agent, then by force. What the ranks did is heard as usual; this is
// called again with every input and tick until due() says conclude, or, if another attempt follows,
// until the allocation is over.
Task<void> JobActor::stop_attempt(Cause cause) {
    perform(machine_.stop(cause, now()));
    const std::int32_t number = job().attempt()->number;
    if (!machine_.run().submitted) {
        // The daemon was restarted while it was stopping this attempt: the driver must know its
        // agents before it can end them. What was not started must not start now.
        const Status adopted = co_await adopt();
        // What nobody has claimed has no ranks: it need not be found before the job may end.
        const bool waits = job().cancel_requested_at == 0 || !job().attempt()->claims.empty();
        if (!adopted && waits) {
            set_pending_reason("cannot end yet: " + adopted.error().message);
            co_return;
        }
        machine_.run().submitted = true;
    }
    context_.scheduler.expect_end(job().id, number);
    const auto at = context_.clock.steady();
    StopRun& stopping = *machine_.run().stopping;
    if (!links().empty()) {
        stopping.alone_since.reset();
    } else if (!stopping.alone_since) {
        stopping.alone_since = at;
    }
    const bool overdue = at - stopping.since > limits::kStopGrace + limits::kLeavePatience;
    const bool left_behind =
        stopping.alone_since &&
        (job().attempt()->claims.empty() || at - *stopping.alone_since >= limits::kLeavePatience);
    if ((left_behind || overdue) && !stopping.cancelled) {
        const Status cancelled = co_await context_.scheduler.cancel(job().id, number);
        machine_.run().stopping->cancelled = cancelled.has_value();
    }
    const Observation seen = co_await allocation();
    // Forgotten by the scheduler is no proof that its agents have left, and ranks of another
    // attempt must not start beside theirs.
    const bool left = links().empty() || overdue || !job().spec.recovery.wanted;
    const bool over = (seen.kind == Observation::Kind::absent && left) || allocation_ended(seen);
    Draft next = draft();
    if (over) {
        machine_.read_end(next, seen);
    }
    set_pending_reason(!over && seen.kind == Observation::Kind::state && !seen.ending.empty()
                           ? "waits for " + std::string{context_.scheduler.title()} +
                                 " to end node " + seen.ending
                           : "");
    const bool stored = co_await commit(next);
    if (!stored) {
        co_await sleep_on(retry_, kStoreRetry);  // nothing is lost: the ranks' files are there
        co_return;
    }
    if (!over || !inputs_.empty()) {
        co_return;
    }
    // The scheduler's word may have changed what follows.
    const Action follows = due(job(), context_.clock.wall());
    if (follows.kind == ActionKind::next_attempt) {
        co_await next_attempt(follows.cause);
    } else if (follows.kind == ActionKind::restart) {
        // In an allocation that is over: said next, as the fault of the attempt.
        machine_.run().stopping.reset();
        co_await end_generation(follows.cause, JobMachine::AfterEnd::look);
    } else {
        co_await conclude();
    }
}

// True once it is known how the attempt ended, as far as it can be.
Task<bool> JobActor::verdict() {
    if (!wants_verdict(job())) {
        co_return true;
    }
    const auto at = context_.clock.steady();
    if (!machine_.run().verdict_since) {
        machine_.run().verdict_since = at;
        context_.scheduler.expect_end(job().id, job().attempt()->number);
    }
    if (!machine_.run().submitted) {
        static_cast<void>(co_await adopt());
    }
    const Observation seen = co_await allocation();
    const bool ended = allocation_ended(seen);
    Draft next = draft();
    if (ended || seen.kind == Observation::Kind::absent) {
        add_verdict(next, machine_.run(), seen);
    }
    prepare(next);
    if (!next.events.empty()) {
        co_await commit_and_look(std::move(next));
        co_return false;
    }
    co_return ended || seen.kind == Observation::Kind::absent ||
        at - *machine_.run().verdict_since >= limits::kVerdictPatience;
}

}  // namespace lockstep
