#include "job/model/job_view.hpp"

#include "job/model/spec/spec_fields.hpp"

namespace lockstep {
namespace {

void put_time(Json& out, const char* key, UnixMillis time) {
    if (time != 0) {
        out[key] = to_rfc3339(time);
    }
}

// The long texts of a cause are told once: `told` has them already.
void put_cause(Json& out, const Cause& cause, const Cause* told = nullptr) {
    if (cause.kind == CauseClass::none) {
        return;
    }
    Json json = to_json(cause);
    if (told != nullptr && told->rank == cause.rank && told->log_tail == cause.log_tail &&
        told->traceback == cause.traceback) {
        json.erase("log_tail");
        json.erase("others");
        json.erase("others_total");
        if (const auto exception = json.find("exception"); exception != json.end()) {
            exception->erase("traceback");
        }
    }
    out["cause"] = std::move(json);
}

Json spans_json(const JobTime& time) {
    Json out = Json::object();
    for (std::size_t i = 0; i < kSpans; ++i) {
        out[std::string{kSpanNames[i]} + "_seconds"] = time.seconds[i];
    }
    return out;
}

// What is wrong with the live generation for as long as it is.
void put_lasting(Json& out, const char* key, const std::optional<event::AnomalySeen>& seen) {
    if (!seen) {
        return;
    }
    Json one = Json::object();
    put_time(one, "since", seen->since);
    one["message"] = seen->message;
    if (seen->rank >= 0) {
        one["rank"] = seen->rank;
    }
    if (!seen->node.empty()) {
        one["node"] = seen->node;
    }
    if (seen->step >= 0) {
        one["step"] = seen->step;
    }
    out[key] = std::move(one);
}

// `time`: nullptr = not known.
Json generation_json(const Job& job, const Generation& generation, const GenerationTime* time) {
    Json out = Json::object();
    out["number"] = generation.number;
    put_time(out, "started_at", generation.started_at);
    put_time(out, "running_at", generation.running_at);
    put_time(out, "finished_at", generation.finished_at);
    put_cause(out, generation.cause, &job.cause);
    out["nodes"] = generation.nodes;
    out["world_size"] = generation.nodes * job.spec.ranks_per_node();
    if (!generation.message.empty()) {
        out["message"] = generation.message;
    }
    if (generation.resumed_from_step >= 0) {
        out["resumed_from_step"] = generation.resumed_from_step;
    }
    if (const std::int64_t step = time != nullptr ? time->step : generation.step; step >= 0) {
        out["step"] = step;
    }
    if (time != nullptr && time->lost_steps) {
        out["lost_steps"] = *time->lost_steps;
    }
    return out;
}

std::string_view attempt_state(const Job& job, const Attempt& attempt) {
    if (attempt.finished_at != 0) {
        const CauseClass cause = attempt.cause.kind;
        return cause == CauseClass::none                ? "succeeded"
               : cause == CauseClass::cancelled_by_user ? "cancelled"
                                                        : "failed";
    }
    if (attempt.placed_at == 0) {
        return "queued";
    }
    return to_string(job.state);
}

Json attempt_json(const Job& job, const Attempt& attempt, const JobTime& time) {
    Json out = Json::object();
    out["number"] = attempt.number;
    if (!attempt.scheduler_id.empty()) {
        out["scheduler_id"] = attempt.scheduler_id;
    }
    out["state"] = attempt_state(job, attempt);
    if (!attempt.directory.empty()) {
        out["directory"] = attempt.directory;
    }
    out["nodes"] = Json::array();
    for (const auto& [slot, claim] : attempt.claims) {
        out["nodes"].push_back(claim.node);
    }
    for (const auto& [slot, cause] : attempt.lost) {
        if (const auto claim = attempt.claims.find(slot); claim != attempt.claims.end()) {
            out["lost_nodes"].push_back(claim->second.node);
        }
    }
    put_time(out, "created_at", attempt.created_at);
    put_time(out, "started_at", attempt.placed_at);
    put_time(out, "finished_at", attempt.finished_at);
    const Cause* told =
        attempt.generations.empty() ? &job.cause : &attempt.generations.back().cause;
    put_cause(out, attempt.cause, told);
    if (!attempt.preflight.empty()) {
        out["preflight"] = Json::array();
        for (const PreflightFinding& one : attempt.preflight) {
            out["preflight"].push_back({{"node", one.node},
                                        {"check", one.check},
                                        {"severity", one.fails ? kPreflightFail : kPreflightWarn},
                                        {"found", one.found},
                                        {"expected", one.expected}});
        }
    }
    out["generations"] = Json::array();
    for (const auto& generation : attempt.generations) {
        out["generations"].push_back(
            generation_json(job, generation, time.find(attempt.number, generation.number)));
    }
    return out;
}

}  // namespace

Json job_json(const Job& job, const LiveView& live) {
    const JobTime time = live.now != 0 ? job_time(job, live.reports, live.now) : JobTime{};
    Json out = Json::object();
    out["id"] = job.id.value;
    out["name"] = job.spec.name;
    out["user"] = job.user;
    out["framework"] = to_string(job.spec.framework);
    out["state"] = to_string(job.state);
    out["labels"] = Json::object();
    for (const auto& [name, value] : job.spec.labels) {
        out["labels"][name] = value;
    }
    out["resources"] = to_json(job.spec.resources);
    if (job.sweep) {
        Json sweep = Json::object();
        sweep["id"] = job.sweep->id;
        sweep["index"] = job.sweep->index;
        sweep["size"] = job.sweep->size;
        if (job.sweep->max_parallel > 0) {
            sweep["max_parallel"] = job.sweep->max_parallel;
        }
        sweep["parameters"] = job.sweep->parameters;
        out["sweep"] = std::move(sweep);
    }
    if (!job.spec.after.empty()) {
        out["after"] = job.spec.after;
    }
    put_time(out, "submitted_at", job.submitted_at);
    put_time(out, "started_at", job.started_at);
    put_time(out, "finished_at", job.finished_at);
    put_time(out, "cancel_requested_at", is_final(job.state) ? 0 : job.cancel_requested_at);
    if (job.step >= 0) {
        out["step"] = job.step;
    } else if (live.step) {
        out["step"] = *live.step;
    }
    if (live.total_steps) {
        out["total_steps"] = *live.total_steps;
    }
    if (job.checkpoint_step >= 0) {
        out["checkpoint_step"] = job.checkpoint_step;
        out["checkpoint_path"] = job.checkpoint_path;
    }
    for (std::size_t i = 0; i < kAnomalyKinds; ++i) {
        if (job.anomalies[i] > 0) {
            out["anomalies"][std::string{kAnomalyNames[i]}] = job.anomalies[i];
        }
    }
    if (live.now != 0) {
        out["spans"] = spans_json(time);
    }
    if (time.ettr) {
        out["ettr"] = *time.ettr;
    }
    if (time.lost_steps) {
        out["lost_steps"] = *time.lost_steps;
    }
    if (!live.pending_reason.empty()) {
        out["pending_reason"] = live.pending_reason;
    }
    if (live.expected_start != 0) {
        out["expected_start"] = to_rfc3339(live.expected_start);
    }
    if (const Generation* generation = job.live_generation()) {
        put_lasting(out, "hang", generation->hang);
        put_lasting(out, "desync", generation->desync);
    }
    put_cause(out, job.cause);
    if (!job.warnings.empty()) {
        out["warnings"] = job.warnings;
    }
    out["attempts"] = Json::array();
    for (const auto& attempt : job.attempts) {
        out["attempts"].push_back(attempt_json(job, attempt, time));
    }
    return out;
}

Json rank_json(const Job& job, std::int32_t rank) {
    const std::int32_t per_node = job.spec.ranks_per_node();
    const std::int32_t node_rank = rank / per_node;
    Json out = Json::object();
    out["rank"] = rank;
    out["local_rank"] = rank % per_node;
    out["node_rank"] = node_rank;
    if (!job.spec.roles.empty()) {
        out["role"] = job.spec.role_of(rank).name;
    }
    std::string state = "waiting";
    if (const NodeClaim* claim = job.claim_of_node(node_rank)) {
        out["node"] = claim->node;
    }
    if (const Generation* generation = job.generation()) {
        if (static_cast<std::size_t>(node_rank) < generation->addresses.size()) {
            out["address"] = generation->addresses[static_cast<std::size_t>(node_rank)];
        }
        if (!generation->open()) {
            state = "waiting";  // for the next generation
        } else if (generation->running_at != 0) {
            state = "running";
        }
        if (const auto failed = generation->failed.find(rank); failed != generation->failed.end()) {
            const auto& exit = failed->second;
            state = exit.stopped ? "stopped" : "failed";
            if (exit.signal != 0) {
                out["signal"] = exit.signal;
            } else {
                out["exit_code"] = exit.exit_code;
            }
        } else if (static_cast<std::size_t>(rank) >= generation->exited.size()) {
            state = "gone";  // the generation has fewer ranks than one before it
        } else if (generation->exited[static_cast<std::size_t>(rank)]) {
            state = generation->stopped.contains(rank) ? "stopped" : "succeeded";
            out["exit_code"] = 0;
        } else if (is_final(job.state)) {
            state = "lost";
        }
    } else if (is_final(job.state)) {
        state = "never_started";
    }
    out["state"] = state;
    return out;
}

}  // namespace lockstep
