// Agents that are turned away or turn away: their job's events say who and why.
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ControlRefusalTest : public ControlTest {
  protected:
    std::string waiting_job() {
        const std::string id = submit()->id;
        until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
        return id;
    }
    // Node and reason of every refusal.
    std::vector<std::string> refusals(const std::string& id) {
        std::vector<std::string> out;
        auto read = [&]() -> Task<void> {
            const auto page = co_await control_->events(ada_, id, first_events(1000));
            EXPECT_TRUE(page.has_value());
            const Json json = *parse_json(*page);
            for (const Json& event : json["items"]) {
                if (event["kind"] == "agent_refused") {
                    out.push_back(event["node"].get<std::string>() + ": " +
                                  event["data"]["reason"].get<std::string>());
                }
            }
        };
        wait(read());
        return out;
    }
    void gave_up(std::int32_t node, const wire::GaveUpFile& words) {
        ASSERT_TRUE(write_file_atomic(
            std::filesystem::path{scheduler_.last.directory} / wire::gave_up_file_name(node),
            wire::encode_gave_up_file(words)));
    }
};

TEST_F(ControlRefusalTest, AClockThatIsOffIsAnEvent) {
    const std::string id = waiting_job();
    TestAgent agent = connect();
    wire::Hello hello;
    hello.node = "n1\x1b[2J";
    hello.incarnation = "i0";
    hello.time = clock_.wall() - 3'600'000;
    agent.say(hello);
    until([&] { return agent.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    until([&] { return !refusals(id).empty(); }, "an event");
    EXPECT_THAT(refusals(id), ElementsAre("n1[2J: the clock of n1[2J is 3600 s behind"));
}

// It says which node it is once, and first: what it says later is of that node.
TEST_F(ControlRefusalTest, NothingIsHeardBeforeHelloNorASecondHello) {
    waiting_job();
    const TestAgent early = connect();
    early.session->on_text(wire::encode(wire::AgentMessage{wire::Beat{0, 0, 0}}));
    EXPECT_EQ(early.peer->closed, "a message before HELLO");
    TestAgent other = hello(0);
    wire::Hello second;
    second.node_rank = 1;
    second.node = "n1";
    second.incarnation = "i0";
    other.say(second);
    EXPECT_EQ(other.peer->closed, "a second HELLO");
}

TEST_F(ControlRefusalTest, WhoReplaysATicketDisturbsNobodyAndIsWrittenDownSixteenTimes) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    for (int i = 0; i < limits::kRefusalEvents + 4; ++i) {
        const TestAgent thief = hello(1, "thief");
        until([&] { return thief.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
        EXPECT_EQ(thief.peer->last<wire::Fenced>()->message, "node 1 was claimed by another agent");
        thief.session->on_closed();
    }
    EXPECT_EQ(state(id), "running");
    EXPECT_EQ(first.peer->closed, "");
    EXPECT_EQ(second.peer->closed, "");
    const auto limit = static_cast<std::size_t>(limits::kRefusalEvents);
    until([&] { return refusals(id).size() >= limit; }, "events");
    EXPECT_EQ(refusals(id), std::vector<std::string>(limit,
                                                     "n1: node 1 was claimed by another "
                                                     "agent"));
}

TEST_F(ControlRefusalTest, OfOneTicketNoMoreCallInThanItHasNodesAndAFew) {
    waiting_job();
    std::vector<TestAgent> callers;
    for (std::size_t i = 0; i < 2 + limits::kCallersBeyondNodes; ++i) {
        callers.push_back(connect());
        EXPECT_FALSE(callers.back().session->introduced());
    }
    const auto ticket = [this] {
        return sha256_hex(
            wire::decode_attempt_file(
                read_file(std::filesystem::path{scheduler_.last.directory} / wire::kAttemptFileName,
                          10'000)
                    .value())
                ->ticket);
    }();
    const auto one_more = [&] {
        auto opened = control_->agents().open(ticket, std::make_shared<TestPeer>(), "127.0.0.1");
        const bool in = opened.has_value();
        EXPECT_TRUE(in || opened.error().code == Errc::exhausted);
        if (in) {
            (*opened)->on_closed();
        }
        return in;
    };
    EXPECT_FALSE(one_more());
    callers.front().session->on_closed();
    EXPECT_TRUE(one_more());
    callers.front() = connect();
    EXPECT_FALSE(one_more());
    // One that is accepted makes room.
    wire::Hello hello;
    hello.node = "n0";
    hello.incarnation = "i0";
    callers.back().say(hello);
    EXPECT_TRUE(callers.back().session->introduced());
    until([&] { return callers.back().peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    EXPECT_TRUE(one_more());
}

TEST_F(ControlRefusalTest, TheLastWordsOfAnAgentThatNeverCameInAreTheCause) {
    const std::string id = waiting_job();
    gave_up(0,
            {"i0", "n7", "the daemon at h:1 shows certificate sha256:a but sha256:b is expected"});
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.message = "exit code 4";
    until([&] { return state(id) == "failed"; }, "failed");
    const Json cause = show(id)["cause"];
    EXPECT_EQ(cause["node"], "n7");
    EXPECT_EQ(cause["message"],
              "the agent of n7 ended without a result: the daemon at h:1 shows certificate "
              "sha256:a but sha256:b is expected: exit code 4");
}

TEST_F(ControlRefusalTest, TheLastWordsOfASecondCopyAreNotTheFirstOnes) {
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    gave_up(0, {"another", "n9", "node 0 was claimed by another agent"});
    first.session->on_closed();
    second.session->on_closed();
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(show(id)["cause"]["message"], "the agent of n0 ended without a result");
}

TEST_F(ControlRefusalTest, SlurmsWordOnAnEndIsJoinedByTheAgents) {
    scheduler_.seen.state = AllocationState::pending;
    const std::string id = waiting_job();
    gave_up(1, {"i1", "n1", "no daemon for too long: cannot connect to 10.0.0.1:8471"});
    scheduler_.seen.cause.kind = CauseClass::scheduler;
    scheduler_.seen.cause.message = "Slurm ended it with exit code 5";
    scheduler_.seen.state = AllocationState::ended;
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_THAT(show(id)["cause"]["message"].get<std::string>(),
                HasSubstr("exit code 5; the agent of n1: no daemon for too long: cannot connect"));
}

}  // namespace
}  // namespace lockstep
