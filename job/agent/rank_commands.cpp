#include "job/agent/rank_commands.hpp"

#include "job/base/json.hpp"
#include "job/base/text.hpp"
#include "job/model/batch.hpp"
#include "job/rank/client.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lockstep {
namespace {

constexpr int kRefused = 1;
constexpr int kWrongUse = 2;

int refused(const Error& error) {
    std::fprintf(stderr, "lockstep-agent: %s\n", error.text().c_str());
    return kRefused;
}

Result<std::unique_ptr<RankClient>> connect() {
    const char* path = std::getenv("LOCKSTEP_SOCKET");
    if (path == nullptr || *path == '\0') {
        return fail(Errc::unavailable, "LOCKSTEP_SOCKET is not set: this is not a rank of a job");
    }
    return RankClient::connect(path);
}

Status add_word(Json& report, const std::string& word) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (equals == std::string::npos || !is_metric_name(name) || name == "op") {
        return fail(Errc::invalid, "\"" + printable(word) + "\" is not name=value");
    }
    const std::string text = word.substr(equals + 1);
    if (name == "kind") {
        report[name] = text;
        return {};
    }
    if (const auto whole = to_int(text)) {
        report[name] = *whole;
        return {};
    }
    const auto number = to_double(text);
    if (!number) {
        return fail(Errc::invalid, name + ": \"" + printable(text) + "\" is not a number");
    }
    if (std::isfinite(*number)) {
        report[name] = *number;
    } else {
        report[name] = std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf";
    }
    return {};
}

int print(std::string_view value) {
    std::fwrite(value.data(), 1, value.size(), stdout);
    std::fputc('\n', stdout);
    return 0;
}

}  // namespace

int send_report(const std::vector<std::string>& words) {
    Json report = Json::object();
    report["op"] = "report";
    for (const auto& word : words) {
        if (const Status good = add_word(report, word); !good) {
            std::fprintf(stderr, "lockstep-agent: %s\n", good.error().message.c_str());
            return kWrongUse;
        }
    }
    const auto client = connect();
    if (!client) {
        return refused(client.error());
    }
    if (!(*client)->send_now(dump_json(report))) {
        return refused(Error{Errc::unavailable, "the agent does not take the report"});
    }
    return 0;
}

int run_key_command(const KeyCommand& command) {
    const auto connected = connect();
    if (!connected) {
        return refused(connected.error());
    }
    RankClient& client = **connected;
    const std::string& key = command.keys.front();
    if (command.op == "get") {
        const auto value = client.get(key);
        return value ? print(*value) : refused(value.error());
    }
    if (command.op == "add") {
        const auto value = client.add(key, command.delta);
        return value ? print(std::to_string(*value)) : refused(value.error());
    }
    Status done;
    if (command.op == "set") {
        done = client.set(key, command.value);
    } else if (command.op == "wait") {
        done = client.wait(command.keys, command.timeout);
    } else {
        done = client.barrier(key, command.timeout);
    }
    return done ? 0 : refused(done.error());
}

}  // namespace lockstep
