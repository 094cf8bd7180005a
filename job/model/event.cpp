// size: one row for each field of each event, to write and to read it
#include "job/model/event.hpp"

#include "job/model/spec/fields.hpp"
#include "job/model/wire/flat_json.hpp"

#include <type_traits>

namespace lockstep {
namespace {

template <class M, class T>
concept Is = std::is_same_v<std::remove_const_t<M>, T>;

// Members that are not plain JSON values go through small adapters.
struct CauseFields {
    template <class V, class M>
    static void visit(V& visit, M& m) {
        visit("message", m.message);
        visit("rank", m.rank);
        visit("node", m.node);
        visit("exit_code", m.exit_code);
        visit("signal", m.signal);
        visit("log_tail", m.log_tail);
        visit.optional("error_type", m.error_type);
        visit.optional("error", m.error);
        visit.optional("traceback", m.traceback);
        visit.optional("others", m.others);
        visit.optional("others_total", m.others_total);
    }
};

// In JSON the class is its word; one that a later version stored is read as internal.
template <class V, class C>
void cause_word(V& visit, C& cause) {
    if constexpr (std::is_const_v<C>) {
        visit("cause_class", std::string{to_string(cause)});
    } else {
        std::string word;
        visit("cause_class", word);
        cause = parse_cause_class(word).value_or(CauseClass::internal);
    }
}

template <class V, class M>
// NOLINTNEXTLINE(readability-function-size): the fields of every event, one after the other
void fields(V& visit, M& m) {
    if constexpr (Is<M, event::Submitted>) {
        visit("user", m.user);
        visit("spec", m.spec);
        visit("warnings", m.warnings);
        visit.optional("sweep", m.sweep);
        visit.optional("sweep_index", m.sweep_index);
        visit.optional("sweep_size", m.sweep_size);
        visit.optional("sweep_parallel", m.sweep_parallel);
        visit.optional("sweep_parameters", m.sweep_parameters);
        visit.optional("signature", m.signature);
    } else if constexpr (Is<M, event::AttemptCreated>) {
        visit("attempt", m.attempt);
        visit("ticket_hash", m.ticket_hash);
        visit("directory", m.directory);
    } else if constexpr (Is<M, event::AttemptSubmitting>) {
        visit("attempt", m.attempt);
        visit("number", m.number);
    } else if constexpr (Is<M, event::Held>) {
        visit("attempt", m.attempt);
        visit("reason", m.reason);
    } else if constexpr (Is<M, event::AttemptPlaced> || Is<M, event::AttemptSubmitted>) {
        visit("attempt", m.attempt);
        visit("scheduler_id", m.scheduler_id);
    } else if constexpr (Is<M, event::AgentClaimed>) {
        visit("attempt", m.attempt);
        visit("node_rank", m.node_rank);
        visit("node", m.node);
        visit("incarnation", m.incarnation);
        visit("pid", m.pid);
        visit.optional("allocation", m.allocation);
    } else if constexpr (Is<M, event::AgentRefused>) {
        visit("attempt", m.attempt);
        visit("node_rank", m.node_rank);
        visit("node", m.node);
        visit("reason", m.reason);
    } else if constexpr (Is<M, event::DependencyFailed>) {
        visit("after", m.after);
        visit("message", m.message);
    } else if constexpr (Is<M, event::GenerationStarted>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("master_address", m.master_address);
        visit("master_port", m.master_port);
        visit("addresses", m.addresses);
        visit("resumed_from_step", m.resumed_from_step);
        visit.optional("ports", m.ports);
        visit.optional("slots", m.slots);
        visit.optional("nodes", m.nodes);
        visit.optional("world_size", m.world_size);
        visit.optional("message", m.message);
        visit.optional("release_told", m.release_told);
    } else if constexpr (Is<M, event::RankExited>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("rank", m.rank);
        visit("node", m.node);
        visit("exit_code", m.exit_code);
        visit("signal", m.signal);
        visit("stopped", m.stopped);
        visit("oom", m.oom);
        visit("at", m.at);
        visit("log_tail", m.log_tail);
        visit.optional("launcher", m.launcher);
        visit.optional("failure", m.failure);
        visit.optional("failed_at", m.failed_at);
        visit.optional("error_type", m.error_type);
        visit.optional("error", m.error);
        visit.optional("traceback", m.traceback);
        visit.optional("step", m.step);
    } else if constexpr (Is<M, event::FaultSeen>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("rank", m.rank);
        visit("node", m.node);
        cause_word(visit, m.cause_class);
        visit("message", m.message);
        visit("at", m.at);
        visit.number_or_none("slot", m.slot);
        visit.optional("may_return", m.may_return);
        visit.optional("check", m.check);
        visit.optional("unwatched", m.unwatched);
    } else if constexpr (Is<M, event::NodeReturned>) {
        visit("attempt", m.attempt);
        visit("slot", m.slot);
        visit("node", m.node);
        visit("incarnation", m.incarnation);
        visit("pid", m.pid);
    } else if constexpr (Is<M, event::AnomalySeen>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("rank", m.rank);
        visit("node", m.node);
        visit("anomaly", m.anomaly);
        visit.number_or_none("step", m.step);
        visit("message", m.message);
        visit.optional("since", m.since);
        visit.optional("over", m.over);
    } else if constexpr (Is<M, event::PreflightSeen>) {
        visit("attempt", m.attempt);
        visit.number_or_none("slot", m.slot);
        visit("node", m.node);
        visit("severity", m.severity);
        visit.optional("check", m.check);
        visit.optional("found", m.found);
        visit.optional("expected", m.expected);
    } else if constexpr (Is<M, event::WarningGiven>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit.number_or_none("rank", m.rank);
        visit("node", m.node);
        visit("message", m.message);
    } else if constexpr (Is<M, event::CheckpointSaved>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("step", m.step);
        visit("path", m.path);
    } else if constexpr (Is<M, event::GpuXid>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("rank", m.rank);
        visit("node", m.node);
        visit("gpu", m.gpu);
        visit("xid", m.xid);
        visit("at", m.at);
    } else if constexpr (Is<M, event::EvidenceTaken>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("reason", m.reason);
        visit("message", m.message);
        visit.number_or_none("step", m.step);
        visit("ranks", m.ranks);
    } else if constexpr (Is<M, event::ProfileTaken>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("number", m.number);
        visit("by", m.by);
        visit("seconds", m.seconds);
        visit("message", m.message);
        visit("ranks", m.ranks);
    } else if constexpr (Is<M, event::Suspended>) {
        visit("attempt", m.attempt);
        visit.optional("over", m.over);
        visit("message", m.message);
    } else if constexpr (Is<M, event::CheckpointRequested>) {
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        visit("by", m.by);
        visit("signal", m.signal);
        visit("rank", m.rank);
        visit.optional("node", m.node);
        visit.optional("message", m.message);
        visit.optional("key", m.key);
    } else if constexpr (Is<M, event::CancelRequested>) {
        visit("by", m.by);
    } else if constexpr (Is<M, event::Finished>) {
        visit("step", m.step);
    } else if constexpr (Is<M, event::AttemptEnded> || Is<M, event::Released>) {
        visit("attempt", m.attempt);
    } else {
        static_assert(Is<M, event::RanksStarted> || Is<M, event::GenerationEnded> ||
                      Is<M, event::RestartRequested> || Is<M, event::RanksReleased>);
        visit("attempt", m.attempt);
        visit("generation", m.generation);
        if constexpr (Is<M, event::GenerationEnded>) {
            visit.number_or_none("step", m.step);
        } else if constexpr (Is<M, event::RanksStarted>) {
            visit.optional("warm", m.warm);
        } else if constexpr (Is<M, event::RestartRequested>) {
            visit("by", m.by);
            visit.optional("reason", m.reason);
            visit.optional("key", m.key);
        }
    }
}

Json write_cause(const Cause& cause) {
    FieldWriter writer;
    writer.json["class"] = to_string(cause.kind);
    CauseFields::visit(writer, cause);
    return std::move(writer.json);
}

void take_cause(const Json& json, Cause& cause, std::vector<FieldError>& errors) {
    ObjectReader in{json, "", errors};
    const Json* object = in.raw("cause");
    if (object == nullptr || !object->is_object()) {
        in.error("cause", "missing");
        return;
    }
    FieldTaker taker{*object, errors};
    CauseFields::visit(taker, cause);
    std::string word;
    taker("class", word);
    if (const auto kind = parse_cause_class(word)) {
        cause.kind = *kind;
    } else {
        in.error("cause", "unknown class");
    }
}

template <class E>
constexpr bool kHasCause =
    std::is_same_v<E, event::GenerationEnded> || std::is_same_v<E, event::AttemptEnded> ||
    std::is_same_v<E, event::Finished>;

template <class E>
Result<EventData> take(const Json& json) {
    E data{};
    std::vector<FieldError> errors;
    FieldTaker taker{json, errors};
    fields(taker, data);
    if constexpr (kHasCause<E>) {
        take_cause(json, data.cause, errors);
    }
    if constexpr (std::is_same_v<E, event::Finished>) {
        std::string word;
        taker("state", word);
        const auto state = parse_job_state(word);
        if (!state || !is_final(*state)) {
            errors.push_back({"/state", "not a final state"});
        } else {
            data.state = *state;
        }
    }
    if (!errors.empty()) {
        return fail(Errc::corrupt, field_errors(std::move(errors)).message);
    }
    return EventData{std::move(data)};
}

template <std::size_t I = 0>
Result<EventData> take_kind(std::size_t kind, const Json& json) {
    if constexpr (I == kEventKinds) {
        return fail(Errc::corrupt, "unknown event kind");
    } else {
        if (kind != I) {
            return take_kind<I + 1>(kind, json);
        }
        return take<std::variant_alternative_t<I, EventData>>(json);
    }
}

Json write_data(const EventData& data) {
    return std::visit(
        [](const auto& e) {
            using E = std::decay_t<decltype(e)>;
            FieldWriter writer;
            fields(writer, e);
            if constexpr (kHasCause<E>) {
                writer.json["cause"] = write_cause(e.cause);
            }
            if constexpr (std::is_same_v<E, event::Finished>) {
                writer.json["state"] = to_string(e.state);
            }
            return std::move(writer.json);
        },
        data);
}

}  // namespace

std::string encode_event_data(const EventData& data) {
    return std::visit(
        [](const auto& e) {
            using E = std::decay_t<decltype(e)>;
            TextWriter writer;
            fields(writer, e);
            if constexpr (kHasCause<E>) {
                writer("cause", write_cause(e.cause));
            }
            if constexpr (std::is_same_v<E, event::Finished>) {
                writer("state", to_string(e.state));
            }
            writer.text += '}';
            return std::move(writer.text);
        },
        data);
}

Result<EventData> decode_event_data(EventKind kind, std::string_view text) {
    const auto json = parse_json(text);
    if (!json) {
        return fail(Errc::corrupt, json.error().message);
    }
    return take_kind(static_cast<std::size_t>(kind), *json);
}

Json to_json(const Cause& cause) {
    Json out = Json::object();
    out["class"] = to_string(cause.kind);
    out["message"] = cause.message;
    if (cause.rank >= 0) {
        out["rank"] = cause.rank;
    }
    if (!cause.node.empty()) {
        out["node"] = cause.node;
    }
    if (cause.exit_code >= 0) {
        out["exit_code"] = cause.exit_code;
    }
    if (cause.signal != 0) {
        out["signal"] = cause.signal;
    }
    if (!cause.log_tail.empty()) {
        out["log_tail"] = cause.log_tail;
    }
    if (!cause.error_type.empty()) {
        Json exception = Json::object();
        exception["type"] = cause.error_type;
        exception["message"] = cause.error;
        if (!cause.traceback.empty()) {
            exception["traceback"] = cause.traceback;
        }
        out["exception"] = std::move(exception);
    }
    if (cause.others.is_array() && !cause.others.empty()) {
        out["others"] = cause.others;
        out["others_total"] = cause.others_total;
    }
    return out;
}

Json to_json(const Event& event) {
    Json out = Json::object();
    out["seq"] = event.seq;
    out["time"] = to_rfc3339(event.time);
    out["kind"] = to_string(event.kind());
    out["job"] = event.job.value;
    Json data = write_data(event.data);
    data.erase("ticket_hash");
    for (const char* key : {"attempt", "generation", "rank", "node"}) {
        const auto found = data.find(key);
        if (found == data.end()) {
            continue;
        }
        const bool unknown = (found->is_number() && found->get<std::int64_t>() < 0) ||
                             (found->is_string() && found->get_ref<const std::string&>().empty());
        if (!unknown) {
            out[key] = *found;
        }
        data.erase(key);
    }
    if (const auto cause = data.find("cause"); cause != data.end()) {
        std::visit(
            [&](const auto& e) {
                if constexpr (kHasCause<std::decay_t<decltype(e)>>) {
                    *cause = to_json(e.cause);
                }
            },
            event.data);
    }
    out["data"] = std::move(data);
    return out;
}

}  // namespace lockstep
