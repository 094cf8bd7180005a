// size: one short function for each kind of event
#include "job/model/job.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

Status out_of_place(const Job& job, const Event& event) {
    return fail(Errc::conflict, std::string{to_string(event.kind())} + " has no place in state " +
                                    std::string{to_string(job.state)});
}

// The first failure is the one that happened first; the rest are its echo. What calls itself one
// does not win against a failure of its own, however early it came.
// `rank`: whose end it is; -1: of none.
void note_failure(Generation& generation, Cause cause, UnixMillis at, FailureKind kind,
                  UnixMillis heard, std::int32_t rank = -1) {
    if (generation.failure_heard_at == 0) {
        generation.failure_heard_at = heard;
    }
    if (!generation.first_failure || std::pair{kind, at} < std::pair{generation.first_failure_kind,
                                                                     generation.first_failure_at}) {
        generation.first_failure = std::move(cause);
        generation.first_failure_at = at;
        generation.first_failure_kind = kind;
        generation.first_failed = rank;
    }
}

// What a rank does that has seen a loss that is no number, a check of its script say, came of that:
// how the job answers such a loss is decided already.
bool is_decided(const Generation& generation) {
    return generation.first_failure && generation.first_failure->kind == CauseClass::nonfinite_loss;
}

// The ranks are being stopped because somebody wants it, and not all agents hear that at the same
// moment: those of one node lose their peers on another before they are told to end themselves.
bool lost_stopped_peers(const Job& job, const event::RankExited& exit) {
    const bool being_stopped = job.cancel_requested_at != 0 || !job.restart_requested_by.empty();
    return being_stopped && !exit.stopped && exit.exit_code != 0 &&
           parse_failure_kind(exit.failure).value_or(FailureKind::own) != FailureKind::own;
}

// A rank ends because the others wait for one in vain: that one is to blame, not who gave up first.
// What happened, and so what may follow, is the same.
Cause of_desync(const event::AnomalySeen& desync, const Cause& echo) {
    Cause out;
    out.kind = echo.kind;
    out.rank = desync.rank;
    out.node = desync.node;
    out.message = desync.message + ". Then " + echo.message;
    out.log_tail = echo.log_tail;
    return out;
}

// What each rank did is of use only until the next generation: of 100,000 ranks it is much, and the
// job is copied with every input. The events keep it.
void forget_ranks(Generation& generation) {
    generation.exited = {};
    generation.exited_count = 0;
    generation.stopped.clear();
    generation.failed.clear();
    generation.first_left.reset();
    generation.stopped_last.reset();
    generation.stopped_next_step = -1;
    generation.addresses = {};
    generation.ports = {};
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
    // Only while it has not ended: what comes later of its ranks is history.
    Generation* generation(std::int32_t number, std::int32_t generation_number) const {
        Attempt* current = attempt(number);
        if (current == nullptr || current->generations.empty() ||
            current->generations.back().number != generation_number ||
            !current->generations.back().open()) {
            return nullptr;
        }
        return &current->generations.back();
    }
    // The last there was, whether or not it has ended; generation 0: the attempt has had none.
    bool is_newest(std::int32_t number, std::int32_t generation_number) const {
        const Generation* last = job.generation();
        return job.attempt() != nullptr && job.attempt()->number == number &&
               (last != nullptr ? last->number : 0) == generation_number;
    }
    // Every node of the generation is one of the allocation's that is claimed and not lost. Only
    // without spares may it go without saying which.
    bool good_slots(const Attempt& attempt, const std::vector<std::int32_t>& slots) const {
        if (slots.empty()) {
            return job.spec.resources.spares == 0 && attempt.lost.empty();
        }
        const std::set<std::int32_t> distinct{slots.begin(), slots.end()};
        return slots.size() <= static_cast<std::size_t>(job.spec.resources.nodes) &&
               slots.size() >= static_cast<std::size_t>(job.spec.resources.least_nodes()) &&
               distinct.size() == slots.size() &&
               std::all_of(slots.begin(), slots.end(), [&](std::int32_t slot) {
                   return attempt.claims.contains(slot) && !attempt.lost.contains(slot);
               });
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
        if (!job.attempts.empty() && !job.attempts.back().generations.empty()) {
            forget_ranks(job.attempts.back().generations.back());
        }
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
        current->held_reason.clear();
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
        if (current == nullptr || e.node_rank < 0 ||
            e.node_rank >= job.spec.resources.allocated_nodes() ||
            current->claims.contains(e.node_rank) ||
            (!current->claims.empty() && current->allocation != e.allocation)) {
            return stale("claim");
        }
        if (current->claims.empty() && !e.allocation.empty()) {
            current->scheduler_id = e.allocation;  // of two copies it may have told of the other
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
    Status operator()(const event::PreflightSeen& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        current->take_preflight(e);
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
            (!current->generations.empty() && current->generations.back().open()) ||
            e.generation !=
                (current->generations.empty() ? 1 : current->generations.back().number + 1) ||
            !good_slots(*current, e.slots)) {
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
        started.slots = e.slots;
        started.nodes =
            e.slots.empty() ? job.spec.resources.nodes : static_cast<std::int32_t>(e.slots.size());
        started.message = e.message;
        started.release_told = e.release_told;
        started.released_at = e.release_told ? 0 : event.time;
        started.exited.resize(static_cast<std::size_t>(started.nodes) *
                              static_cast<std::size_t>(job.spec.ranks_per_node()));
        if (!current->generations.empty()) {
            forget_ranks(current->generations.back());
        }
        current->generations.push_back(std::move(started));
        job.keys_joining = 0;
        return {};
    }
    Status operator()(const event::RanksStarted& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr) {
            return stale("generation");
        }
        current->running_at = event.time;
        // Written by a version that did not say when they were released.
        current->released_at = current->released_at == 0 ? event.time : current->released_at;
        if (job.started_at == 0) {
            job.started_at = event.time;
        }
        return {};
    }
    Status operator()(const event::RanksReleased& e) const {
        Generation* current = generation(e.attempt, e.generation);
        // Between the two versions there was one that told it without saying that it would.
        if (current == nullptr || (current->release_told && current->released_at != 0)) {
            return stale("generation");
        }
        current->release_told = true;
        current->released_at = event.time;
        return {};
    }
    Status operator()(const event::RankExited& e) const {
        if (lost_stopped_peers(job, e)) {
            event::RankExited stopped = e;
            stopped.stopped = true;
            return (*this)(stopped);
        }
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr || e.rank < 0 ||
            static_cast<std::size_t>(e.rank) >= current->exited.size() ||
            current->exited[static_cast<std::size_t>(e.rank)]) {
            return stale("generation");
        }
        current->exited[static_cast<std::size_t>(e.rank)] = true;
        ++current->exited_count;
        note_end(*current, e);
        if (e.stopped) {
            current->stopped.insert(e.rank);
        }
        if (e.exit_code != 0) {
            current->failed[e.rank] = e;
            if (!e.stopped && !is_decided(*current)) {
                const auto kind = parse_failure_kind(e.failure).value_or(FailureKind::own);
                Cause cause = cause_of(job, e);
                if (kind == FailureKind::echo && current->desync &&
                    current->desync->rank != e.rank) {
                    cause = of_desync(*current->desync, cause);
                }
                note_failure(*current, std::move(cause), e.failed_at != 0 ? e.failed_at : e.at,
                             kind, event.time, e.rank);
            }
        }
        return {};
    }
    // A fault of ranks ends their generation; one of a node that takes part in it, too. What is
    // said of a generation that has ended, or of a spare, ends nothing.
    Status operator()(const event::FaultSeen& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr || e.slot >= job.spec.resources.allocated_nodes()) {
            return stale("attempt");
        }
        const Cause cause = cause_of(e);
        if (e.slot >= 0) {
            if (!current->lost.emplace(e.slot, cause).second) {
                return stale("node");  // it is known to be lost
            }
            current->last_lost = cause;
            if (e.may_return) {
                current->absent.insert(e.slot);
            }
        }
        Generation* live =
            current->generations.empty() ? nullptr : generation(e.attempt, e.generation);
        if (live != nullptr && (e.slot < 0 || live->node_rank_of(e.slot) >= 0)) {
            ++live->faults;
            note_failure(*live, cause, e.at, FailureKind::own, event.time);
            return {};
        }
        current->stray_faults += e.slot < 0 ? 1 : 0;
        if (e.slot < 0 && (e.generation == 0 || current->generations.empty()) && !current->fault) {
            current->fault = cause;
            current->unwatched = e.unwatched && current->claims.empty();
        }
        return {};
    }
    Status operator()(const event::NodeReturned& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr || !job.spec.resources.is_elastic() ||
            !current->may_return(e.slot) || !current->claims.contains(e.slot)) {
            return stale("node");
        }
        current->lost.erase(e.slot);
        current->absent.erase(e.slot);
        ++current->returns[e.slot];
        current->claims[e.slot] = NodeClaim{e.node, e.incarnation, e.pid};
        return {};
    }
    Status operator()(const event::AnomalySeen& e) const {
        const auto kind = parse_anomaly_kind(e.anomaly);
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr || !kind) {
            return stale("generation");
        }
        if (*kind == AnomalyKind::hang) {
            current->hang = e.over ? std::nullopt : std::optional{e};
        }
        if (*kind == AnomalyKind::desync) {
            current->desync = e.over ? std::nullopt : std::optional{e};
        }
        if (e.over) {
            return {};
        }
        ++job.anomalies[static_cast<std::size_t>(*kind)];
        return {};
    }
    // It is for people; nothing follows from it. Whether there are too many of them is asked before
    // a look: those that are there are read, however many.
    Status operator()(const event::EvidenceTaken& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr) {
            return stale("generation");
        }
        ++current->looks;
        return {};
    }
    Status operator()(const event::ProfileTaken& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr || e.number <= current->profiles) {
            return stale("generation");
        }
        current->profiles = e.number;
        return {};
    }
    Status operator()(const event::Suspended& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr || e.over != current->suspended() ||
            (!e.over && current->suspensions.size() >= limits::kSuspensions)) {
            return stale("suspension");
        }
        if (e.over) {
            current->suspensions.back().to = event.time;
        } else {
            current->suspensions.push_back({event.time, 0});
        }
        return {};
    }
    // For people, too: what comes of it is checkpoint_saved.
    Status operator()(const event::CheckpointRequested& e) const {
        if (generation(e.attempt, e.generation) == nullptr) {
            return stale("generation");
        }
        job.command_keys.note(e.by, e.key, Command::checkpoint);
        return {};
    }
    Status operator()(const event::CheckpointSaved& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr) {
            return stale("generation");
        }
        ++current->checkpoints;
        if (e.step >= job.checkpoint_step) {
            job.checkpoint_step = e.step;
            job.checkpoint_path = e.path;
            job.checkpoint_at = event.time;
        }
        return {};
    }
    Status operator()(const event::GenerationEnded& e) const {
        Generation* current = generation(e.attempt, e.generation);
        if (current == nullptr) {
            return stale("generation");
        }
        current->finished_at = event.time;
        current->cause = e.cause;
        current->step = e.step;
        job.restart_requested_by.clear();
        job.restart_reason.clear();
        return {};
    }
    Status operator()(const event::AttemptEnded& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr) {
            return stale("attempt");
        }
        current->finished_at = event.time;
        current->cause = e.cause;
        if (current->suspended()) {
            current->suspensions.back().to = event.time;
        }
        if (!current->generations.empty() && current->generations.back().open()) {
            // Nothing of it is heard any more: it ends with what it ran in.
            current->generations.back().finished_at = event.time;
            current->generations.back().cause = e.cause;
        }
        job.restart_requested_by.clear();
        job.restart_reason.clear();
        return {};
    }
    Status operator()(const event::CancelRequested& e) const {
        if (job.cancel_requested_at == 0) {
            job.cancel_requested_at = event.time;
            job.cancel_requested_by = e.by;
        }
        return {};
    }
    // How many keys join is asked before: those that are there are read, however many.
    Status operator()(const event::RestartRequested& e) const {
        const bool begins =
            generation(e.attempt, e.generation) != nullptr && job.restart_requested_by.empty();
        if (!begins && (e.key.empty() || !is_newest(e.attempt, e.generation))) {
            return stale("generation");
        }
        job.command_keys.note(e.by, e.key, Command::restart);
        if (begins) {
            job.restart_requested_by = e.by;
            job.restart_reason = e.reason;
            job.keys_joining = 0;
        } else {
            ++job.keys_joining;
        }
        return {};
    }
    // An agent that reconnects may say it again.
    Status operator()(const event::GpuXid& e) const {
        Attempt* current = attempt(e.attempt);
        if (current == nullptr || current->xids.size() >= limits::kXidEvents) {
            return stale("attempt");
        }
        const auto same = [&e](const event::GpuXid& known) {
            return known.node == e.node && known.gpu == e.gpu && known.xid == e.xid &&
                   known.at == e.at;
        };
        if (std::any_of(current->xids.begin(), current->xids.end(), same)) {
            return stale("error");
        }
        current->xids.push_back(e);
        return {};
    }
    Status operator()(const event::WarningGiven& e) const {
        const auto& known = job.warnings;
        if (known.size() >= limits::kJobWarnings ||
            std::find(known.begin(), known.end(), e.message) != known.end()) {
            return stale("warning");
        }
        job.warnings.push_back(e.message);
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

}  // namespace

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
    job.signature = data->signature;
    if (!data->sweep.empty()) {
        SweepMember member;
        member.id = data->sweep;
        member.index = static_cast<std::int32_t>(data->sweep_index);
        member.size = static_cast<std::int32_t>(data->sweep_size);
        member.max_parallel = static_cast<std::int32_t>(data->sweep_parallel);
        member.parameters = data->sweep_parameters;
        mask_parameters(member.parameters);  // versions before 0.2.0 have stored the values
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

}  // namespace lockstep
