// size: apply(), due() and outcome() are one definition of a job's life
#include "job/model/job.hpp"

#include "job/base/limits.hpp"

#include <array>
#include <csignal>
#include <cstring>

namespace lockstep {
namespace {

Status out_of_place(const Job& job, const Event& event) {
    return fail(Errc::conflict, std::string{to_string(event.kind())} + " has no place in state " +
                                    std::string{to_string(job.state)});
}

std::string signal_name(int number) {
    const char* name = sigabbrev_np(number);
    return name != nullptr ? "SIG" + std::string{name} : "signal " + std::to_string(number);
}

Cause cause_of(const event::RankExited& exit) {
    Cause cause;
    cause.rank = exit.rank;
    cause.node = exit.node;
    cause.log_tail = exit.log_tail;
    const std::string who = "rank " + std::to_string(exit.rank) + " on " + exit.node;
    if (exit.signal != 0) {
        cause.signal = exit.signal;
        cause.kind = exit.oom ? CauseClass::oom : CauseClass::rank_signal;
        cause.message = who + (exit.oom ? " was killed for lack of memory"
                                        : " was ended by " + signal_name(exit.signal));
    } else {
        cause.exit_code = exit.exit_code;
        cause.kind = CauseClass::rank_exit;
        cause.message = who + " exited with code " + std::to_string(exit.exit_code);
    }
    return cause;
}

Cause cause_of(const event::FaultSeen& fault) {
    Cause cause;
    cause.kind = parse_cause_class(fault.cause_class).value_or(CauseClass::internal);
    cause.message = fault.message;
    cause.rank = fault.rank;
    cause.node = fault.node;
    return cause;
}

// The first failure is the one that happened first; the rest are its echo.
void note_failure(Generation& generation, Cause cause, UnixMillis at) {
    if (!generation.first_failure || at < generation.first_failure_at) {
        generation.first_failure = std::move(cause);
        generation.first_failure_at = at;
    }
}

// Takes one event that next() has allowed. Returns conflict if it names what is not current.
struct Applier {
    Job& job;
    const Event& event;

    Status stale(std::string_view what) const {
        return fail(Errc::conflict, std::string{to_string(event.kind())} + ": not the current " +
                                        std::string{what});
    }
    Attempt* attempt(std::int32_t number) const {
        if (job.attempts.empty() || job.attempts.back().number != number ||
            job.attempts.back().finished_at != 0) {
            return nullptr;
        }
        return &job.attempts.back();
    }
    Generation* generation(std::int32_t number, std::int32_t generation_number) const {
        Attempt* current = attempt(number);
        if (current == nullptr || current->generations.empty() ||
            current->generations.back().number != generation_number) {
            return nullptr;
        }
        return &current->generations.back();
    }

    Status operator()(const event::Submitted&) const { return stale("job"); }
    Status operator()(const event::AttemptCreated& e) const {
        if (e.attempt != static_cast<std::int32_t>(job.attempts.size()) + 1) {
            return stale("attempt");
        }
        Attempt created;
        created.number = e.attempt;
        created.ticket_hash = e.ticket_hash;
        created.directory = e.directory;
        created.created_at = event.time;
        job.attempts.push_back(std::move(created));
        return {};
    }
    Status operator()(const event::AttemptSubmitting& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr || e.number != current->submissions + 1 ||
            !current->claims.empty()) {
            return stale("submission");
        }
        current->submissions = e.number;
        current->submitting_at = event.time;
        current->scheduler_id.clear();  // what the scheduler had is gone for good
        current->placed_at = 0;
        return {};
    }
    Status operator()(const event::AttemptSubmitted& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        current->scheduler_id = e.scheduler_id;
        return {};
    }
    Status operator()(const event::Held& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        current->held_reason = e.reason;
        return {};
    }
    Status operator()(const event::Released& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        current->held_reason.clear();
        return {};
    }
    Status operator()(const event::AttemptPlaced& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        current->scheduler_id = e.scheduler_id;
        current->placed_at = event.time;
        current->held_reason.clear();
        return {};
    }
    Status operator()(const event::AgentClaimed& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr || e.node_rank < 0 || e.node_rank >= job.spec.resources.nodes ||
            current->claims.contains(e.node_rank) ||
            (!current->claims.empty() && current->allocation != e.allocation)) {
            return stale("claim");
        }
        current->allocation = e.allocation;
        current->claims[e.node_rank] = NodeClaim{e.node, e.incarnation, e.pid};
        current->claimed_at = event.time;
        return {};
    }
    Status operator()(const event::AgentRefused& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("refusal");
        }
        ++current->refused;
        return {};
    }
    Status operator()(const event::DependencyFailed& e) const {
        if (job.blocked) {
            return stale("cause");
        }
        job.blocked = Cause{};
        job.blocked->kind = CauseClass::dependency;
        job.blocked->message = e.message;
        return {};
    }
    Status operator()(const event::GenerationStarted& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr ||
            e.generation !=
                (current->generations.empty() ? 1 : current->generations.back().number + 1)) {
            return stale("generation");
        }
        Generation started;
        started.number = e.generation;
        started.started_at = event.time;
        started.master_address = e.master_address;
        started.master_port = e.master_port;
        started.addresses = e.addresses;
        started.ports = e.ports;
        started.resumed_from_step = e.resumed_from_step;
        started.exited.resize(static_cast<std::size_t>(job.spec.world_size()));
        current->generations.push_back(std::move(started));
        return {};
    }
    Status operator()(const event::RanksStarted& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr) {
            return stale("generation");
        }
        current->running_at = event.time;
        if (job.started_at == 0) {
            job.started_at = event.time;
        }
        return {};
    }
    Status operator()(const event::RankExited& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr || e.rank < 0 ||
            static_cast<std::size_t>(e.rank) >= current->exited.size() ||
            current->exited[static_cast<std::size_t>(e.rank)]) {
            return stale("generation");
        }
        current->exited[static_cast<std::size_t>(e.rank)] = true;
        ++current->exited_count;
        if (e.stopped) {
            current->stopped.insert(e.rank);
        }
        if (e.exit_code != 0) {
            current->failed[e.rank] = e;
            if (!e.stopped) {
                note_failure(*current, cause_of(e), e.at);
            }
        }
        return {};
    }
    Status operator()(const event::FaultSeen& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        if (Generation* running = generation(e.attempt, e.generation)) {
            note_failure(*running, cause_of(e), e.at);
        } else if (!current->fault) {
            current->fault = cause_of(e);
        }
        return {};
    }
    Status operator()(const event::CheckpointSaved& e) const {
        if (generation(e.attempt, e.generation) == nullptr) {
            return stale("generation");
        }
        if (e.step >= job.checkpoint_step) {
            job.checkpoint_step = e.step;
            job.checkpoint_path = e.path;
            job.checkpoint_at = event.time;
        }
        return {};
    }
    Status operator()(const event::GenerationEnded& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr || current->finished_at != 0) {
            return stale("generation");
        }
        current->finished_at = event.time;
        current->cause = e.cause;
        return {};
    }
    Status operator()(const event::AttemptEnded& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        current->finished_at = event.time;
        current->cause = e.cause;
        return {};
    }
    Status operator()(const event::CancelRequested& e) const {
        if (job.cancel_requested_at == 0) {
            job.cancel_requested_at = event.time;
            job.cancel_requested_by = e.by;
        }
        return {};
    }
    Status operator()(const event::Finished& e) const {
        if (!is_final(e.state)) {
            return fail(Errc::conflict, "finished: not a final state");
        }
        job.finished_at = event.time;
        job.cause = e.cause;
        job.step = e.step;
        return {};
    }
};

bool all_ranks_ended(const Job& job) {
    const Generation* current = job.generation();
    return current != nullptr &&
           current->exited_count == static_cast<std::int32_t>(current->exited.size());
}

// A deadline of the job that has passed at `now`, as the fault to append.
std::optional<event::FaultSeen> passed_deadline(const Job& job, UnixMillis now) {
    const Attempt& attempt = *job.attempt();
    event::FaultSeen fault;
    fault.attempt = attempt.number;
    fault.generation = job.generation() != nullptr ? job.generation()->number : 0;
    fault.at = now;
    const std::int64_t limit = job.spec.resources.time_limit_seconds * 1000;
    if (limit > 0 && attempt.placed_at != 0 && now - attempt.placed_at >= limit) {
        fault.cause_class = to_string(CauseClass::time_limit);
        fault.message = "the time limit of " +
                        format_time_limit(job.spec.resources.time_limit_seconds) + " has passed";
        return fault;
    }
    const auto gather = std::chrono::milliseconds{limits::kGatherTimeout}.count();
    const Generation* forming = job.generation();
    if (job.state == JobState::starting && forming != nullptr && forming->running_at == 0 &&
        now - forming->started_at >= gather) {
        fault.cause_class = to_string(CauseClass::rendezvous_timeout);
        fault.message = "the ranks of generation " + std::to_string(forming->number) +
                        " were not all started within " + std::to_string(gather / 1000) + " s";
        return fault;
    }
    if (job.state == JobState::starting && attempt.generations.empty() &&
        now - attempt.placed_at >= gather) {
        fault.cause_class = to_string(CauseClass::rendezvous_timeout);
        fault.message = std::to_string(attempt.claims.size()) + " of " +
                        std::to_string(job.spec.resources.nodes) + " nodes called in within " +
                        std::to_string(gather / 1000) + " s; missing:";
        for (std::int32_t node = 0; node < job.spec.resources.nodes; ++node) {
            if (!attempt.claims.contains(node) && fault.message.size() < limits::kTextBytes) {
                fault.message += " node " + std::to_string(node);
            }
        }
        return fault;
    }
    return std::nullopt;
}

// Why the attempt must stop, if it must.
std::optional<Cause> reason_to_stop(const Job& job) {
    const Attempt& attempt = *job.attempt();
    if (job.generation() != nullptr && job.generation()->first_failure) {
        return job.generation()->first_failure;
    }
    if (attempt.fault) {
        return attempt.fault;
    }
    if (job.cancel_requested_at != 0) {
        Cause cause;
        cause.kind = CauseClass::cancelled_by_user;
        cause.message = "cancelled by " + job.cancel_requested_by;
        return cause;
    }
    return std::nullopt;
}

}  // namespace

const Generation* Job::generation() const {
    if (attempts.empty() || attempts.back().generations.empty()) {
        return nullptr;
    }
    return &attempts.back().generations.back();
}

Result<Job> start_job(const Event& submitted) {
    const auto* data = std::get_if<event::Submitted>(&submitted.data);
    if (data == nullptr) {
        return fail(Errc::corrupt, "the first event of a job is not submitted");
    }
    auto spec = parse_spec(data->spec);
    if (!spec) {
        return fail(Errc::corrupt, "stored spec: " + spec.error().message);
    }
    Job job;
    job.id = submitted.job;
    job.user = data->user;
    job.spec = std::move(*spec);
    job.warnings = data->warnings;
    if (!data->sweep.empty()) {
        SweepMember member;
        member.id = data->sweep;
        member.index = static_cast<std::int32_t>(data->sweep_index);
        member.size = static_cast<std::int32_t>(data->sweep_size);
        member.max_parallel = static_cast<std::int32_t>(data->sweep_parallel);
        member.parameters = data->sweep_parameters;
        job.sweep = std::move(member);
    }
    job.submitted_at = submitted.time;
    job.last_seq = submitted.seq;
    return job;
}

Status apply(Job& job, const Event& event) {
    std::optional<JobState> to = next(job.state, event.kind());
    if (event.kind() == EventKind::finished && !is_final(job.state)) {
        to = std::get<event::Finished>(event.data).state;
    }
    if (!to) {
        return out_of_place(job, event);
    }
    if (auto taken = std::visit(Applier{job, event}, event.data); !taken) {
        return taken;
    }
    job.state = *to;
    job.last_seq = event.seq;
    return {};
}

std::string_view to_string(ActionKind kind) {
    constexpr std::array<std::string_view, 7> kNames{
        "create_attempt", "place", "gather", "watch", "stop", "conclude", "none"};
    return kNames[static_cast<std::size_t>(kind)];
}

Action due(const Job& job, UnixMillis now) {
    Action action;
    if (is_final(job.state)) {
        return action;
    }
    const Attempt* attempt = job.attempt();
    if (attempt == nullptr || attempt->finished_at != 0) {
        // Between attempts: either nothing was asked for yet, or what was asked for is over.
        const bool first = attempt == nullptr && job.cancel_requested_at == 0 && !job.blocked;
        action.kind = first ? ActionKind::create_attempt : ActionKind::conclude;
        return action;
    }
    if (all_ranks_ended(job)) {
        action.kind = ActionKind::conclude;
        return action;
    }
    if (work_done(job)) {
        action.kind = ActionKind::stop;
        action.cause.message = "the ranks that end the job have ended";
        return action;
    }
    if (auto reason = reason_to_stop(job)) {
        action.kind = ActionKind::stop;
        action.cause = std::move(*reason);
        return action;
    }
    action.fault = passed_deadline(job, now);
    if (action.fault) {
        action.kind = ActionKind::stop;
        return action;
    }
    switch (job.state) {
        case JobState::queued:
        case JobState::held:
            action.kind = ActionKind::place;
            break;
        case JobState::starting:
        case JobState::restarting:
            action.kind = ActionKind::gather;
            break;
        default:
            action.kind = ActionKind::watch;
            break;
    }
    return action;
}

bool work_done(const Job& job) {
    const Generation* generation = job.generation();
    if (generation == nullptr) {
        return false;
    }
    // A rank that was told to stop and then exited with 0 has not finished its work.
    const auto ended_well = [&](std::size_t rank) {
        const auto number = static_cast<std::int32_t>(rank);
        return generation->exited[rank] && !generation->failed.contains(number) &&
               !generation->stopped.contains(number);
    };
    std::size_t first = 0;
    for (const RoleSpec& role : job.spec.roles) {
        const std::size_t next = first + static_cast<std::size_t>(role.count);
        for (std::size_t rank = first; role.ends_job && rank < next; ++rank) {
            if (!ended_well(rank)) {
                return false;
            }
        }
        first = next;
    }
    return !job.spec.roles.empty() ||
           (generation->exited_count == static_cast<std::int32_t>(generation->exited.size()) &&
            generation->failed.empty() && generation->stopped.empty());
}

event::Finished outcome(const Job& job) {
    event::Finished end;
    const Generation* generation = job.generation();
    const bool complete = all_ranks_ended(job);
    if (work_done(job)) {
        // A cancel or a deadline that came too late changes nothing.
        end.state = JobState::succeeded;
        return end;
    }
    std::optional<Cause> reason;
    if (!job.attempts.empty()) {
        reason = reason_to_stop(job);
    } else if (job.cancel_requested_at != 0) {
        reason = Cause{};
        reason->kind = CauseClass::cancelled_by_user;
        reason->message = "cancelled by " + job.cancel_requested_by;
    } else {
        reason = job.blocked;
    }
    if (!reason && complete && !generation->failed.empty()) {
        // All failures were ranks stopped from outside (somebody signalled the agent).
        reason = cause_of(generation->failed.begin()->second);
    }
    if (!reason) {
        reason = Cause{};
        reason->kind = complete ? CauseClass::rank_signal : CauseClass::internal;
        reason->message =
            complete ? "the ranks were stopped from outside Lockstep" : "ended without a cause";
    }
    end.state =
        reason->kind == CauseClass::cancelled_by_user ? JobState::cancelled : JobState::failed;
    end.cause = std::move(*reason);
    return end;
}

}  // namespace lockstep
