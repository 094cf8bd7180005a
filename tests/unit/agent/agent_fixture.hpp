// A real lockstep-agent against a daemon that plays by wire.hpp.
#pragma once

#include "tests/support/fake_daemon.hpp"
#include "tests/unit/agent/agent_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

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
    // An agent that finds the daemon's address in the attempt directory.
    std::unique_ptr<AgentProcess> start(const FakeDaemon& daemon, int node = 0,
                                        const std::vector<std::string>& more = {}) const {
        daemon.write_attempt_file(folder.path());
        return std::make_unique<AgentProcess>(folder.path(), node, more);
    }
    // The same, once `ready` holds. Throws, which fails and ends the test, if it never does.
    std::unique_ptr<AgentProcess> start_until(FakeDaemon& daemon,
                                              const std::function<bool()>& ready) const {
        auto agent = start(daemon);
        if (!daemon.run_until(ready)) {
            throw std::runtime_error("the agent did not get there:\n" + agent->log());
        }
        return agent;
    }
    // The exit code once the agent has ended; kNoEnd, and a failed test, if it does not.
    static int code_of(FakeDaemon& daemon, AgentProcess& agent) {
        EXPECT_TRUE(daemon.run_until([&] { return agent.ended(); })) << agent.log();
        return agent.ended() ? agent.code() : kNoEnd;
    }
    // Runs the job to its end and returns the agent's exit code.
    int run(FakeDaemon& daemon) const {
        const auto agent = start(daemon);
        return code_of(daemon, *agent);
    }
    static constexpr int kNoEnd = -1000;
    std::string rank_log(std::int32_t rank) const {
        return text_of(folder.path() / wire::rank_log_name(rank));
    }
    TemporaryFolder folder;
};

}  // namespace lockstep::test
