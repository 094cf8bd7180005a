// A Slurm of the tests' own: takes every script, and says of each job what the test wants.
#pragma once

#include "job/async/sleep.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class FakeSlurm final : public SlurmBackend {
  public:
    explicit FakeSlurm(net::io_context& io) : io_(io) {}
    std::string_view name() const override { return "slurm"; }
    Task<Result<SlurmFacts>> probe() override {
        SlurmFacts facts;
        facts.version = {22, 5, 8};
        SlurmPartition main;
        main.name = "main";
        main.state = "UP";
        main.is_default = true;
        main.total_nodes = 4;
        main.max_time = 3600;
        facts.partitions.push_back(main);
        facts.config.accounting_storage = accounting ? "accounting_storage/slurmdbd" : "";
        facts.config.min_job_age = min_job_age;
        if (change_facts) {
            change_facts(facts);
        }
        if (!answers) {
            co_return fail(Errc::unavailable, "no controller");
        }
        co_return facts;
    }
    Task<SubmitReply> submit(std::string path) override {
        ++now_sending;
        most_sending = std::max(most_sending, now_sending);
        net::steady_timer pause{io_};
        const bool hanging = hangs;
        do {
            co_await sleep_on(pause, std::chrono::milliseconds{1});
        } while (hanging && hangs && !stopped);
        --now_sending;
        ++submissions;
        if (says) {
            co_return *says;
        }
        SubmitReply reply;
        reply.kind = SubmitReply::Kind::accepted;
        reply.id = ++ids;
        // The script's path ends in <job>/a1/batch.sh.
        const std::filesystem::path file{path};
        names[reply.id] = file.parent_path().parent_path().filename().string();
        co_return reply;
    }
    Task<Result<JobTable>> jobs() override {
        ++queries;
        details_before = details;
        if (!answers) {
            co_return fail(Errc::unavailable, "no controller");
        }
        JobTable table;
        if (hides) {
            co_return table;
        }
        for (const auto& [id, job] : names) {
            SlurmJob row;
            row.id = id;
            row.name = renamed.empty() ? slurm::batch_job_name("t", JobId{job}, 1) : renamed;
            row.state = parse_slurm_state(state);
            row.reason = "Resources";
            row.partition = "main";
            row.submitted_at = submitted_at;
            row.nodes = "n1";
            row.started_at = started_at;
            row.ended_at = ended_at;
            table.jobs.push_back(row);
        }
        table.jobs.insert(table.jobs.end(), others.begin(), others.end());
        co_return table;
    }
    Task<Result<JobTable>> history(std::string, std::int64_t) override {
        ++histories;
        net::steady_timer pause{io_};
        while (accounting_hangs && !stopped) {
            co_await sleep_on(pause, std::chrono::milliseconds{1});
        }
        if (!accounting_answers) {
            co_return fail(Errc::unavailable, "slurmdbd is down");
        }
        co_return JobTable{};
    }
    Task<Status> cancel(std::int64_t id, std::string name) override {
        EXPECT_EQ(is_slurm_job_name(name), renamed.empty()) << name;
        if (id == cannot_cancel) {
            co_return fail(Errc::unavailable, "scancel: Unable to contact slurm controller");
        }
        cancelled.push_back(id);
        co_return Status{};
    }
    Task<Result<SlurmJobDetail>> detail(std::int64_t id, std::string name) override {
        EXPECT_TRUE(is_slurm_job_name(name)) << name;
        ++details;
        most_details = std::max(most_details, details - details_before);
        asked_about.push_back(id);
        net::steady_timer pause{io_};
        while (details_hang && !stopped) {
            co_await sleep_on(pause, std::chrono::milliseconds{1});
        }
        if (!answers) {
            co_return fail(Errc::unavailable, "no controller");
        }
        SlurmJobDetail out;
        out.exit_code = exit_code;
        co_return out;
    }
    Task<Result<std::optional<TestOnlyReply>>> estimate(std::string script) override {
        estimated = std::move(script);
        ++estimates;
        net::steady_timer pause{io_};
        do {
            co_await sleep_on(pause, std::chrono::milliseconds{1});
        } while (hangs && !stopped);
        co_return test_only;
    }
    Task<Status> ping() override { co_return Status{}; }
    Task<Result<NodeTable>> nodes() override {
        ++node_queries;
        NodeTable table;
        SlurmNode down;
        down.name = "n1";
        down.state = "down";
        down.flags = "*";
        down.reason = "Not responding";
        down.cpus = 8;
        table.nodes.push_back(down);
        co_return table;
    }
    void stop() override { stopped = true; }

    bool answers = true;
    bool hides = false;  // every job, whether it has it or not
    std::string state = "PENDING";
    std::map<std::int64_t, std::string> names;
    std::string renamed;           // by somebody, all of them
    std::vector<SlurmJob> others;  // that squeue shows besides
    std::vector<std::int64_t> cancelled;
    std::int64_t cannot_cancel = 0;  // scancel of this job fails
    std::int64_t ids = 0;
    int queries = 0;
    int node_queries = 0;
    int details = 0;
    bool details_hang = false;
    std::vector<std::int64_t> asked_about;  // by detail()
    int details_before = 0;                 // the last query
    int most_details = 0;                   // between two queries
    int exit_code = 0;                      // of every job that has failed
    std::int64_t submitted_at = 0;          // of every job
    std::int64_t started_at = 0;
    std::int64_t ended_at = 0;
    bool accounting = false;
    bool accounting_answers = true;
    bool accounting_hangs = false;
    int histories = 0;
    std::string estimated;  // the script that was asked about last
    int estimates = 0;
    std::optional<TestOnlyReply> test_only;
    std::int64_t min_job_age = 300;
    std::function<void(SlurmFacts&)> change_facts;  // after all that it says itself
    std::optional<SubmitReply> says;                // instead of taking what is handed in
    bool hangs = false;  // what is handed in from now on stays on its way
    bool stopped = false;
    int submissions = 0;
    int now_sending = 0;
    int most_sending = 0;

  private:
    net::io_context& io_;
};

}  // namespace lockstep
