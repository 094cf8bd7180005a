#include "job/agent/ranks/rank_message.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/wire/batch.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

using Bad = tl::unexpected<BadRankMessage>;

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

// A number, or the words for the ones JSON cannot write.
std::optional<double> number_of(const Json& value) {
    if (value.is_number()) {
        return value.get<double>();
    }
    if (value.is_string()) {
        const auto& word = value.get_ref<const std::string&>();
        if (word == "nan" || word == "inf" || word == "-inf") {
            return to_double(word);
        }
    }
    return std::nullopt;
}

std::string column_of(const std::string& name, std::string_view kind) {
    if (name != "loss" || kind == "opt") {
        return name;
    }
    return std::string{kind} + "_loss";
}

void add_busy_seconds(RankReport& report) {
    std::optional<double> step;
    std::optional<double> waits;
    for (const auto& [name, value] : report.metrics) {
        if (name == "busy_seconds") {
            return;
        }
        if (name == "step_seconds") {
            step = value;
        } else if (name == "comm_wait_seconds" || name == "data_wait_seconds") {
            waits = waits.value_or(0) + value;
        }
    }
    if (step && waits) {
        report.metrics.emplace_back("busy_seconds", std::max(0.0, *step - *waits));
    }
}

tl::expected<RankMessage, BadRankMessage> parse_report(const Json& json, double now) {
    std::vector<FieldError> errors;
    ObjectReader in{json, "", errors};
    RankReport report;
    report.time = now;
    std::size_t kind = 0;
    const std::vector<std::string_view> kinds{"opt", "micro", "epoch"};
    std::int64_t epoch = 0;
    std::int64_t total = 0;
    in.integer("step", report.step, -1, kInt64Max);
    in.integer("epoch", epoch, 0, kInt64Max);
    in.integer("total_steps", total, 0, kInt64Max);
    in.number("time", report.time, 0, 1e12);
    in.word("kind", kind, kinds);
    if (!errors.empty()) {
        return Bad{{std::nullopt, field_errors(std::move(errors)).message}};
    }
    for (const auto& [name, value] : json.items()) {
        if (name == "op" || name == "step" || name == "time" || name == "kind") {
            continue;
        }
        if (!is_metric_name(name)) {
            return Bad{{std::nullopt, "\"" + printable(name.substr(0, 64)) +
                                          "\" is no metric name (a-z, 0-9 and _, at most 64)"}};
        }
        const auto number = number_of(value);
        if (!number) {
            return Bad{{std::nullopt, name + ": must be a number, \"nan\", \"inf\" or \"-inf\""}};
        }
        report.has_loss = report.has_loss || name == "loss";
        report.metrics.emplace_back(column_of(name, kinds[kind]), *number);
    }
    // Leave room for the columns that the agent adds.
    if (report.metrics.size() + 2 > limits::kMetricsPerJob) {
        return Bad{{std::nullopt, "more than " + std::to_string(limits::kMetricsPerJob - 2) +
                                      " metrics in one report"}};
    }
    add_busy_seconds(report);
    return report;
}

tl::expected<RankMessage, BadRankMessage> parse_notice(const Json& json, std::string_view op) {
    std::vector<FieldError> errors;
    ObjectReader in{json, "", errors};
    if (op == "phase") {
        std::size_t phase = 0;
        if (!in.has("phase")) {
            in.error("phase", "missing");
        }
        in.word("phase", phase, {"init", "train", "eval", "checkpoint"});
        if (errors.empty()) {
            return RankPhase{static_cast<int>(phase)};
        }
    } else {
        RankCheckpoint checkpoint;
        if (!in.has("step") || !in.has("path")) {
            in.error("step", "step and path must be given");
        }
        in.integer("step", checkpoint.step, 0, kInt64Max);
        in.string("path", checkpoint.path, limits::kPathBytes);
        if (errors.empty()) {
            return checkpoint;
        }
    }
    return Bad{{std::nullopt, field_errors(std::move(errors)).message}};
}

tl::expected<RankMessage, BadRankMessage> parse_hello(const Json& json) {
    std::vector<FieldError> errors;
    ObjectReader in{json, "", errors};
    RankHello hello;
    constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
    in.integer("rank", hello.identity.rank, -1, kMost);
    in.integer("local_rank", hello.identity.local_rank, -1, kMost);
    in.integer("world_size", hello.identity.world_size, -1, kMost);
    if (const auto id = json.find("id"); id != json.end() && id->is_number_integer()) {
        hello.id = id->get<std::int64_t>();
    }
    if (!errors.empty()) {
        return Bad{{hello.id, field_errors(std::move(errors)).message}};
    }
    return hello;
}

// Foreign text, of which everything but its control characters is kept.
void words(ObjectReader& in, std::string_view field, std::string& target, std::size_t max_bytes) {
    const Json* given = in.raw(field);
    if (given != nullptr && given->is_string() &&
        given->get_ref<const std::string&>().size() <= max_bytes) {
        target = printable(given->get_ref<const std::string&>());
    } else {
        in.string(field, target, max_bytes);  // says what is wrong with it
    }
}

// As job/rank/python/hooks/_lockstep_hooks.py sends it.
tl::expected<RankMessage, BadRankMessage> parse_exception(const Json& json) {
    std::vector<FieldError> errors;
    ObjectReader in{json, "", errors};
    ExceptionNote note;
    double time = 0;
    in.integer("pid", note.pid, 1, kInt64Max);
    in.boolean("final", note.final);
    in.number("time", time, 0, 1e12);
    words(in, "type", note.type, limits::kTextBytes);
    words(in, "message", note.message, 4 * limits::kErrorBytes);
    words(in, "traceback", note.traceback, 4 * limits::kTracebackBytes);
    words(in, "thread", note.thread, limits::kTextBytes);
    in.integer("rank", note.rank, -1, limits::kRanks);
    if (note.type.empty() || note.pid == 0) {
        in.error("type", "type and pid must be given");
    }
    if (const Json* chain = in.raw("chain"); chain != nullptr && chain->is_array()) {
        for (const Json& one : *chain) {
            if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string()) {
                note.chain.emplace_back(printable(one[0].get_ref<const std::string&>()),
                                        printable(one[1].get_ref<const std::string&>()));
            }
        }
    }
    if (!errors.empty()) {
        return Bad{{std::nullopt, field_errors(std::move(errors)).message}};
    }
    note.at = static_cast<UnixMillis>(time * 1000);
    return note;
}

void check_value(ObjectReader& in, std::string_view field, const std::string& key,
                 const std::string& value) {
    if (value.size() > (limits::kValueBytes + 2) / 3 * 4) {
        in.error(field, "of the key " + printable(key) + " has more than " +
                            std::to_string(limits::kValueBytes) + " bytes");
    } else if (!base64_decode(value)) {
        in.error(field, "is not base 64");
    }
}

void read_key_fields(ObjectReader& in, RankKeyRequest& out) {
    constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();
    const wire::KvOp op = out.request.op;
    const auto need = [&](std::string_view key) {
        if (!in.has(key)) {
            in.error(key, "missing");
        }
    };
    if (op == wire::KvOp::wait || op == wire::KvOp::multi_get || op == wire::KvOp::multi_set) {
        need("keys");
        in.strings("keys", out.request.keys, limits::kRanks, limits::kKeyBytes);
    } else {
        const char* name = op == wire::KvOp::barrier ? "name" : "key";
        std::string key;
        need(name);
        in.string(name, key, limits::kKeyBytes);
        if (key.empty()) {
            in.error(name, "must not be empty");
        }
        out.request.keys.push_back(std::move(key));
    }
    if (op == wire::KvOp::set || op == wire::KvOp::cas) {
        need("value");
        in.string("value", out.request.value, kAnyLength);
        check_value(in, "value", out.request.keys.front(), out.request.value);
    }
    if (op == wire::KvOp::cas) {
        in.string("expected", out.request.expected, kAnyLength);
        check_value(in, "expected", out.request.keys.front(), out.request.expected);
    }
    if (op == wire::KvOp::set || op == wire::KvOp::multi_set) {
        in.boolean("once", out.request.once);
    }
    if (op == wire::KvOp::multi_set) {
        need("values");
        in.strings("values", out.request.values, limits::kRanks, kAnyLength);
        if (out.request.values.size() != out.request.keys.size()) {
            in.error("values", "one for each key");
        }
        for (std::size_t i = 0; i < out.request.keys.size() && i < out.request.values.size(); ++i) {
            check_value(in, "values", out.request.keys[i], out.request.values[i]);
        }
    }
    if (op == wire::KvOp::add) {
        in.integer("delta", out.request.delta, std::numeric_limits<std::int64_t>::min(), kInt64Max);
    }
    in.integer("timeout_ms", out.request.timeout_ms, 0, kInt64Max);
    // "For ever" is asked for with any large number.
    out.request.timeout_ms = std::min(out.request.timeout_ms, limits::kKeyWaitMs);
}

tl::expected<RankMessage, BadRankMessage> parse_key(const Json& json, wire::KvOp op) {
    const auto id = json.find("id");
    if (id == json.end() || !id->is_number_integer()) {
        return Bad{{std::nullopt, "id: a key operation needs an integer id"}};
    }
    RankKeyRequest out;
    out.id = id->get<std::int64_t>();
    out.request.op = op;
    std::vector<FieldError> errors;
    ObjectReader in{json, "", errors};
    read_key_fields(in, out);
    if (!errors.empty()) {
        return Bad{{out.id, field_errors(std::move(errors)).message}};
    }
    return out;
}

}  // namespace

tl::expected<RankMessage, BadRankMessage> parse_rank_message(std::string_view text, double now) {
    const auto json = parse_json(text);
    if (!json) {
        return Bad{{std::nullopt, json.error().message}};
    }
    if (!json->is_object()) {
        return Bad{{std::nullopt, "not a JSON object"}};
    }
    const auto found = json->find("op");
    if (found == json->end() || !found->is_string()) {
        return Bad{{std::nullopt, "op: missing"}};
    }
    const auto& op = found->get_ref<const std::string&>();
    if (op == "report") {
        // A value of a key operation may be large; a report may not.
        if (text.size() > limits::kReportBytes) {
            return Bad{{std::nullopt,
                        "a report larger than " + std::to_string(limits::kReportBytes) + " bytes"}};
        }
        return parse_report(*json, now);
    }
    if (op == "phase" || op == "checkpoint") {
        return parse_notice(*json, op);
    }
    if (op == "hello") {
        return parse_hello(*json);
    }
    if (op == "exception") {
        return parse_exception(*json);
    }
    if (const wire::KvOp key_op = wire::kv_op_of(op); key_op != wire::KvOp::unknown) {
        return parse_key(*json, key_op);
    }
    const auto id = json->find("id");
    const bool waits = id != json->end() && id->is_number_integer();
    return Bad{{waits ? std::optional{id->get<std::int64_t>()} : std::nullopt,
                "op: unknown \"" + printable(op.substr(0, 64)) + "\""}};
}

std::string encode_rank_answer(std::int64_t id, wire::KvOp op, const wire::KeyReply& reply) {
    if (!reply.ok) {
        return encode_rank_refusal(id, reply.error, reply.message);
    }
    Json out = Json::object();
    out["id"] = id;
    out["ok"] = true;
    if (op == wire::KvOp::add) {
        out["value"] = reply.number;
    } else if (op == wire::KvOp::erase) {
        out["deleted"] = reply.number == 1;
    } else if (op == wire::KvOp::get) {
        out["value"] = reply.value;
    } else if (op == wire::KvOp::cas) {
        out["swapped"] = reply.swapped;
        out["value"] = reply.has_value ? Json(reply.value) : Json(nullptr);
    } else if (op == wire::KvOp::multi_get) {
        out["values"] = reply.values;
    }
    return dump_json(out);
}

std::string encode_hello_answer(std::int64_t id, bool known) {
    Json out = Json::object();
    out["id"] = id;
    out["ok"] = true;
    out["known"] = known;
    return dump_json(out);
}

std::string encode_rank_refusal(std::optional<std::int64_t> id, std::string_view error,
                                std::string_view message) {
    Json out = Json::object();
    out["id"] = id ? Json(*id) : Json(nullptr);
    out["ok"] = false;
    out["error"] = error;
    out["message"] = message;
    return dump_json(out);
}

}  // namespace lockstep
