// A real lockstep-agent against a daemon that plays by wire.hpp.
#pragma once

#include "tests/support/fake_daemon.hpp"
#include "tests/unit/agent/agent_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::test {

inline JobSpec shell(const std::string& script, std::int32_t ranks = 1) {
    JobSpec spec;
    spec.name = "agent-test";
    spec.framework = Framework::command;
    spec.command = {"sh", "-c", script};
    spec.resources.ranks_per_node = ranks;
    return spec;
}

inline FakeDaemon::Options ranks(std::int32_t count) {
    FakeDaemon::Options options;
    options.ranks_per_node = count;
    return options;
}

class AgentTest : public testing::Test {
  protected:
    // Runs the job to its end and returns the agent's exit code.
    int run(FakeDaemon& daemon) {
        daemon.write_attempt_file(folder.path());
        AgentProcess agent{folder.path()};
        EXPECT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
        return agent.ended() ? agent.code() : -1000;
    }
    std::string rank_log(std::int32_t rank) const {
        return text_of(folder.path() / wire::rank_log_name(rank));
    }
    TemporaryFolder folder;
};

}  // namespace lockstep::test
