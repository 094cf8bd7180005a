// size: one attempt from its place in the queue to its end, with all that is looked at on the way
#include "daemon/control/actor/job_placement.hpp"

#include "daemon/control/actor/node_notes.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "daemon/control/machine/verdict.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Steady = std::chrono::steady_clock;

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

// Nobody's silence is told within less. A look that was too soon is made up for once it is due.
bool JobPlacement::nodes_are_due() {
    const auto now = context_.clock.steady();
    look_skipped_ = job().spec.resources.allocated_nodes() > kLargeJob && nodes_looked_ &&
                    now - *nodes_looked_ < kLookAtNodes;
    if (!look_skipped_) {
        nodes_looked_ = now;
    }
    return !look_skipped_;
}

NodeNotes JobPlacement::vouched_notes(const Draft& draft, NodeNotes& later) const {
    const std::string machine = one_machine(context_.scheduler);
    NodeNotes notes = notes_of(draft.job(), draft.events, machine);
    if (!machine.empty()) {
        return notes;  // they all have lockstepd's own name for it
    }
    NodeWitness::Sorted sorted = witness_.sort(std::move(notes));
    later = std::move(sorted.later);
    if (sorted.foreign > 0) {
        log::info("not kept of nodes that are not the job's",
                  {{"job", job().id.value}, {"notes", sorted.foreign}});
    }
    return std::move(sorted.now);
}

void JobPlacement::left_queue() {
    machine_.set_pending_reason("");  // of the queue, whoever told that it is over
    set_aside(false);
}

Task<void> JobPlacement::place() {
    if (!machine_.run().submitted) {
        const bool there = co_await handover_.hand_over();
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
        steps_.look_again();
    } else if (seen.kind == Observation::Kind::unreachable) {
        machine_.set_pending_reason(seen.message.empty() ? "the scheduler does not answer"
                                                         : seen.message);
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
        const bool stored = co_await steps_.commit(next);
        if (stored) {
            machine_.set_pending_reason("");
            steps_.look_again();
        }
    }
}

// The scheduler's word is all there is of an attempt that no agent has called in from.
Task<void> JobPlacement::end_unclaimed(const Observation& seen) {
    const std::int32_t number = job().attempt()->number;
    const auto words = co_await first_last_words();
    if (job().attempt() == nullptr || job().attempt()->number != number) {
        co_return;
    }
    Draft next = draft();
    event::FaultSeen fault;
    fault.attempt = job().attempt()->number;
    fault.cause_class = seen.cause.kind;
    fault.message = seen.cause.message;
    fault.node = seen.cause.node;
    fault.at = context_.clock.wall();
    if (was_unwatched(seen)) {
        fault.cause_class = CauseClass::scheduler;
        fault.message = "no lockstepd was there for its agents, and they have ended";
        fault.unwatched = true;
    }
    if (words) {
        fault.message += "; the agent of " + words->node + ": " + words->reason;
    }
    next.add(std::move(fault));
    co_await steps_.commit_and_look(std::move(next));
}

// One that was sent away has been heard.
bool JobPlacement::was_unwatched(const Observation& seen) const {
    return seen.ended_unwatched && seen.cause.kind == CauseClass::none &&
           job().attempt()->refused == 0;
}

// Of the agents that came with nobody hearing them: the daemon's certificate was another one, say.
// On another thread: there is a file for each node, and with lockstep-exec a process for each file.
Task<std::optional<wire::GaveUpFile>> JobPlacement::first_last_words() {
    using Words = std::optional<wire::GaveUpFile>;
    const auto late_at = Steady::now() + limits::kLeftBehindPatience;
    const std::function<Words()> read = [directory = job().attempt()->directory,
                                         nodes = job().spec.resources.allocated_nodes(),
                                         late_at]() {
        for (std::int32_t node = 0; node < nodes && Steady::now() < late_at; ++node) {
            if (auto words = read_gave_up(directory, node, "")) {
                return words;
            }
        }
        return Words{};
    };
    co_return (co_await context_.attempt_files.run<Words>(read, late_at + limits::kSignerPatience))
        .value_or(std::nullopt);
}

void JobPlacement::look_whether_aside(const Observation& seen) {
    if (seen.kind == Observation::Kind::unreachable) {
        return;
    }
    const bool aside = seen.kind == Observation::Kind::state &&
                       seen.state == AllocationState::pending && (seen.held || seen.later);
    set_aside(aside);
}

void JobPlacement::set_aside(bool aside) {
    if (std::exchange(aside_, aside) != aside) {
        steps_.aside_changed();
    }
}

void JobPlacement::learn_nodes(const Observation& seen) {
    if (seen.kind == Observation::Kind::state) {
        witness_.learn(job().attempt()->number, seen.id, seen.nodes,
                       static_cast<std::size_t>(job().spec.resources.allocated_nodes()));
        if (seen.state == AllocationState::running &&
            seen.nodes.size() == static_cast<std::size_t>(job().spec.resources.allocated_nodes())) {
            machine_.run().given = seen.nodes;
        }
    }
}

// An agent that could not be started on its node tells nobody, but the scheduler's daemon there
// may have left a word in its log. Files are read: not while nodes still come in time, and not
// where a privileged program has to open them.
Task<void> JobPlacement::learn_launch_words() {
    constexpr std::size_t kFiles = 8;
    AttemptRun& run = machine_.run();
    const auto now = context_.clock.steady();
    if (job().generation() != nullptr || context_.scheduler.signatures() != nullptr ||
        now - run.launch_looked.value_or(now) < limits::kAgentSilence) {
        run.launch_looked = run.launch_looked.value_or(now);
        co_return;
    }
    run.launch_looked = now;
    const std::int32_t number = job().attempt()->number;
    std::vector<std::int32_t> slots;
    for (std::int32_t slot = 0; slot < job().spec.resources.allocated_nodes(); ++slot) {
        if (!job().attempt()->claims.contains(slot) && !run.launch_words.contains(slot) &&
            slots.size() < kFiles) {
            slots.push_back(slot);
        }
    }
    if (slots.empty()) {
        co_return;
    }
    using Words = std::map<std::int32_t, std::string>;
    const auto late_at = Steady::now() + limits::kLeftBehindPatience;
    const std::function<Words()> read = [&scheduler = context_.scheduler,
                                         directory = job().attempt()->directory, slots, late_at] {
        Words out;
        for (const std::int32_t slot : slots) {
            if (Steady::now() >= late_at) {
                break;
            }
            if (std::string words = scheduler.launch_words(directory, slot); !words.empty()) {
                out.emplace(slot, std::move(words));
            }
        }
        return out;
    };
    auto found =
        co_await context_.attempt_files.run<Words>(read, late_at + limits::kSignerPatience);
    Words words = std::move(found).value_or(Words{});
    if (job().attempt() != nullptr && job().attempt()->number == number) {
        machine_.run().launch_words.merge(words);
    }
}

bool JobPlacement::was_given(const std::string& node) const {
    return job().attempt() != nullptr &&
           witness_.word(job().attempt()->number, node) == NodeWitness::Word::given;
}

// Agents that say to be on other nodes than the attempt has go on: what a node is called decides
// nothing for its ranks, and a site may have its reasons. But nothing is remembered of such a node.
void JobPlacement::tell_foreign_nodes(Draft& draft) {
    const Attempt& attempt = *draft.job().attempt();
    if (attempt.claims.size() == machine_.run().claims_compared ||
        !witness_.complete(attempt.number) || !one_machine(context_.scheduler).empty()) {
        return;
    }
    AttemptRun& run = machine_.run();
    if (run.foreign_since && draft.at.steady - *run.foreign_since < limits::kForeignNodes) {
        return;
    }
    std::vector<std::string> texts;
    for (const auto& [slot, claim] : attempt.claims) {
        if (witness_.word(attempt.number, claim.node) == NodeWitness::Word::foreign) {
            texts.push_back("the agent of node " + std::to_string(slot) + " says it is " +
                            claim.node +
                            ", which the scheduler has not given to the job: what happens there "
                            "is not remembered of that node");
        }
    }
    if (!texts.empty() && !run.foreign_since) {
        run.foreign_since = draft.at.steady;
        return;
    }
    run.foreign_since.reset();
    run.claims_compared = attempt.claims.size();
    const std::size_t from = draft.events.size();
    for (const std::string& text : texts) {
        draft.warn(text);
    }
    draft.found_once(from);  // they are compared once
}

Task<void> JobPlacement::wait_in_queue(Observation seen) {
    machine_.set_pending_reason(seen.reason, seen.expected_start);
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
    steps_.prepare(next);
    if (!next.events.empty()) {
        const bool stored = co_await steps_.commit(next);
        static_cast<void>(stored);  // said again at the next tick
    }
}

// What the scheduler says of the attempt, agents having called in or not. An end that it names
// nobody for is a person's once a rank may have run, and its own accident before: the same border
// as recovery's, and what is said of an accident ("before its ranks had started") is true there.
Task<Observation> JobPlacement::allocation() {
    Observation seen = co_await context_.scheduler.poll(job().id, job().attempt()->number);
    learn_nodes(seen);
    if (seen.accident && unstarted(*job().attempt())) {
        seen.cause = *seen.accident;
        seen.message = seen.cause.message;
    }
    co_return seen;
}

// The moment for a look at `seen` which reads what agents have left behind: all that it will ask
// for is there, or its time is over. Which that is the machine says, by a look that is thrown away;
// what a result tells may lead to more. The moment is that before anything is read: time in which
// nobody was listened to is no silence. Nothing: the daemon stops, and what was not read is no
// news.
Task<std::optional<Surroundings>> JobPlacement::have_files(const Observation& seen, bool needed) {
    files_.forget();
    const Surroundings at = steps_.now();
    const auto late_at = Steady::now() + limits::kLeftBehindPatience;
    while (needed && seen.kind != Observation::Kind::unreachable &&
           AttemptLeftovers::is_closed(*job().attempt())) {
        Draft tried = machine_.draft(at);
        machine_.read_left_behind(tried, seen);
        if (!files_.has_missing()) {
            break;
        }
        co_await files_.read_missing(context_.attempt_files, late_at);
        if (context_.stops) {
            co_return std::nullopt;
        }
    }
    co_return at;
}

Task<void> JobPlacement::look_at_allocation() {
    if (job().generation() == nullptr && !std::exchange(machine_.run().queue_checked, true)) {
        warn_of_queue(job());
    }
    if (!machine_.run().submitted) {
        // After a restart of the daemon: the driver adopts what it finds of the attempt. What it
        // cannot find although it was placed is forgotten; with nobody in it, it starts anew.
        const bool there = co_await handover_.hand_over();
        if (!there && job().attempt()->claims.empty()) {
            co_return;
        }
    }
    co_await learn_launch_words();
    const Observation seen = co_await allocation();
    if (seen.kind == Observation::Kind::absent && job().attempt()->claims.empty()) {
        machine_.run().submitted = false;
        machine_.run().forget_nodes();
        co_return;
    }
    const bool over = allocation_ended(seen);
    if (over && (seen.cause.kind != CauseClass::none || was_unwatched(seen)) &&
        job().attempt()->claims.empty()) {
        co_await end_unclaimed(seen);
        co_return;
    }
    const bool nodes_too = nodes_are_due() || over;
    const std::optional<Surroundings> at = co_await have_files(seen, nodes_too);
    if (!at) {
        co_return;
    }
    Draft next = machine_.draft(*at);
    if (seen.kind == Observation::Kind::state) {
        tell_foreign_nodes(next);
    }
    machine_.look(next, seen, nodes_too);
    files_.forget();
    steps_.prepare(next);
    if (!next.events.empty()) {
        co_await steps_.commit_and_look(std::move(next));
    }
}

Task<void> JobPlacement::restart_ranks(Cause cause) {
    steps_.perform(machine_.abort(cause, steps_.now()));
    if (!machine_.run().submitted) {  // the daemon was restarted meanwhile
        static_cast<void>(co_await handover_.adopt());
    }
    const bool nodes_too = nodes_are_due();
    if (nodes_too && machine_.somebody_left()) {
        context_.scheduler.expect_end(job().id, job().attempt()->number, false);
    }
    const Observation seen = co_await allocation();
    const auto at = co_await have_files(seen, nodes_too || allocation_ended(seen));
    if (!at) {
        co_return;
    }
    Draft next = machine_.draft(*at);
    const auto after = machine_.look_while_aborting(next, seen, nodes_too);
    files_.forget();
    steps_.prepare(next);
    if (!next.events.empty()) {
        co_await steps_.commit_and_look(std::move(next));
    } else if (after) {
        co_await end_generation(std::move(cause), *after);
    }
}

Task<void> JobPlacement::end_generation(Cause cause, JobMachine::AfterEnd after) {
    co_await steps_.flush_telemetry();
    Draft next = draft();
    const bool ended = machine_.end_generation(next, cause, after);
    steps_.prepare(next);
    if (ended) {
        co_await steps_.commit_and_look(std::move(next));
    }
}

// The allocation is over, another attempt follows.
Task<void> JobPlacement::next_attempt(Cause cause) {
    co_await steps_.flush_telemetry();
    Draft next = draft();
    machine_.next_attempt(next, cause);
    co_await steps_.commit_and_look(std::move(next));
}

// What the ranks did is heard as usual.
Task<void> JobPlacement::stop_attempt(Cause cause) {
    steps_.perform(machine_.stop(cause, steps_.now()));
    const std::int32_t number = job().attempt()->number;
    if (!machine_.run().submitted) {
        // The daemon was restarted while it was stopping this attempt: the driver must know its
        // agents before it can end them. What was not started must not start now.
        const Status adopted = co_await handover_.adopt();
        // What nobody has claimed has no ranks: it need not be found before the job may end.
        const bool waits = job().cancel_requested_at == 0 || !job().attempt()->claims.empty();
        if (!adopted && waits) {
            machine_.set_pending_reason("cannot end yet: " + adopted.error().message);
            co_return;
        }
        machine_.run().submitted = true;
    }
    context_.scheduler.expect_end(job().id, number, work_done(job()));
    const auto at = context_.clock.steady();
    StopRun& stopping = *machine_.run().stopping;
    if (!machine_.run().links.empty()) {
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
    const bool left = machine_.run().links.empty() || overdue || !job().spec.recovery.wanted;
    const bool over = (seen.kind == Observation::Kind::absent && left) || allocation_ended(seen);
    const std::optional<Surroundings> then = co_await have_files(seen, over);
    if (!then) {
        co_return;
    }
    Draft next = machine_.draft(*then);
    if (over) {
        machine_.read_left_behind(next, seen);
        add_verdict(next, machine_.run(), seen);
    }
    files_.forget();
    machine_.set_pending_reason(
        !over && seen.kind == Observation::Kind::state && !seen.ending.empty()
            ? "waits for " + std::string{context_.scheduler.title()} + " to end node " + seen.ending
            : "");
    const bool stored = co_await steps_.commit(next);
    if (!stored) {
        co_await steps_.rest();  // nothing is lost: the ranks' files are there
        co_return;
    }
    if (!over || steps_.inputs_wait()) {
        co_return;
    }
    // The scheduler's word may have changed what follows.
    const Action follows = machine_.what_is_due(steps_.now());
    if (follows.kind == ActionKind::next_attempt) {
        co_await next_attempt(follows.cause);
    } else if (follows.kind == ActionKind::restart) {
        // In an allocation that is over: said next, as the fault of the attempt.
        machine_.run().stopping.reset();
        co_await end_generation(follows.cause, JobMachine::AfterEnd::look);
    } else {
        co_await steps_.conclude();
    }
}

Task<bool> JobPlacement::verdict() {
    if (!wants_verdict(job())) {
        co_return true;
    }
    const auto at = context_.clock.steady();
    if (!machine_.run().verdict_since) {
        machine_.run().verdict_since = at;
        context_.scheduler.expect_end(job().id, job().attempt()->number, false);
        // Its word comes with the end of the allocation, which the agents would hold until the job
        // is over: all of its ranks have ended, and none follows in it.
        steps_.perform(machine_.say_stop("all ranks have ended"));
    }
    if (!machine_.run().submitted) {
        static_cast<void>(co_await handover_.adopt());
    }
    const Observation seen = co_await allocation();
    const bool ended = allocation_ended(seen);
    Draft next = draft();
    if (ended || seen.kind == Observation::Kind::absent) {
        add_verdict(next, machine_.run(), seen);
    }
    steps_.prepare(next);
    if (!next.events.empty()) {
        co_await steps_.commit_and_look(std::move(next));
        co_return false;
    }
    co_return ended || seen.kind == Observation::Kind::absent ||
        at - *machine_.run().verdict_since >= limits::kVerdictPatience;
}

}  // namespace lockstep
