// A checkpoint is asked for: first of the agents whether every rank catches the signal, then of the
// ranks. And the agents' clocks, which come with their beats.
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class CheckpointTest : public ControlTest {
  protected:
    void start(const std::string& extra = "") {
        id_ = start_job_with(agents_[0], agents_[1], extra);
    }
    void ask() {
        answer_.reset();
        net::co_spawn(*io_, asking(), net::detached);
    }
    Task<void> asking() {
        const auto shown = co_await control_->commands().checkpoint(ada_, id_, "");
        answer_ = shown ? Status{} : Status{fail(shown.error())};
    }
    std::int32_t asked_round() {
        for (const TestAgent& agent : agents_) {
            until([&] { return agent.peer->last<wire::AskSave>() != nullptr; }, "ASK_SAVE");
        }
        return agents_[0].peer->last<wire::AskSave>()->round;
    }
    void say(std::size_t node, std::int32_t round, std::int32_t rank = -1,
             const std::string& problem = "") {
        agents_[node].say(wire::CanSave{1, round, rank, problem});
    }
    Status answered() {
        until([&] { return answer_.has_value(); }, "the answer");
        return answer_ ? *answer_ : Status{};
    }
    std::size_t signals() const {
        return agents_[0].peer->count<wire::Save>() + agents_[1].peer->count<wire::Save>();
    }
    std::vector<Json> requests() { return events_of_kind("checkpoint_requested"); }
    std::vector<Json> events_of_kind(const std::string& kind) {
        std::vector<Json> out;
        auto run = [&]() -> Task<void> {
            const auto text = co_await control_->events(ada_, id_, first_events(1000));
            const Json page = text ? *parse_json(*text) : Json::object();
            for (const Json& event : page["items"]) {
                if (event["kind"] == kind) {
                    out.push_back(event);
                }
            }
        };
        wait(run());
        return out;
    }

    void saved(std::int64_t step) {
        wire::CheckpointSaved message;
        message.event = ++events_;
        message.generation = 1;
        message.step = step;
        message.path = "step-" + std::to_string(step);
        agents_[0].say(message);
    }
    // Until the daemon has heard what the first node has said so far.
    void heard() {
        until(
            [&] {
                return agents_[0].peer->last<wire::Ack>() != nullptr &&
                       agents_[0].peer->last<wire::Ack>()->event == events_;
            },
            "ACK");
    }

    std::array<TestAgent, 2> agents_;
    std::string id_;
    std::uint64_t events_ = 0;
    std::optional<Status> answer_;
};

TEST_F(CheckpointTest, OfACheckpointAtEachStepTheNewestIsKnownAndTheEventsAreFew) {
    start();
    constexpr std::int64_t kMany = limits::kCheckpointEvents;
    for (std::int64_t step = 1; step <= kMany + 100; ++step) {
        saved(step);
    }
    heard();
    EXPECT_EQ(events_of_kind("checkpoint_saved").size(), static_cast<std::size_t>(kMany));
    EXPECT_EQ(show(id_)["checkpoint_step"], kMany);
    // One more in a while, and it is the newest.
    clock_.advance(limits::kCheckpointPause);
    agents_[1].say(wire::Beat{});
    saved(kMany + 101);
    heard();
    ASSERT_EQ(events_of_kind("checkpoint_saved").size(), static_cast<std::size_t>(kMany + 1));
    EXPECT_EQ(show(id_)["checkpoint_step"], kMany + 101);
    saved(kMany + 102);
    saved(kMany + 103);
    heard();
    EXPECT_EQ(show(id_)["checkpoint_step"], kMany + 101);
    // And with the end of the generation, whatever the time.
    agents_[0].say(exit(++events_, 0, 0));
    agents_[1].say(exit(1, 1, 0));
    until([&] { return state(id_) == "succeeded"; }, "succeeded");
    EXPECT_EQ(show(id_)["checkpoint_step"], kMany + 103);
    EXPECT_EQ(show(id_)["checkpoint_path"], "step-" + std::to_string(kMany + 103));
    EXPECT_EQ(events_of_kind("checkpoint_saved").size(), static_cast<std::size_t>(kMany + 2));
}

TEST_F(CheckpointTest, FaultsThatANodeRepeatsAreWrittenDownSoOften) {
    start();
    for (int i = 0; i < 3 * limits::kFaultEvents; ++i) {
        wire::Fault fault;
        fault.event = ++events_;
        fault.generation = i < 2 * limits::kFaultEvents ? 1 : 7;
        fault.rank = 0;
        fault.cause_class = "user_error";
        fault.message = "fault " + std::to_string(i);
        agents_[0].say(fault);
    }
    heard();
    EXPECT_EQ(events_of_kind("fault").size(), static_cast<std::size_t>(2 * limits::kFaultEvents))
        << "of the generation, and of none that there is";
    until([&] { return agents_[0].peer->last<wire::Stop>() != nullptr; }, "STOP");
    agents_[0].say(exit(++events_, 0, 1));
    agents_[1].say(exit(1, 1, 1));
    until([&] { return state(id_) == "failed"; }, "failed");
    EXPECT_EQ(show(id_)["cause"]["message"], "fault 0");
}

TEST_F(CheckpointTest, TheSignalIsOrderedOnceEveryNodeHasSaidThatItsRanksCatchIt) {
    start();
    ask();
    const std::int32_t round = asked_round();
    say(0, round);
    say(0, round);      // said again it does not count twice
    say(1, round + 1);  // of another round
    EXPECT_EQ(signals(), 0U);
    EXPECT_FALSE(answer_);
    say(1, round);
    EXPECT_TRUE(answered().has_value());
    EXPECT_EQ(signals(), 2U);
    const auto told = requests();
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0]["data"]["by"], "ada");
    EXPECT_EQ(told[0]["data"]["signal"], "USR2");
    EXPECT_FALSE(told[0].contains("rank"));
}

TEST_F(CheckpointTest, ARankThatWouldDieOfItIsNamedAndNobodyGetsIt) {
    start();
    ask();
    say(1, asked_round(), 1, "does not catch SIGUSR2");
    const Status refused = answered();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::conflict);
    EXPECT_THAT(refused.error().message, HasSubstr("rank 1 on n1: does not catch SIGUSR2"));
    EXPECT_EQ(signals(), 0U);
    EXPECT_TRUE(requests().empty());
    ask();  // later it may
    const std::int32_t round = agents_[0].peer->last<wire::AskSave>()->round;
    until([&] { return agents_[1].peer->last<wire::AskSave>()->round > round; }, "asked again");
    say(0, round + 1);
    say(1, round + 1);
    EXPECT_TRUE(answered().has_value());
    EXPECT_EQ(signals(), 2U);
}

TEST_F(CheckpointTest, AnAgentThatDoesNotAnswerIsNamed) {
    start();
    ask();
    say(0, asked_round());
    clock_.advance(std::chrono::seconds{3});
    agents_[0].say(wire::Beat{});
    const Status refused = answered();
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("the agent of node n1 does not answer"));
    EXPECT_EQ(signals(), 0U);
}

TEST_F(CheckpointTest, AJobThatNamesTheSignalIsNotAsked) {
    start(R"(},"checkpoint":{"signal":"USR2")");
    ask();
    EXPECT_TRUE(answered().has_value());
    EXPECT_EQ(agents_[0].peer->last<wire::AskSave>(), nullptr);
    EXPECT_EQ(signals(), 2U);
    EXPECT_EQ(requests().size(), 1U);
}

TEST_F(CheckpointTest, NobodyWaitsForAJobThatEndsMeanwhile) {
    start();
    ask();
    asked_round();
    for (const std::size_t node : {0U, 1U}) {
        agents_[node].say(exit(1, static_cast<std::int32_t>(node), 0));
        agents_[node].say(wire::Done{2, 1});
    }
    const Status refused = answered();
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::conflict);
}

TEST_F(CheckpointTest, TheTimeLimitIsToldOnceAndEveryRankThatWasLeftOut) {
    start();
    agents_[0].say(wire::SaveAsked{1, 1, -1, "", 1000});
    agents_[1].say(wire::SaveAsked{1, 1, 1, "does not catch SIGUSR2", 1000});
    agents_[0].say(wire::SaveAsked{2, 1, -1, "", 2000});  // nothing new
    until(
        [&] {
            return agents_[0].peer->last<wire::Ack>() != nullptr &&
                   agents_[0].peer->last<wire::Ack>()->event == 2;
        },
        "it was heard");
    const auto told = requests();
    ASSERT_EQ(told.size(), 2U);
    EXPECT_EQ(told[0]["data"]["by"], "time limit");
    EXPECT_EQ(told[1]["rank"], 1);
    EXPECT_EQ(told[1]["node"], "n1");
    EXPECT_EQ(told[1]["data"]["message"], "rank 1 did not get it: does not catch SIGUSR2");
}

TEST_F(CheckpointTest, TheLargestOffsetOfAnAgentsClockIsKnownOnceItWasMeasured) {
    start();
    const std::string name = "\nlockstep_agent_clock_offset_max_seconds ";
    const auto value = [&] {
        const std::string text = metrics_text();
        const auto at = text.find(name);
        return at == std::string::npos ? "" : text.substr(at + name.size(), 6);
    };
    EXPECT_THAT(value(), ::testing::MatchesRegex("[Nn][aA][Nn].*")) << "not measured is not 0";
    wire::Beat beat;
    beat.asks_us = 1'234'567;
    agents_[0].say(beat);
    const auto* clock = agents_[0].peer->last<wire::Clock>();
    ASSERT_NE(clock, nullptr);
    EXPECT_EQ(clock->asked_us, 1'234'567);
    EXPECT_EQ(clock->daemon_us, clock_.wall_us());
    beat.asks_us = 0;
    beat.offset_us = -250'000;
    beat.offset_error_us = 90;
    agents_[0].say(beat);
    beat.offset_us = 10;
    agents_[1].say(beat);
    EXPECT_EQ(value().substr(0, 4), "0.25");
    EXPECT_EQ(agents_[0].peer->count<wire::Clock>(), 1U) << "who does not ask is not answered";
}

}  // namespace
}  // namespace lockstep
