// The Slurm scheduler with a Slurm of the test's own: what its tests share.
#pragma once

#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/slurm/fake_slurm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

using namespace std::chrono_literals;

class SlurmSchedulerTest : public testing::Test {
  protected:
    void start_with_a_squeue_that_hides() {
        prepare_ = [](FakeSlurm& slurm) { slurm.hides = true; };
        SlurmScheduler::Options options;
        options.reads_per_second = 1000;
        options.between_empty = std::chrono::seconds{0};
        start(options);
    }
    void start(SlurmScheduler::Options options = {}) {
        options.agent_path = "/usr/bin/lockstep-agent";
        if (quick_) {
            options.poll_min = 10ms;
            options.poll_max = 50ms;
        }
        auto backend = std::make_unique<FakeSlurm>(io_);
        slurm_ = backend.get();
        slurm_->answers = answers_;
        if (prepare_) {
            prepare_(*slurm_);
        }
        scheduler_ = std::make_unique<SlurmScheduler>(io_, *shown_, std::move(backend), options);
        scheduler_->on_change([this](const JobId& job, std::int32_t) { ++changes_[job.value]; });
        begun_ = wait<Status>(scheduler_->begin());
    }
    void TearDown() override {
        auto stop = [this]() -> Task<Status> {
            co_await scheduler_->stop();
            co_return Status{};
        };
        wait<Status>(stop());
    }
    template <class T>
    T wait(Task<T> task) {
        std::optional<T> out;
        auto run = [&out](Task<T> inner) -> Task<void> { out.emplace(co_await std::move(inner)); };
        net::co_spawn(io_, run(std::move(task)), net::detached);
        io_.restart();
        while (!out) {
            io_.run_one();
        }
        return std::move(*out);
    }
    // Throws, which fails and ends the test, if it never holds.
    void until(const std::function<bool()>& condition) {
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (!condition()) {
            if (std::chrono::steady_clock::now() >= deadline) {
                throw std::runtime_error("it never came to that");
            }
            io_.restart();
            io_.run_one_for(5ms);
        }
    }
    AttemptRequest request(const std::string& job) {
        AttemptRequest out;
        out.job = JobId{job};
        out.name = "t";
        out.resources.time_limit_seconds = 600;
        out.directory = (folder_ / (job + "/a1")).string();
        std::filesystem::create_directories(out.directory);
        return out;
    }
    // What control does: asks, writes the intent down, asks with it, asks until it is placed.
    bool hand_over(AttemptRequest& what) {
        const Handover answer = wait<Handover>(scheduler_->submit(what));
        what.intent_is_fresh = false;
        if (answer.kind == Handover::Kind::again) {
            what.intent_at = clock_.wall();
            what.intent_is_fresh = true;
        }
        last_ = answer;
        return answer.kind == Handover::Kind::placed;
    }
    static std::string job_name(int number) {
        std::string digits = std::to_string(number);
        return "ls-01J" + std::string(23 - digits.size(), '0') + digits;
    }

    net::io_context io_{1};
    SystemClock clock_;
    const Clock* shown_ = &clock_;  // to the scheduler
    test::TemporaryFolder folder_;
    bool answers_ = true;
    bool quick_ = true;
    std::function<void(FakeSlurm&)> prepare_;  // before the scheduler asks it anything
    Status begun_;
    FakeSlurm* slurm_ = nullptr;
    std::unique_ptr<SlurmScheduler> scheduler_;
    std::map<std::string, int> changes_;
    Handover last_;
};

}  // namespace lockstep
