#include "job/agent/rank_commands.hpp"

#include "job/agent/ranks/rank_identity.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/wire/batch.hpp"
#include "job/rank/client.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lockstep {
namespace {

constexpr int kRefused = 1;
constexpr int kWrongUseOfRank = 2;

int refused(const Error& error) {
    std::fprintf(stderr, "lockstep-agent: %s\n", error.text().c_str());
    return kRefused;
}

// With launch node the ranks of a node share a socket, and this process may be gone before the
// agent looks whose it was.
void say_who(RankClient& client) {
    std::string block;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        block += *entry;
        block += '\0';
    }
    const RankIdentity identity = identity_in_environment(block);
    if (identity.known()) {
        Json hello = Json::object();
        hello["op"] = "hello";
        hello["rank"] = identity.rank;
        hello["local_rank"] = identity.local_rank;
        hello["world_size"] = identity.world_size;
        client.send_now(dump_json(hello));
    }
}

Result<std::unique_ptr<RankClient>> connect() {
    const char* path = std::getenv("LOCKSTEP_SOCKET");
    if (path == nullptr || *path == '\0') {
        return fail(Errc::unavailable, "LOCKSTEP_SOCKET is not set: this is not a rank of a job");
    }
    auto client = RankClient::connect(path);
    if (client && std::getenv("LOCKSTEP_RANKS_PER_NODE") != nullptr) {
        say_who(**client);
    }
    return client;
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

int ended(const Error& error) {
    refused(error);
    return error.code == Errc::timed_out     ? kKeyTimedOut
           : error.code == Errc::unavailable ? kKeyNoAgent
                                             : kKeyRefused;
}

// One byte more than a value may have is enough to refuse it.
Result<std::string> value_of(const KeyCommand& command) {
    if (command.value != "-") {
        return command.value;
    }
    std::string value(limits::kValueBytes + 1, '\0');
    value.resize(std::fread(value.data(), 1, value.size(), stdin));
    if (std::ferror(stdin) != 0) {
        return fail(Errc::invalid, "stdin cannot be read");
    }
    if (value.size() > limits::kValueBytes) {
        return fail(Errc::invalid, std::string{to_string(command.op)} + ": " +
                                       printable(command.key) + ": stdin has more than the " +
                                       std::to_string(limits::kValueBytes) +
                                       " bytes that a value may have");
    }
    return value;
}

int get(RankClient& client, const KeyCommand& command) {
    if (command.waits) {
        if (const Status there = client.wait({command.key}, command.timeout); !there) {
            return ended(there.error());
        }
    }
    const auto value = client.get(command.key);
    return value ? print(*value) : ended(value.error());
}

int cas(RankClient& client, const KeyCommand& command) {
    const auto value = value_of(command);
    if (!value) {
        return ended(value.error());
    }
    const auto swap = client.cas(command.key, command.expected, *value);
    if (!swap) {
        return ended(swap.error());
    }
    if (swap->value) {
        print(*swap->value);
    }
    return swap->swapped ? kKeyDone : kKeyRefused;
}

}  // namespace

int send_report(const std::vector<std::string>& words) {
    Json report = Json::object();
    report["op"] = "report";
    for (const auto& word : words) {
        if (const Status good = add_word(report, word); !good) {
            std::fprintf(stderr, "lockstep-agent: %s\n", good.error().message.c_str());
            return kWrongUseOfRank;
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
    auto connected = connect();
    if (!connected) {
        return ended(connected.error());
    }
    RankClient& client = **connected;
    if (command.op == wire::KvOp::get) {
        return get(client, command);
    }
    if (command.op == wire::KvOp::add) {
        const auto value = client.add(command.key, command.delta);
        return value ? print(std::to_string(*value)) : ended(value.error());
    }
    if (command.op == wire::KvOp::cas) {
        return cas(client, command);
    }
    Status done;
    if (command.op == wire::KvOp::erase) {
        const auto deleted = client.remove(command.key);
        done = !deleted   ? fail(deleted.error())
               : *deleted ? Status{}
                          : fail(Errc::not_found, "delete: no key " + printable(command.key));
    } else if (command.op == wire::KvOp::set) {
        const auto value = value_of(command);
        done = value ? client.set(command.key, *value,
                                  command.once ? RankClient::Write::once : RankClient::Write::any)
                     : fail(value.error());
    } else if (command.op == wire::KvOp::wait) {
        done = client.wait(command.keys, command.timeout);
    } else {
        done = client.barrier(command.key, command.timeout);
    }
    return done ? kKeyDone : ended(done.error());
}

}  // namespace lockstep
