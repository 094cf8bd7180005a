// How a look at ranks ends: whatever hangs, in time, and without touching the look after it. Real
// processes stand for the ranks; a debugger is a script in their PATH.
#include "job/agent/diagnostics/evidence_taker.hpp"

#include "job/base/limits.hpp"
#include "job/model/evidence.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

namespace lockstep::test {
namespace {

using Clock = std::chrono::steady_clock;
using testing::SizeIs;

class EvidenceTakerTest : public testing::Test {
  protected:
    EvidenceTakerTest() { std::filesystem::create_directories(tools()); }
    ~EvidenceTakerTest() override {
        hang_->set_value();
        for (const wire::StartedRank& rank : ranks_) {
            ::kill(static_cast<pid_t>(rank.pid), SIGKILL);
            ::waitpid(static_cast<pid_t>(rank.pid), nullptr, 0);
        }
    }
    std::filesystem::path tools() const { return folder_ / "tools"; }
    void gdb(const std::string& script) const {
        const auto path = tools() / "gdb";
        std::ofstream{path.string() + ".new"} << "#!/bin/sh\n" << script << "\n";
        ::chmod((path.string() + ".new").c_str(), 0755);
        std::filesystem::rename(path.string() + ".new", path);
    }
    // Its fourth argument is the process's number.
    std::string mark(const std::string& name) const {
        return "touch " + (folder_ / name).string() + "-$4; ";
    }
    bool marked(const std::string& name, const wire::StartedRank& rank) const {
        return std::filesystem::exists(folder_ / (name + "-" + std::to_string(rank.pid)));
    }
    void start_ranks(std::int32_t count) {
        std::string path = "PATH=" + tools().string() + ":/usr/bin:/bin";
        for (std::int32_t rank = 0; rank < count; ++rank) {
            std::string name = "sleep";
            std::string time = "600";
            std::array<char*, 3> argv{name.data(), time.data(), nullptr};
            std::array<char*, 2> environment{path.data(), nullptr};
            pid_t pid = -1;
            if (::posix_spawn(&pid, "/bin/sleep", nullptr, nullptr, argv.data(),
                              environment.data()) != 0) {
                throw std::runtime_error("cannot start a rank");
            }
            ranks_.push_back({rank, pid});
            // The kernel lets the parent go on before the child's variables can be read: without
            // its PATH the look would take the machine's own debugger.
            const std::string variables = "/proc/" + std::to_string(pid) + "/environ";
            const auto deadline = Clock::now() + std::chrono::seconds{60};
            while (text_of(variables).empty()) {
                if (Clock::now() >= deadline) {
                    throw std::runtime_error("a rank does not begin");
                }
                std::this_thread::yield();
            }
        }
    }
    EvidenceTaker::Done keep(std::optional<wire::EvidenceSaved>& saved) {
        return [&saved](wire::EvidenceSaved one) { saved = std::move(one); };
    }
    template <class Condition>
    bool run_until(Condition condition, std::chrono::seconds time = std::chrono::seconds{30}) {
        const auto deadline = Clock::now() + time;
        while (!condition() && Clock::now() < deadline) {
            io_.run_one_for(std::chrono::milliseconds{50});
            io_.restart();
        }
        return condition();
    }
    static std::string why(const wire::RankEvidence& evidence, std::string_view what) {
        for (const wire::EvidenceGap& gap : evidence.missing) {
            if (gap.what == what) {
                return gap.why;
            }
        }
        return "";
    }

    const TemporaryFolder folder_;
    std::shared_ptr<std::promise<void>> hang_ = std::make_shared<std::promise<void>>();
    std::shared_future<void> end_{hang_->get_future()};
    std::vector<wire::StartedRank> ranks_;
    net::io_context io_{1};
    TaskGroup tasks_{io_};
};

// The attempt's folder hangs, which may be why the ranks do: no stack waits for a file, and what
// was had is told while the time for it lasts.
TEST_F(EvidenceTakerTest, AFileSystemThatHangsCostsOnlyTheFiles) {
    gdb(mark("seen") + "echo 'Thread 1 (LWP 1):'; echo '#0  0x1 in waiting_for_godot ()'");
    start_ranks(static_cast<std::int32_t>(limits::kEvidenceParallel) + 2);
    const auto hang = [end = end_](const std::filesystem::path&, std::string_view) -> Status {
        end.wait();
        return {};
    };
    EvidenceTaker taker{tasks_, folder_.path(), "/usr/bin:/bin", hang};
    std::optional<wire::EvidenceSaved> saved;
    const auto began = Clock::now();
    ASSERT_TRUE(taker.take(1, ranks_, keep(saved)));
    EXPECT_FALSE(taker.take(1, ranks_, keep(saved))) << "one at a time";
    EXPECT_TRUE(run_until([&] {
        return std::all_of(ranks_.begin(), ranks_.end(),
                           [&](const wire::StartedRank& rank) { return marked("seen", rank); });
    }));
    ASSERT_TRUE(run_until([&] { return saved.has_value(); }));
    EXPECT_LT(Clock::now() - began, limits::kEvidencePatience) << "the daemon waits no longer";
    ASSERT_THAT(saved->ranks, SizeIs(ranks_.size()));
    for (const wire::RankEvidence& one : saved->ranks) {
        EXPECT_EQ(one.frame, "waiting_for_godot");
        EXPECT_THAT(one.files, SizeIs(0));
        EXPECT_EQ(why(one, kStateText), "the file system did not answer in time");
    }
    EXPECT_TRUE(run_until([&] { return tasks_.size() == 0; })) << "nobody waits for it any more";
}

TEST_F(EvidenceTakerTest, TheEndOfAnOldLookDoesNotCutTheNewOne) {
    gdb(mark("attached") + "exec sleep 600");
    start_ranks(1);
    EvidenceTaker taker{tasks_, folder_.path(), "/usr/bin:/bin"};
    std::optional<wire::EvidenceSaved> old;
    std::optional<wire::EvidenceSaved> saved;
    ASSERT_TRUE(taker.take(1, ranks_, keep(old)));
    ASSERT_TRUE(run_until([&] { return marked("attached", ranks_[0]); }));
    gdb(mark("again") + "echo 'Thread 1 (LWP 1):'; echo '#0  0x1 in waiting_for_godot ()'");
    taker.stop();
    ASSERT_TRUE(taker.take(2, ranks_, keep(saved)));
    ASSERT_TRUE(run_until([&] { return saved.has_value(); }));
    EXPECT_EQ(saved->generation, 2);
    ASSERT_THAT(saved->ranks, SizeIs(1));
    EXPECT_EQ(saved->ranks[0].frame, "waiting_for_godot");
    EXPECT_EQ(why(saved->ranks[0], "all"), "");
    EXPECT_GE(saved->ranks[0].files.size(), 2U) << "state and stack are written";
    EXPECT_TRUE(run_until([&] { return tasks_.size() == 0; }));
    EXPECT_FALSE(old) << "its ranks are to end: nobody wants it";
}

TEST_F(EvidenceTakerTest, ALookThatIsStoppedBeforeItHasBegunEndsAtOnce) {
    gdb(mark("attached") + "exec sleep 600");
    start_ranks(1);
    EvidenceTaker taker{tasks_, folder_.path(), "/usr/bin:/bin"};
    std::optional<wire::EvidenceSaved> saved;
    ASSERT_TRUE(taker.take(1, ranks_, keep(saved)));
    taker.stop();
    EXPECT_TRUE(run_until([&] { return tasks_.size() == 0; }));
    EXPECT_FALSE(saved);
    EXPECT_FALSE(marked("attached", ranks_[0]));
}

}  // namespace
}  // namespace lockstep::test
