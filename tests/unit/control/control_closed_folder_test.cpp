// What agents have left in a folder that is closed to lockstepd, as with lockstep-exec: a program
// opens each file, and may stand still.
#include "daemon/control/actor/attempt_leftovers.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "tests/unit/control/control_slurm_fixture.hpp"

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep {
namespace {

class ClosedFolderTest : public ControlSlurmTest {
  protected:
    void TearDown() override {
        stand_still(false);
        ControlSlurmTest::TearDown();
        // A thread that lockstepd no longer waited for may still be in the program below.
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return inside_ == 0; });
        lock.unlock();
        set_foreign_folder({}, {});
    }
    // Whoever is asked to open a file there waits while it stands still, or for as long as it
    // takes.
    void close(const std::filesystem::path& folder) {
        set_foreign_folder(folder, [this](const std::filesystem::path& path) -> Result<UniqueFd> {
            std::unique_lock lock{mutex_};
            ++inside_;
            ++opens_;
            by_control_ = by_control_ || std::this_thread::get_id() == control_thread_;
            changed_.wait_for(lock, stands_still_ ? kStill : takes_,
                              [this] { return !stands_still_ && takes_ == takes_.zero(); });
            --inside_;
            changed_.notify_all();
            lock.unlock();
            UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
            return fd ? Result<UniqueFd>{std::move(fd)} : fail(Errc::not_found, "it is not there");
        });
    }
    void stand_still(bool does, std::chrono::milliseconds takes = {}) {
        const std::lock_guard lock{mutex_};
        stands_still_ = does;
        takes_ = takes;
        changed_.notify_all();
    }
    // Of the job that was handed over last. lockstepd's own files lie elsewhere with lockstep-exec.
    void close_job() { close(std::filesystem::path{scheduler_.last.directory}.parent_path()); }
    void leave(const std::string& name, const std::string& text) const {
        ASSERT_TRUE(write_file_atomic(std::filesystem::path{scheduler_.last.directory} / name, text)
                        .has_value());
    }
    void leave_done(std::int32_t node) const {
        wire::ResultFile result;
        result.generation = 1;
        result.exits.push_back(exit(1, node, 0));
        leave(wire::result_file_name(node), wire::encode_result_file(result));
    }

    static constexpr std::chrono::milliseconds kStill{20'000};
    const std::thread::id control_thread_ = std::this_thread::get_id();
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stands_still_ = false;
    std::chrono::milliseconds takes_{0};
    int inside_ = 0;
    std::atomic<bool> by_control_{false};
    std::atomic<int> opens_{0};
};

// The control thread waited for each of them: 20 s for all jobs, whenever one had ended.
TEST_F(ClosedFolderTest, WhileAResultIsNotOpenedOtherJobsGoOn) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_closed();
    second.session->on_closed();
    leave_done(0);
    leave_done(1);
    stand_still(true);
    close_job();
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return opens_ > 0; }, "a result is being opened");
    EXPECT_FALSE(by_control_);
    ASSERT_TRUE(submit("another"));
    EXPECT_EQ(scheduler_.submissions, 1);
    until([&] { return scheduler_.submissions == 2; }, "another job is handed over");
    EXPECT_EQ(state(id), "running");
    EXPECT_EQ(opens_, 1) << "nothing was waited for meanwhile";
    stand_still(false);
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    EXPECT_FALSE(by_control_);
}

// The time in which its result was read counted as time in which nobody was heard, and the silence
// began anew with every look.
TEST_F(ClosedFolderTest, ASilentNodeIsLostHoweverLongItsResultIsRead) {
    context_->settings.deaf = std::chrono::seconds{1};
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    second.session->on_closed();
    auto settle = [&]() -> Task<void> { co_await control_->ready(); };
    wait(settle());
    stand_still(false, std::chrono::milliseconds{1'200});
    close_job();
    clock_.advance(limits::kAgentLost + std::chrono::seconds{1});
    first.say(wire::Beat{0, 1, 0});
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP");
    EXPECT_GT(opens_, 0);
    EXPECT_FALSE(by_control_);
}

TEST_F(ClosedFolderTest, LockstepdEndsWhileAFileIsNotOpenedAndConcludesNothing) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    first.session->on_closed();
    second.session->on_closed();
    leave_done(0);
    leave_done(1);
    stand_still(true);
    close_job();
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return opens_ > 0; }, "a result is being opened");
    const auto began = std::chrono::steady_clock::now();
    shut_down();
    EXPECT_LT(std::chrono::steady_clock::now() - began, kStill / 2);
    stand_still(false);
    boot();
    until([&] { return state(id) == "succeeded"; }, "the next one reads it");
}

TEST_F(ClosedFolderTest, WhatSlurmSaidInTheLogsIsReadBeforeANodeIsLost) {
    std::vector<TestAgent> agents;
    const std::string id = running(agents);
    leave("agent-00001.log",
          "slurmstepd-n1: error: StepId=2.0 exceeded memory limit (600 > 300), being killed\n");
    close_job();
    agents[0].session->on_closed();
    agents[1].session->on_closed();
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.message = "Slurm job 17 failed";
    until([&] { return state(id) == "failed"; }, "failed");
    const Json cause = show(id)["cause"];
    EXPECT_EQ(cause["class"], "oom") << cause;
    EXPECT_EQ(cause["node"], "n1");
    EXPECT_FALSE(by_control_);
}

TEST_F(ClosedFolderTest, TheWordsOfAnAgentThatNobodyHeardAreInTheCause) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    leave(wire::gave_up_file_name(0), wire::encode_gave_up_file({"i0", "n0", "no way to go on"}));
    close_job();
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_NE(show(id)["cause"].value("message", "").find("no way to go on"), std::string::npos)
        << show(id)["cause"];
    EXPECT_FALSE(by_control_);
}

TEST_F(ClosedFolderTest, WhatIsNotReadInTimeIsNotSaidToBeAbsent) {
    close(folder_ / "closed");
    AttemptLeftovers files{scheduler_};
    Attempt attempt;
    attempt.directory = (folder_ / "closed" / "ls-1" / "a1").string();
    EXPECT_EQ(files.result(attempt, 3).error().code, Errc::unavailable);
    EXPECT_FALSE(files.gave_up(attempt, 3, "i3"));
    EXPECT_FALSE(files.memory(attempt, 4));
    EXPECT_TRUE(files.has_missing());
    wait(files.read_missing(context_->attempt_files, std::chrono::steady_clock::now()));
    EXPECT_EQ(files.result(attempt, 3).error().code, Errc::timed_out);
    EXPECT_FALSE(files.gave_up(attempt, 3, "i3"));
    EXPECT_FALSE(files.memory(attempt, 4));
    EXPECT_FALSE(files.has_missing());
    EXPECT_EQ(opens_, 0);
    // The next look tries again.
    files.forget();
    EXPECT_EQ(files.result(attempt, 3).error().code, Errc::unavailable);
    wait(files.read_missing(context_->attempt_files,
                            std::chrono::steady_clock::now() + std::chrono::seconds{10}));
    const auto absent = files.result(attempt, 3);
    ASSERT_TRUE(absent);
    EXPECT_FALSE(*absent);
    EXPECT_EQ(opens_, 1);
}

}  // namespace
}  // namespace lockstep
