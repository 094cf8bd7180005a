// One verb of the slurmrestd driver, for test_rest.py:
//   rest_verb URL USER probe|ping|jobs|nodes | submit FILE | cancel ID NAME | preempted ID |
//             history NAME SINCE | body FILE PARSER
// The token comes in the environment, LOCKSTEP_TEST_TOKEN. Prints one JSON document; exit status 0
// whatever Slurm said. `cli` in the place of URL asks Slurm's own programs (submit and jobs only).
#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/rest_job.hpp"
#include "scheduler-integration/slurm/slurm_cli.hpp"
#include "scheduler-integration/slurm/slurm_rest.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace {

Json of(const Error& error) {
    Json out;
    out["error"] = to_string(error.code);
    out["message"] = error.message;
    return out;
}

Json of(const JobTable& table) {
    Json out;
    out["malformed"] = table.malformed;
    out["jobs"] = Json::array();
    for (const SlurmJob& job : table.jobs) {
        Json row;
        row["id"] = job.id;
        row["name"] = job.name;
        row["user"] = job.user;
        row["state"] = job.state.raw;
        row["phase"] = to_string(job.verdict().phase);
        row["end"] = to_string(job.verdict().end);
        row["terminal"] = job.verdict().terminal;
        row["reason"] = job.reason;
        row["nodes"] = job.nodes;
        row["partition"] = job.partition;
        row["exit_code"] = job.exit_code ? Json(*job.exit_code) : Json();
        row["signal"] = job.signal ? Json(*job.signal) : Json();
        row["submitted_at"] = job.submitted_at;
        row["started_at"] = job.started_at;
        row["ended_at"] = job.ended_at;
        out["jobs"].push_back(std::move(row));
    }
    return out;
}

Json of(const SlurmFacts& facts) {
    Json out;
    out["version"] = to_string(facts.version);
    out["has_accounting"] = facts.config.has_accounting();
    out["credential_lifetime"] = facts.config.credential_lifetime();
    out["controllers"] = facts.config.controllers;
    out["partitions"] = Json::array();
    for (const SlurmPartition& one : facts.partitions) {
        Json row;
        row["name"] = one.name;
        row["state"] = one.state;
        row["is_default"] = one.is_default;
        row["max_time"] = one.max_time ? Json(*one.max_time) : Json();
        row["default_time"] = one.default_time ? Json(*one.default_time) : Json();
        row["max_nodes"] = one.max_nodes ? Json(*one.max_nodes) : Json();
        row["total_nodes"] = one.total_nodes;
        row["total_cpus"] = one.total_cpus;
        row["nodes"] = one.nodes;
        out["partitions"].push_back(std::move(row));
    }
    return out;
}

Json of(const NodeTable& table) {
    Json out;
    out["malformed"] = table.malformed;
    out["nodes"] = Json::array();
    for (const SlurmNode& node : table.nodes) {
        Json row;
        row["name"] = node.name;
        row["state"] = node.state;
        row["flags"] = node.flags;
        row["reason"] = node.reason;
        row["usable"] = node.usable();
        row["cpus"] = node.cpus;
        row["cpus_allocated"] = node.cpus_allocated;
        row["cpus_idle"] = node.cpus_idle;
        row["memory_mb"] = node.memory_mb;
        row["gpus"] = node.gpus();
        row["gpus_used"] = node.gpus_used();
        row["partitions"] = node.partitions;
        out["nodes"].push_back(std::move(row));
    }
    return out;
}

Json of(const SubmitReply& reply) {
    constexpr std::array kKinds{"accepted",      "rejected", "later",
                                "not_submitted", "denied",   "ambiguous"};
    Json out;
    out["kind"] = kKinds.at(static_cast<std::size_t>(reply.kind));
    out["id"] = reply.id;
    out["message"] = reply.message;
    return out;
}

Json of(const SlurmJobDetail& detail) {
    Json out;
    out["preempted"] = detail.preempted;
    out["restarts"] = detail.restarts;
    out["exit_code"] = detail.exit_code ? Json(*detail.exit_code) : Json();
    return out;
}

template <class T>
Json said(const Result<T>& result) {
    return result ? of(*result) : of(result.error());
}
Json said(const Status& status) {
    return status ? Json("ok") : of(status.error());
}

Task<void> run(SlurmBackend& backend, std::vector<std::string> words, Json& out) {
    const std::string& verb = words.at(0);
    if (verb == "probe") {
        out = said(co_await backend.probe());
    } else if (verb == "ping") {
        out = said(co_await backend.ping());
    } else if (verb == "jobs") {
        out = said(co_await backend.jobs());
    } else if (verb == "nodes") {
        out = said(co_await backend.nodes());
    } else if (verb == "submit") {
        out = of(co_await backend.submit(words.at(1)));
    } else if (verb == "cancel") {
        out = said(co_await backend.cancel(std::stoll(words.at(1)), words.at(2)));
    } else if (verb == "detail") {
        out = said(co_await backend.detail(std::stoll(words.at(1)), words.at(2)));
    } else if (verb == "history") {
        out = said(co_await backend.history(words.at(1), std::stoll(words.at(2))));
    } else {
        out = "no such verb";
    }
}

std::unique_ptr<SlurmBackend> backend_of(net::io_context& io, const Clock& clock,
                                         const std::string& url, const std::string& user) {
    const char* token = std::getenv("LOCKSTEP_TEST_TOKEN");
    if (url == "cli") {
        SlurmCli::Options options;
        options.user = user;
        options.uid = ::getuid();
        const char* conf = std::getenv("SLURM_CONF");
        options.slurm_conf = conf != nullptr ? conf : "";
        auto cli = std::make_unique<SlurmCli>(io, options, nullptr);
        return cli->find_programs() ? std::move(cli) : nullptr;
    }
    const auto address = parse_rest_address(url);
    if (!address) {
        std::fprintf(stderr, "rest_verb: %s\n", address.error().message.c_str());
        return nullptr;
    }
    SlurmRest::Options options;
    options.address = *address;
    options.user = user;
    options.token = [text = std::string{token != nullptr ? token : ""}] { return text; };
    return std::make_unique<SlurmRest>(io, clock, std::move(options), nullptr);
}

int body_of(const std::vector<std::string>& words, const std::string& user) {
    const auto script = read_file(words.at(1), 1U << 22U);
    rest::JobSite site;
    site.parser = std::stoi(words.at(2));
    site.user = user;
    const auto body = script ? rest::submission(*script, site) : fail(script.error());
    std::puts(body ? body->c_str() : dump_json(of(body.error())).c_str());
    return 0;
}

int run_program(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() < 3) {
        std::fputs("usage: rest_verb URL USER VERB [WORD…]\n", stderr);
        return 64;
    }
    const std::string url = words[0];
    const std::string user = words[1];
    words.erase(words.begin(), words.begin() + 2);
    if (words[0] == "body") {
        return body_of(words, user);
    }
    net::io_context io{1};
    const SystemClock clock;
    const auto backend = backend_of(io, clock, url, user);
    if (!backend) {
        return 64;
    }
    Json out;
    std::exception_ptr problem;
    net::co_spawn(io, run(*backend, words, out),
                  [&problem](const std::exception_ptr& error) { problem = error; });
    io.run();
    if (problem) {
        std::rethrow_exception(problem);
    }
    std::puts(dump_json(out).c_str());
    return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    try {
        return lockstep::run_program(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rest_verb: %s\n", error.what());
        return 70;
    }
}
