// size: the fields of every message, in the order of wire.hpp
// What visitors (fields.hpp, flat_json.hpp) are told of each message and file. Internal to
// job/model.
#pragma once

#include "job/model/spec/fields.hpp"
#include "job/model/wire/wire.hpp"

#include <type_traits>

namespace lockstep::wire {

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
    visit.optional("profiles", m.profiles);
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
    visit.optional("addresses", m.addresses);
}
template <class V, class M>
    requires(std::is_same_v<std::remove_const_t<M>, Ready> ||
             std::is_same_v<std::remove_const_t<M>, Start> ||
             std::is_same_v<std::remove_const_t<M>, Save> ||
             std::is_same_v<std::remove_const_t<M>, TableRequest> ||
             std::is_same_v<std::remove_const_t<M>, Examined> ||
             std::is_same_v<std::remove_const_t<M>, EvidenceSaved>)
void fields(V& visit, M& m) {
    visit("generation", m.generation);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, AskSave>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("round", m.round);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, CanSave>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("round", m.round);
    visit("rank", m.rank);
    visit("problem", m.problem);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, SaveAsked>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("problem", m.problem);
    visit("time", m.time);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, StartedRank>
void fields(V& visit, M& m) {
    visit("rank", m.rank);
    visit("pid", m.pid);
    visit.optional("warm", m.warm);
    visit.optional("ended", m.ended);
    visit.optional("end_known", m.end_known);
    visit.optional("exit_code", m.exit_code);
    visit.optional("signal", m.signal);
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
    visit.optional("gentle", m.gentle);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, Profile>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("number", m.number);
    visit("seconds", m.seconds);
    visit.optional("ranks", m.ranks);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, Profiled>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("number", m.number);
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
    visit.optional("stack", m.stack);
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
    visit.optional("failure", m.failure);
    visit.optional("failed_at", m.failed_at);
    visit.optional("error_type", m.error_type);
    visit.optional("error", m.error);
    visit.optional("traceback", m.traceback);
    visit.optional("launcher", m.launcher);
    visit.optional("step", m.step);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, Warned>
void fields(V& visit, M& m) {
    visit("event", m.event);
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("message", m.message);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, Desync>
void fields(V& visit, M& m) {
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("message", m.message);
    visit("waited_ms", m.waited_ms);
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
    requires std::is_same_v<std::remove_const_t<M>, PairTested>
void fields(V& visit, M& m) {
    visit("round", m.round);
    visit("ms", m.ms);
    visit("problem", m.problem);
    visit("absent", m.absent);
    visit.optional("nccl", m.nccl);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, PairTest>
void fields(V& visit, M& m) {
    visit("round", m.round);
    visit("task", m.task);
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
    visit.optional("asks_us", m.asks_us);
    visit.optional("offset_us", m.offset_us);
    visit.number_or_none("offset_error_us", m.offset_error_us);
}
template <class V, class M>
    requires std::is_same_v<std::remove_const_t<M>, Clock>
void fields(V& visit, M& m) {
    visit("asked_us", m.asked_us);
    visit("daemon_us", m.daemon_us);
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
    visit.optional("document", m.document);
    visit.optional("secret_names", m.secret_names);
    visit.optional("secret_values", m.secret_values);
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
    visit.optional("admitted", m.admitted);
    visit.optional("rdma_ports", m.rdma_ports);
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
    visit.optional("outcome", m.outcome);
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
    visit.optional("socket", m.socket);
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

// Their messages hold a list `ranks`.
template <class M>
inline constexpr bool kHasRanks = std::is_same_v<M, Started> || std::is_same_v<M, Examined> ||
                                  std::is_same_v<M, EvidenceSaved> || std::is_same_v<M, Profiled>;

// Of a document; its lists come after, see take_list().
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

}  // namespace lockstep::wire
