// Real interpreters, with and without the hooks: who may be asked is, and nobody else.
#include "job/agent/diagnostics/python_stacks.hpp"

#include "job/agent/ranks/crash_watch.hpp"
#include "tests/support/temporary_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

namespace lockstep::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::seconds kPatience{60};

class PythonStacksTest : public testing::Test {
  protected:
    ~PythonStacksTest() override {
        for (const pid_t pid : children_) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
    }
    // A Python that has got to its wait.
    pid_t python(const std::string& name, const std::string& body, bool hooks) {
        const auto ready = folder / (name + ".ready");
        std::ofstream{folder / (name + ".py")} << "import os, time\ndef wait_for_data():\n    "
                                               << body << "\nopen(" << '"' << ready.string()
                                               << "\", 'w').close()\nwait_for_data()\n";
        std::vector<std::string> environment{
            "PATH=/usr/bin:/bin", "LOCKSTEP_SOCKET=" + (folder / "r00000.sock").string()};
        if (hooks) {
            environment.push_back("PYTHONPATH=" LOCKSTEP_SOURCE_DIR "/job/rank/python/hooks");
            environment.emplace_back("PYTHONDONTWRITEBYTECODE=1");
        }
        std::vector<char*> variables;
        for (std::string& one : environment) {
            variables.push_back(one.data());
        }
        variables.push_back(nullptr);
        std::string program = "/usr/bin/python3";
        std::string script = (folder / (name + ".py")).string();
        char* argv[] = {program.data(), script.data(), nullptr};
        pid_t pid = -1;
        EXPECT_EQ(::posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv, variables.data()),
                  0);
        children_.push_back(pid);
        for (int i = 0; i < 6000 && !std::filesystem::exists(ready); ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
        }
        return pid;
    }
    static std::vector<ProcessLook> tree(pid_t pid) {
        return look_at_tree(pid, children_by_parent());
    }
    TemporaryFolder folder;
    std::vector<pid_t> children_;
};

TEST_F(PythonStacksTest, EveryRankTellsWhereItIsAndOneWithoutTheHooksIsLeftAlone) {
    const pid_t hooked = python("hooked", "time.sleep(600)", true);
    const pid_t spins = python("spins", "exec('while True: pass')", true);
    const pid_t plain = python("plain", "time.sleep(600)", false);
    const auto began = std::chrono::steady_clock::now();
    const auto found = ask_python_stacks({tree(hooked), tree(plain), tree(spins)}, kPatience);
    const auto took = std::chrono::steady_clock::now() - began;
    ASSERT_EQ(found.size(), 3U);
    EXPECT_THAT(found[0].stack, StartsWith("hooked.py:3 wait_for_data\nhooked.py:5 <module>"));
    EXPECT_THAT(found[0].text, HasSubstr("==== process " + std::to_string(hooked)));
    EXPECT_THAT(found[2].stack, HasSubstr("spins.py:3 wait_for_data"));
    EXPECT_EQ(found[1].text, "");
    EXPECT_EQ(found[1].missing, "the hooks are not in this Python");
    EXPECT_LT(took, kPatience) << "nobody's patience is waited for";
    for (const pid_t pid : {hooked, plain, spins}) {
        EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "it lives";
    }
    // Asked again, it answers again, and only that is taken.
    const auto again = ask_python_stacks({tree(hooked)}, kPatience);
    EXPECT_EQ(again[0].stack, found[0].stack);
}

// It was taken to be whole after 24 ms in which nothing more had come: the process waits for a
// processor for longer where others do much.
TEST_F(PythonStacksTest, AnAnswerThatComesInPiecesIsTakenWhole) {
    const std::string answers = "time.sleep(600)\nimport signal\nout = open('" +
                                (folder / "stacks.1").string() +
                                "', 'w')\ndef answer(*_):\n"
                                "    for line in ('Current thread 0x1 (most recent call first):',\n"
                                "                 '  File \"a.py\", line 3 in wait_for_data',\n"
                                "                 '  File \"a.py\", line 5 in <module>'):\n"
                                "        print(line, file=out, flush=True)\n"
                                "        time.sleep(0.06)\n"
                                "signal.signal(45, answer)";
    const pid_t pid = python("slow", answers, false);
    const auto found = ask_python_stacks({tree(pid)}, kPatience);
    EXPECT_EQ(found[0].stack, "a.py:3 wait_for_data\na.py:5 <module>") << found[0].missing;
}

TEST_F(PythonStacksTest, AForkThatHasItsParentsFileIsToldApart) {
    const pid_t parent = python("parent", "(lambda pid: time.sleep(600))(os.fork())", true);
    std::vector<ProcessLook> both;
    for (int i = 0; i < 6000 && both.size() < 2; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
        both = tree(parent);
    }
    ASSERT_EQ(both.size(), 2U);
    children_.push_back(both[1].pid);
    const auto found = ask_python_stacks({both}, kPatience);
    for (const ProcessLook& one : both) {
        EXPECT_THAT(found[0].text, HasSubstr("==== process " + std::to_string(one.pid)));
    }
}

TEST_F(PythonStacksTest, AStoppedProcessIsNotWaitedFor) {
    const pid_t pid = python("stopped", "time.sleep(600)", true);
    ::kill(pid, SIGSTOP);
    ASSERT_EQ(::waitpid(pid, nullptr, WUNTRACED), pid);
    const auto found = ask_python_stacks({tree(pid)}, kPatience);
    EXPECT_EQ(found[0].missing, "the process is stopped");
}

TEST(CrashWatch, TheFirstWordOfTheLastCrashCounts) {
    CrashWatch watch;
    watch.feed("loss 0.5\nTraceback (most rec", 1'000);
    EXPECT_EQ(watch.at(), 0);
    watch.feed("ent call last):\n", 1'010);
    EXPECT_EQ(watch.at(), 1'010) << "also if it comes in two pieces";
    watch.feed("During handling …\nTraceback (most recent call last):\n", 1'500);
    EXPECT_EQ(watch.at(), 1'010) << "what came of it is no crash of its own";
    watch.feed("loss 0.4\n", 5'000);
    watch.feed("terminate called after throwing an instance of 'c10::Error'\n", 6'000);
    EXPECT_EQ(watch.at(), 6'000);
}

}  // namespace
}  // namespace lockstep::test
