// The key operations of RankClient; the connection is in client.cpp.
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/rank/client.hpp"
#include "job/rank/rank_limits.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// The agent's answer to a timed request may take this much longer than the time asked for.
constexpr RankClient::Timeout kAnswerSlack{5'000};

Result<std::string> value_of(const Json& value) {
    if (!value.is_string()) {
        return fail(Errc::internal, "agent: an answer without a value");
    }
    return base64_decode(value.get_ref<const std::string&>());
}

Status check_key(const std::string& key) {
    if (key.empty() || key.size() > limits::kKeyBytes) {
        return fail(Errc::invalid,
                    "key: must have 1.." + std::to_string(limits::kKeyBytes) + " bytes");
    }
    return {};
}

// Before it is encoded: what is far too large costs nothing.
Status check_pair(const std::string& key, std::string_view value) {
    if (const Status good = check_key(key); !good) {
        return good;
    }
    if (value.size() > limits::kValueBytes) {
        return fail(Errc::invalid, key + ": the value has " + std::to_string(value.size()) +
                                       " bytes, at most " + std::to_string(limits::kValueBytes) +
                                       " are allowed");
    }
    return {};
}

// What an agent waits at most.
RankClient::Timeout at_most_a_day(RankClient::Timeout timeout) {
    return std::min(timeout, RankClient::Timeout{limits::kKeyWaitMs});
}

}  // namespace

Status RankClient::set(const std::string& key, std::string_view value, Write write) {
    if (const Status good = check_pair(key, value); !good) {
        return fail(good.error().in("set"));
    }
    Json request;
    request["op"] = "set";
    request["key"] = key;
    request["value"] = base64_encode(value);
    if (write == Write::once) {
        request["once"] = true;
    }
    const Result<Json> answer = ask(std::move(request), limits::kRankAnswerPatience);
    return answer ? Status{} : fail(answer.error().in("set " + key));
}

Status RankClient::multi_set(const std::vector<std::pair<std::string, std::string>>& values,
                             Write write) {
    Json keys = Json::array();
    Json texts = Json::array();
    std::size_t bytes = 0;
    for (const auto& [key, value] : values) {
        if (const Status good = check_pair(key, value); !good) {
            return fail(good.error().in("multi_set"));
        }
        bytes += value.size();
        if (bytes > limits::kKeyAnswerBytes) {
            return fail(Errc::exhausted, "multi_set: more than one message holds");
        }
        keys.push_back(key);
        texts.push_back(base64_encode(value));
    }
    Json request;
    request["op"] = "multi_set";
    request["keys"] = std::move(keys);
    request["values"] = std::move(texts);
    if (write == Write::once) {
        request["once"] = true;
    }
    const Result<Json> answer = ask(std::move(request), limits::kRankAnswerPatience);
    return answer ? Status{} : fail(answer.error().in("multi_set"));
}

Result<RankClient::Swap> RankClient::cas(const std::string& key, std::string_view expected,
                                         std::string_view value) {
    for (const std::string_view one : {expected, value}) {
        if (const Status good = check_pair(key, one); !good) {
            return fail(good.error().in("cas"));
        }
    }
    Json request;
    request["op"] = "cas";
    request["key"] = key;
    if (!expected.empty()) {
        request["expected"] = base64_encode(expected);
    }
    request["value"] = base64_encode(value);
    const Result<Json> answer = ask(std::move(request), limits::kRankAnswerPatience);
    if (!answer) {
        return fail(answer.error().in("cas " + key));
    }
    const Json swapped = answer->value("swapped", Json{});
    if (!swapped.is_boolean()) {
        return fail(Errc::internal, "cas: the agent does not say whether it swapped");
    }
    Swap out;
    out.swapped = swapped.get<bool>();
    if (const Json now = answer->value("value", Json{}); !now.is_null()) {
        Result<std::string> bytes = value_of(now);
        if (!bytes) {
            return fail(std::move(bytes).error().in("cas " + key));
        }
        out.value = std::move(*bytes);
    }
    return out;
}

Result<std::string> RankClient::get(const std::string& key) {
    if (const Status good = check_key(key); !good) {
        return fail(good.error().in("get"));
    }
    Json request;
    request["op"] = "get";
    request["key"] = key;
    const Result<Json> answer = ask(std::move(request), limits::kRankAnswerPatience);
    if (!answer) {
        return fail(answer.error().in("get " + key));
    }
    return value_of(answer->value("value", Json{}));
}

Status RankClient::wait(const std::vector<std::string>& keys, Timeout timeout) {
    timeout = at_most_a_day(timeout);
    Json request;
    request["op"] = "wait";
    request["keys"] = keys;
    request["timeout_ms"] = timeout.count();
    const Result<Json> answer = ask(std::move(request), timeout + kAnswerSlack);
    return answer ? Status{} : fail(answer.error().in("wait"));
}

Result<std::vector<std::string>> RankClient::multi_get(const std::vector<std::string>& keys) {
    Json request;
    request["op"] = "multi_get";
    request["keys"] = keys;
    const Result<Json> answer = ask(std::move(request), limits::kRankAnswerPatience);
    if (!answer) {
        return fail(answer.error().in("multi_get"));
    }
    const Json values = answer->value("values", Json{});
    if (!values.is_array() || values.size() != keys.size()) {
        return fail(Errc::internal, "multi_get: the agent answered another number of values");
    }
    std::vector<std::string> out;
    for (const Json& value : values) {
        Result<std::string> bytes = value_of(value);
        if (!bytes) {
            return fail(std::move(bytes).error().in("multi_get"));
        }
        out.push_back(std::move(*bytes));
    }
    return out;
}

Result<std::int64_t> RankClient::add(const std::string& key, std::int64_t delta) {
    if (const Status good = check_key(key); !good) {
        return fail(good.error().in("add"));
    }
    Json request;
    request["op"] = "add";
    request["key"] = key;
    request["delta"] = delta;
    const Result<Json> answer = ask(std::move(request), limits::kRankAnswerPatience);
    if (!answer) {
        return fail(answer.error().in("add " + key));
    }
    const Json value = answer->value("value", Json{});
    if (!value.is_number_integer()) {
        return fail(Errc::internal, "add: the agent answered without a number");
    }
    return value.get<std::int64_t>();
}

Result<bool> RankClient::remove(const std::string& key) {
    if (const Status good = check_key(key); !good) {
        return fail(good.error().in("delete"));
    }
    Json request;
    request["op"] = "delete";
    request["key"] = key;
    const Result<Json> answer = ask(std::move(request), limits::kRankAnswerPatience);
    if (!answer) {
        return fail(answer.error().in("delete " + key));
    }
    const Json deleted = answer->value("deleted", Json{});
    if (!deleted.is_boolean()) {
        return fail(Errc::internal, "delete: the agent does not say whether there was the key");
    }
    return deleted.get<bool>();
}

Status RankClient::barrier(const std::string& name, Timeout timeout) {
    if (const Status good = check_key(name); !good) {
        return fail(good.error().in("barrier"));
    }
    timeout = at_most_a_day(timeout);
    Json request;
    request["op"] = "barrier";
    request["name"] = name;
    request["timeout_ms"] = timeout.count();
    const Result<Json> answer = ask(std::move(request), timeout + kAnswerSlack);
    return answer ? Status{} : fail(answer.error().in("barrier " + name));
}

}  // namespace lockstep
