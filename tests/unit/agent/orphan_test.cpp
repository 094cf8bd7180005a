// An agent that no daemon answers any more.
#include "tests/unit/agent/agent_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::test {
namespace {

using testing::ElementsAre;

using OrphanTest = AgentTest;

// Its half hour had passed while they ran: it left the moment they ended, and what they had
// reported since the daemon was gone was lost.
TEST_F(OrphanTest, WithoutADaemonAnAgentWaitsFromTheEndOfItsRanksOnAndNotFromTheLossOfIt) {
    constexpr std::chrono::seconds kOrphan{8};
    FakeDaemon::Options options;
    options.acknowledge = false;
    FakeDaemon daemon{shell("echo step=1 loss=1; until [ -e go ]; do sleep 0.02; done;"
                            "echo step=2 loss=2; exit 3"),
                      options};
    const auto agent = start(daemon, 0, {"--orphan-seconds", std::to_string(kOrphan.count())});
    ASSERT_TRUE(daemon.run_until([&] { return daemon.values("loss").size() == 1; }))
        << agent->log();
    daemon.kill();
    const auto gone = std::chrono::steady_clock::now();
    ASSERT_TRUE(daemon.run_until(
        [&] { return std::chrono::steady_clock::now() - gone > kOrphan + kOrphan / 8; }));
    ASSERT_FALSE(agent->ended()) << "its ranks run";
    ASSERT_TRUE(write_file_atomic(folder / "go", ""));
    ASSERT_TRUE(daemon.run_until(
        [&] { return std::filesystem::exists(folder / wire::result_file_name(0)); }));
    // Until it has found no daemon once more: it looks at its patience after that.
    const auto in_vain = [&] {
        const std::string log = agent->log();
        std::size_t count = 0;
        constexpr std::string_view kWords = "no connection to the daemon";
        for (auto at = log.find(kWords); at != std::string::npos; at = log.find(kWords, at + 1)) {
            ++count;
        }
        return count;
    };
    const std::size_t before = in_vain();
    ASSERT_TRUE(daemon.run_until([&] { return in_vain() > before || agent->ended(); }));

    daemon.batches.clear();
    daemon.options.acknowledge = true;
    daemon.restart();
    daemon.write_attempt_file(folder.path());
    ASSERT_EQ(code_of(daemon, *agent), 0) << agent->log();
    EXPECT_THAT(daemon.values("loss"), ElementsAre(1, 2));
}

}  // namespace
}  // namespace lockstep::test
