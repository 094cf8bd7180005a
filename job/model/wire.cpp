// size: the one list of fields of every message; to be read beside wire.hpp, in its order
#include "job/model/wire.hpp"

#include "job/base/limits.hpp"
#include "job/model/fields.hpp"

#include <array>
#include <cstdio>
#include <type_traits>

namespace lockstep::wire {
namespace {

template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Hello>
void fields(V& visit, M& m) {
    visit("protocol", m.protocol);
    visit("node_rank", m.node_rank);
    visit("node", m.node);
    visit("pid", m.pid);
    visit("incarnation", m.incarnation);
    visit.optional("allocation", m.allocation);
    visit("version", m.version);
    visit("generation", m.generation);
    visit("ranks_running", m.ranks_running);
    visit.optional("time", m.time);
    visit.optional("preflight", m.preflight);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Join>
void fields(V& visit, M& m) {
    visit("address", m.address);
    visit("port", m.port);
    visit.optional("ports", m.ports);
    visit.number_or_none("generation", m.generation);
    visit("cores", m.cores);
    visit("gpus", m.gpus);
    visit("memory_mb", m.memory_mb);
}
template <class V, class M>
requires(std::is_same_v<std::remove_const_t<M>, Ready> ||
         std::is_same_v<std::remove_const_t<M>, Start> ||
         std::is_same_v<std::remove_const_t<M>, Save> ||
         std::is_same_v<std::remove_const_t<M>, TableRequest> ||
         std::is_same_v<std::remove_const_t<M>, Examined> ||
         std::is_same_v<std::remove_const_t<M>, EvidenceSaved>) void fields(V& visit, M& m) {
    visit("generation", m.generation);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, StartedRank>
void fields(V& visit, M& m) {
    visit("rank", m.rank);
    visit("pid", m.pid);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, RankState>
void fields(V& visit, M& m) {
    visit("rank", m.rank);
    visit("pid", m.pid);
    visit("state", m.state);
    visit("wchan", m.wchan);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Examine>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("reason", m.reason);
    visit.optional("first", m.first);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, EvidenceFile>
void fields(V& visit, M& m) {
    visit("name", m.name);
    visit("size", m.size);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, EvidenceGap>
void fields(V& visit, M& m) {
    visit("what", m.what);
    visit("why", m.why);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, RankEvidence>
void fields(V& visit, M& m) {
    visit("rank", m.rank);
    visit("frame", m.frame);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Started>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Exited>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("exit_code", m.exit_code);
    visit("signal", m.signal);
    visit("stopped", m.stopped);
    visit("oom", m.oom);
    visit("time", m.time);
    visit("log_tail", m.log_tail);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Fault>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("cause_class", m.cause_class);
    visit("message", m.message);
    visit("time", m.time);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, CheckpointSaved>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("step", m.step);
    visit("path", m.path);
    visit("time", m.time);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, GpuXid>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("gpu", m.gpu);
    visit("xid", m.xid);
    visit("time", m.time);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Done>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("generation", m.generation);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, KeyRequest>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("id", m.id);
    visit("rank", m.rank);
    visit("op", m.op);
    visit("keys", m.keys);
    visit("value", m.value);
    visit("delta", m.delta);
    visit("timeout_ms", m.timeout_ms);
    visit("replay", m.replay);
    visit.optional("expected", m.expected);
    visit.optional("once", m.once);
    visit.optional("version", m.version);
    visit.optional("values", m.values);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Checked>
void fields(V& visit, M& m) {
    visit("facts", m.facts);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Probed>
void fields(V& visit, M& m) {
    visit("round", m.round);
    visit("results", m.results);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Probe>
void fields(V& visit, M& m) {
    visit("round", m.round);
    visit("peers", m.peers);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Beat>
void fields(V& visit, M& m) {
    visit("time", m.time);
    visit("generation", m.generation);
    visit("dropped_rows", m.dropped_rows);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Bye>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("reason", m.reason);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Drain>
void fields(V& visit, M& m) {
    visit("reason", m.reason);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Table>
void fields(V& visit, M& m) {
    visit("digest", m.digest);
    visit("hosts", m.hosts);
    visit.optional("addresses", m.addresses);
    visit.optional("ports", m.ports);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Welcome>
void fields(V& visit, M& m) {
    visit("daemon", m.daemon);
    visit("time", m.time);
    visit("job_id", m.job_id);
    visit("job_name", m.job_name);
    visit("attempt", m.attempt);
    visit("generation", m.generation);
    visit("acked_batch", m.acked_batch);
    visit("checkpoint_directory", m.checkpoint_directory);
    visit("spec", m.spec);
    visit.optional("preflight", m.preflight);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, World>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("world_size", m.world_size);
    visit("node_rank", m.node_rank);
    visit("first_rank", m.first_rank);
    visit("local_ranks", m.local_ranks);
    visit("master_address", m.master_address);
    visit("master_port", m.master_port);
    visit("hosts", m.hosts);
    visit("resume_step", m.resume_step);
    visit.optional("addresses", m.addresses);
    visit.optional("ports", m.ports);
    visit.number_or_none("nodes", m.nodes);  // absent: as many as hosts
    visit.optional("table", m.table);
    visit.optional("address", m.address);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Abort>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("reason", m.reason);
    visit("grace_ms", m.grace_ms);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Stop>
void fields(V& visit, M& m) {
    visit("reason", m.reason);
    visit("grace_ms", m.grace_ms);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Ack>
void fields(V& visit, M& m) {
    visit("batch", m.batch);
    visit("event", m.event);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, KeyReply>
void fields(V& visit, M& m) {
    visit("id", m.id);
    visit("ok", m.ok);
    visit("has_value", m.has_value);
    visit("value", m.value);
    visit("values", m.values);
    visit("number", m.number);
    visit("error", m.error);
    visit("message", m.message);
    visit.optional("swapped", m.swapped);
    visit.optional("once", m.once);
    visit.optional("version", m.version);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, Fenced>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("message", m.message);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, AttemptFile>
void fields(V& visit, M& m) {
    visit("url", m.url);
    visit("ticket", m.ticket);
    visit("job_id", m.job_id);
    visit("attempt", m.attempt);
    visit("nodes", m.nodes);
    visit.optional("fingerprint", m.fingerprint);
    visit.optional("shared", m.shared);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, ClaimFile>
void fields(V& visit, M& m) {
    visit("pid", m.pid);
    visit("incarnation", m.incarnation);
    visit("node", m.node);
}
template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, ResultFile>
void fields(V& visit, M& m) {
    visit("incarnation", m.incarnation);
    visit("generation", m.generation);
}

template <class V, class M>
requires std::is_same_v<std::remove_const_t<M>, GaveUpFile>
void fields(V& visit, M& m) {
    visit("incarnation", m.incarnation);
    visit("node", m.node);
    visit("reason", m.reason);
}

template <class M>
Json write(const M& message) {
    FieldWriter writer;
    fields(writer, message);
    return std::move(writer.json);
}

template <class M>
Result<M> take(const Json& json) {
    M message{};
    std::vector<FieldError> errors;
    FieldTaker taker{json, errors};
    fields(taker, message);
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return message;
}

// Lists of messages inside a message: an array that take() each item of.
template <class M>
Status take_list(const Json& json, const char* key, std::vector<M>& out) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_array() ||
        found->size() > static_cast<std::size_t>(limits::kRanks)) {
        return fail(Errc::invalid, std::string{key} + ": must be an array");
    }
    for (const Json& item : *found) {
        auto one = take<M>(item);
        if (!one) {
            return fail(one.error().in(key));
        }
        if constexpr (std::is_same_v<M, RankEvidence>) {
            if (auto list = take_list(item, "files", one->files); !list) {
                return fail(list.error().in(key));
            }
            if (auto list = take_list(item, "missing", one->missing); !list) {
                return fail(list.error().in(key));
            }
        }
        out.push_back(std::move(*one));
    }
    return {};
}
template <class M>
Json write_list(const std::vector<M>& list) {
    Json out = Json::array();
    for (const M& item : list) {
        out.push_back(write(item));
        if constexpr (std::is_same_v<M, RankEvidence>) {
            out.back()["files"] = write_list(item.files);
            out.back()["missing"] = write_list(item.missing);
        }
    }
    return out;
}

// Their messages hold a list `ranks`.
template <class M>
constexpr bool kHasRanks =
    std::is_same_v<M, Started> || std::is_same_v<M, Examined> || std::is_same_v<M, EvidenceSaved>;

constexpr std::array<const char*, 17> kAgentTypes{
    "hello", "join",     "ready",   "started",  "exited", "fault", "checkpoint", "done",  "keys",
    "beat",  "examined", "gpu_xid", "evidence", "table",  "bye",   "checked",    "probed"};
constexpr std::array<const char*, 13> kDaemonTypes{
    "welcome", "world", "start",   "abort", "stop",  "ack",  "key_reply",
    "fenced",  "save",  "examine", "table", "drain", "probe"};

template <class Variant, std::size_t I = 0, std::size_t N>
Result<Variant> take_variant(const Json& json, std::string_view type,
                             const std::array<const char*, N>& types) {
    static_assert(N == std::variant_size_v<Variant>);
    if constexpr (I == N) {
        return fail(Errc::invalid, "unknown message type");
    } else {
        if (type != types[I]) {
            return take_variant<Variant, I + 1>(json, type, types);
        }
        using M = std::variant_alternative_t<I, Variant>;
        auto message = take<M>(json);
        if (!message) {
            return fail(message.error().in(type));
        }
        if constexpr (kHasRanks<M>) {
            if (auto list = take_list(json, "ranks", message->ranks); !list) {
                return fail(list.error().in(type));
            }
        }
        return Variant{std::move(*message)};
    }
}

template <class Variant, std::size_t N>
Result<Variant> decode(std::string_view text, const std::array<const char*, N>& types) {
    const auto json = parse_json(text);
    if (!json) {
        return fail(json.error());
    }
    if (!json->is_object() || !json->contains("type") || !(*json)["type"].is_string()) {
        return fail(Errc::invalid, "a message must be an object with a type");
    }
    return take_variant<Variant>(*json, (*json)["type"].template get_ref<const std::string&>(),
                                 types);
}

template <class Variant, std::size_t N>
std::string encode_variant(const Variant& message, const std::array<const char*, N>& types) {
    Json json = Json::object();
    json["type"] = types[message.index()];
    std::visit(
        [&json](const auto& m) {
            json.update(write(m));
            using Message = std::decay_t<decltype(m)>;
            if constexpr (kHasRanks<Message>) {
                json["ranks"] = write_list(m.ranks);
            }
        },
        message);
    return dump_json(json);
}

template <class M>
Result<M> decode_file(std::string_view text) {
    const auto json = parse_json(text);
    if (!json) {
        return fail(json.error());
    }
    return take<M>(*json);
}

std::string numbered(const char* format, std::int32_t number) {
    std::array<char, 64> text{};
    const int size = std::snprintf(text.data(), text.size(), format, number);
    return std::string(text.data(), static_cast<std::size_t>(size));
}

}  // namespace

std::string encode(const AgentMessage& message) {
    return encode_variant(message, kAgentTypes);
}
std::string encode(const DaemonMessage& message) {
    return encode_variant(message, kDaemonTypes);
}
Result<AgentMessage> decode_agent(std::string_view text) {
    return decode<AgentMessage>(text, kAgentTypes);
}
Result<DaemonMessage> decode_daemon(std::string_view text) {
    return decode<DaemonMessage>(text, kDaemonTypes);
}

std::string encode_attempt_file(const AttemptFile& file) {
    return dump_json_pretty(write(file)) + "\n";
}
Result<AttemptFile> decode_attempt_file(std::string_view text) {
    return decode_file<AttemptFile>(text);
}
std::string encode_claim_file(const ClaimFile& file) {
    return dump_json(write(file)) + "\n";
}
Result<ClaimFile> decode_claim_file(std::string_view text) {
    return decode_file<ClaimFile>(text);
}

std::string encode_gave_up_file(const GaveUpFile& file) {
    return dump_json(write(file)) + "\n";
}
Result<GaveUpFile> decode_gave_up_file(std::string_view text) {
    return decode_file<GaveUpFile>(text);
}

std::string encode_result_file(const ResultFile& file) {
    Json json = write(file);
    json["exits"] = write_list(file.exits);
    json["faults"] = write_list(file.faults);
    return dump_json(json) + "\n";
}
Result<ResultFile> decode_result_file(std::string_view text) {
    const auto json = parse_json(text);
    if (!json) {
        return fail(json.error());
    }
    auto file = take<ResultFile>(*json);
    if (!file) {
        return file;
    }
    if (auto list = take_list(*json, "exits", file->exits); !list) {
        return fail(list.error());
    }
    if (auto list = take_list(*json, "faults", file->faults); !list) {
        return fail(list.error());
    }
    return file;
}

std::string claim_file_name(std::int32_t node_rank, const std::string& allocation) {
    const std::string name = numbered("node-%05d", node_rank);
    return allocation.empty() ? name + ".claim" : name + "-" + allocation + ".claim";
}
std::string result_file_name(std::int32_t node_rank) {
    return numbered("node-%05d.result.json", node_rank);
}
std::string gave_up_file_name(std::int32_t node_rank) {
    return numbered("node-%05d.gave-up.json", node_rank);
}
std::string rank_log_name(std::int32_t rank) {
    return numbered("rank-%05d.log", rank);
}

}  // namespace lockstep::wire
