// The agent's side of processes that wait to be ranks. A shell plays Python and its hooks: it says
// by descriptor 3 that it waits.
#include "job/agent/ranks/standbys.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <optional>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr const char* kWaits = "printf r >&3; : >ready.$N; read -r word <&3; ";

class StandbysTest : public testing::Test {
  protected:
    ~StandbysTest() override {
        standbys->close();
        io.restart();
        io.run();
    }
    // Ranks 0 … with a standby each that runs its script; $N is the rank.
    void begin(const std::vector<std::string>& scripts, Standbys::Timing timing = hour()) {
        std::filesystem::create_directories(folder / "hooks");
        for (const char* file :
             {"sitecustomize.py", "_lockstep_hooks.py", "_lockstep_standby.py"}) {
            EXPECT_TRUE(write_file_atomic(folder / "hooks" / file, "", 0644));
        }
        standbys.emplace(tasks, folder.path().string(),
                         Standbys::Handlers{[this](std::int32_t, std::string text) {
                                                warnings.push_back(std::move(text));
                                            },
                                            [this] { ++killed; }},
                         timing);
        std::vector<Standbys::Rank> ranks;
        for (std::size_t i = 0; i < scripts.size(); ++i) {
            const std::string name = "script." + std::to_string(i);
            EXPECT_TRUE(write_file_atomic(folder / name, scripts[i], 0644));
            SpawnRequest request;
            request.agent_program = LOCKSTEP_AGENT;
            request.program = "/bin/sh";
            request.argv = {"python3", name};
            request.environment = {{"PATH", "/usr/bin:/bin"},
                                   {"N", std::to_string(i)},
                                   {"PYTHONPATH", (folder / "hooks").string() + ":/nowhere"}};
            request.directory = folder.path().string();
            ranks.push_back({request, pid_of(i)});
            requests.push_back(request);
            EXPECT_TRUE(write_file_atomic(hooks_of(i), "", 0600));
        }
        standbys->begin({"torch"}, std::move(ranks), mask);
    }
    static Standbys::Timing hour() { return {std::chrono::milliseconds{0}, std::chrono::hours{1}}; }
    static std::int64_t pid_of(std::size_t rank) {
        return 1'000'000 + static_cast<std::int64_t>(rank);
    }
    std::filesystem::path hooks_of(std::size_t rank) {
        return folder / ("stacks." + std::to_string(pid_of(rank)));
    }
    bool is_there(const std::string& name) { return std::filesystem::exists(folder / name); }
    // Runs what is due until `there` holds. look() is the caller's.
    bool until(const std::function<bool()>& there) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
        while (!there() && std::chrono::steady_clock::now() < end) {
            io.restart();
            io.run_for(std::chrono::milliseconds{1});
        }
        io.restart();
        io.poll();
        return there();
    }
    bool waits(std::size_t rank) {
        return until([&] { return is_there("ready." + std::to_string(rank)); });
    }

    TemporaryFolder folder;
    net::io_context io{1};
    TaskGroup tasks{io};
    std::shared_ptr<const SecretMask> mask;
    std::optional<Standbys> standbys;
    std::vector<SpawnRequest> requests;
    std::vector<std::string> warnings;
    int killed = 0;
};

std::string all_of(int fd) {
    std::string out;
    std::array<char, 4096> piece{};
    pollfd readable{fd, POLLIN, 0};
    while (::poll(&readable, 1, 60'000) > 0) {
        const auto got = ::read(fd, piece.data(), piece.size());
        if (got <= 0) {
            return out;
        }
        out.append(piece.data(), static_cast<std::size_t>(got));
    }
    return out + "[no end]";
}

TEST_F(StandbysTest, WhatItPrintsWhileItImportsIsTheRanks) {
    const std::string text(200'000, 'x');  // more than a pipe has room for by itself
    begin(
        {"[ \"$LOCKSTEP_STANDBY$LOCKSTEP_STANDBY_PID\" = torch$$ ] || exit 9\n"
         "head -c 200000 /dev/zero | tr '\\0' x; " +
         std::string{kWaits} + "echo \" $word\"; exit 7"});
    standbys->look();
    ASSERT_TRUE(waits(0)) << testing::PrintToString(warnings);
    auto warm = standbys->take(0, requests[0]);
    ASSERT_TRUE(warm);
    EXPECT_EQ(all_of(warm->output.get()), text + " g\n");
    // Its end is noticed by whoever has taken it, and by nobody else.
    io.restart();
    io.poll();
    int status = 0;
    ASSERT_EQ(::waitpid(warm->process.pid, &status, 0), warm->process.pid);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(StandbysTest, AnImportThatDoesNotEndKeepsNoOtherFromItsStart) {
    begin({"echo imports; : >imports; exec sleep 600", kWaits},
          {std::chrono::milliseconds{0}, std::chrono::milliseconds{0}});
    standbys->look();
    ASSERT_TRUE(until([&] { return is_there("imports"); }));
    EXPECT_FALSE(is_there("ready.1"));
    standbys->look();
    ASSERT_TRUE(waits(1));
    EXPECT_THAT(warnings,
                ElementsAre("a rank has no warm standby, so a restart starts it cold: its modules "
                            "were not imported within 0 s: imports"));
    standbys->look();
    EXPECT_THAT(warnings, SizeIs(1)) << "it is not tried again, and one that waits may";
    EXPECT_FALSE(standbys->take(0, requests[0]));
    EXPECT_TRUE(standbys->take(1, requests[1]));
}

TEST_F(StandbysTest, AnImportThatPrintsMoreThanIsKeptKeepsNoOtherFromItsStart) {
    // By pieces of which one has no room beside another in a page of the pipe.
    begin({"while :; do head -c 2500 /dev/zero; done", kWaits});
    standbys->look();
    ASSERT_TRUE(until([&] {
        standbys->look();
        return is_there("ready.1");
    }));
    ASSERT_THAT(warnings, SizeIs(1));
    EXPECT_THAT(warnings[0], HasSubstr("fills the pipe of its output"));
}

TEST_F(StandbysTest, ARankThatHasEndedHasNoneAndIsNoWarning) {
    begin({kWaits, kWaits, kWaits});
    standbys->stepped(0);
    for (std::size_t rank = 0; rank < 3; ++rank) {
        std::filesystem::remove(hooks_of(rank));
    }
    standbys->ended(1);
    standbys->look();
    EXPECT_TRUE(waits(0)) << "it was seen to have the hooks while it ran";
    EXPECT_THAT(warnings, IsEmpty());
    standbys->look();
    standbys->look();
    EXPECT_THAT(warnings, ElementsAre(EndsWith("its Python does not load Lockstep's hooks")));
    EXPECT_FALSE(is_there("ready.1"));
}

TEST_F(StandbysTest, WhatItSaysAtItsEndHasNoPartOfASecret) {
    mask = std::make_shared<SecretMask>(std::vector<std::string>{"swordfish-of-old"});
    begin({"echo first; printf '%495s' ' ' | tr ' ' x; echo swordfish-of-old; exit 3"});
    standbys->look();
    ASSERT_TRUE(until([&] { return !warnings.empty(); }));
    EXPECT_THAT(warnings[0], HasSubstr("it has ended with exit code 3 before it was ready: xxx"));
    EXPECT_THAT(warnings[0], Not(HasSubstr("sword")));
    EXPECT_EQ(killed, 0);
}

TEST_F(StandbysTest, OneThatIsKilledIsSaid) {
    begin({kWaits});
    standbys->look();
    ASSERT_TRUE(waits(0));
    ASSERT_TRUE(write_file_atomic(folder / "script.0", "kill -9 $$", 0644));
    standbys->begin({"torch"}, {{requests[0], pid_of(0)}}, nullptr);
    EXPECT_EQ(killed, 0) << "this was Lockstep";
    standbys->look();
    ASSERT_TRUE(until([&] { return !warnings.empty(); }));
    EXPECT_THAT(warnings, ElementsAre(EndsWith("it was ended by signal 9 before it was ready")));
    EXPECT_EQ(killed, 1);
}

TEST_F(StandbysTest, OneThatBecomesAnotherProgramIsEndedAtOnce) {
    // The descriptors that it had are closed by exec().
    begin({"echo before; exec 3>&- 4>&-; : >ready.0; exec sleep 600"});
    standbys->look();
    ASSERT_TRUE(waits(0));
    ASSERT_TRUE(until([&] {
        standbys->look();
        return !warnings.empty();
    }));
    EXPECT_THAT(warnings,
                ElementsAre(HasSubstr("it has become another program by exec(): before")));
    EXPECT_EQ(killed, 0);
}

TEST_F(StandbysTest, NoneIsStartedWhereTheHooksHaveBeenTakenAway) {
    begin({kWaits});
    std::filesystem::remove(folder / "hooks" / "sitecustomize.py");
    standbys->look();
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("hooks are not there any more")));
    EXPECT_FALSE(is_there("ready.0"));
}

}  // namespace
}  // namespace lockstep::test
