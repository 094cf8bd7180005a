// Ranks that have not made a step yet and wait for each other in vain: told, never ended.
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::string kMeets =
    "~ torch/distributed/distributed_c10d.py:895 init_process_group\ntrain.py:12 main";
const std::string kLoads = "train.py:8 load\ntrain.py:11 main";

class StartTest : public ControlTest {
  protected:
    void start() {
        id_ = start_job_with(
            agents_[0], agents_[1],
            R"(},"recovery":{"max_restarts":0,"on":["hang"]},"watch":{"hang_seconds":3)");
        pass(0);  // the watch begins
        pass(0);
    }
    std::size_t looks() const { return agents_[0].peer->count<wire::Examine>(); }
    // Both agents are heard of after the time has passed and before the job looks at it, which it
    // does at a tick.
    void pass(int seconds) {
        clock_.advance(std::chrono::seconds{seconds});
        agents_[0].say(wire::Beat{0, 1, 0});
        agents_[1].say(wire::Beat{0, 1, 0});
        const auto polls = scheduler_.polls;
        until([&] { return scheduler_.polls > polls; }, "it was looked at");
    }
    // After so many seconds the ranks are looked at once more; answers for both.
    void look(int after, const std::string& first, const std::string& second) {
        const std::size_t before = looks();
        pass(after);
        until([&] { return looks() > before; }, "EXAMINE");
        ASSERT_EQ(looks(), before + 1);
        ASSERT_TRUE(agents_[0].peer->last<wire::Examine>()->gentle) << "they may go on";
        tell(0, "S", first);
        tell(1, "S", second);
        pass(0);
    }
    void tell(std::int32_t rank, const std::string& state, const std::string& stack) {
        TestAgent& agent = agents_[static_cast<std::size_t>(rank)];
        agent.say(wire::Examined{1, {{rank, 100 + rank, state, "do_wait"}}});
        wire::RankEvidence evidence{rank, "", {}, {}};
        evidence.stack = stack;
        agent.say(wire::EvidenceSaved{1, {std::move(evidence)}});
    }
    void step(std::size_t node, std::uint64_t seq) {
        agents_[node].session->on_binary(batch(seq, static_cast<std::uint32_t>(node), 1));
        until(
            [&] {
                const auto* ack = agents_[node].peer->last<wire::Ack>();
                return ack != nullptr && ack->batch >= seq;
            },
            "ACK");
    }
    Json hang() { return show(id_)["hang"]; }
    bool stopped() const { return agents_[0].peer->last<wire::Stop>() != nullptr; }

    TestAgent agents_[2];
    std::string id_;
};

TEST_F(StartTest, TheRankThatNeverComesToTheMeetingIsNamedAndNothingIsEnded) {
    start();
    look(60, kMeets, kLoads);
    EXPECT_TRUE(hang().is_null()) << "one look may fall into the moment before it comes";
    look(5, kMeets, kLoads);
    until([&] { return hang().is_object(); }, "it is told");
    EXPECT_EQ(hang()["rank"], 1);
    EXPECT_EQ(hang()["node"], "n1");
    EXPECT_FALSE(hang().contains("step"));
    const auto message = hang()["message"].get<std::string>();
    EXPECT_THAT(message, HasSubstr("no rank has made its first step for 65 s"));
    EXPECT_THAT(message, HasSubstr("rank 1 alone is in train.py:8 load; rank 0 waits in "
                                   "init_process_group"));
    EXPECT_FALSE(stopped()) << "how long a start may take nobody knows";
    step(0, 1);
    step(1, 1);
    pass(0);
    until([&] { return hang().is_null(); }, "it is taken back: it was only late");
    EXPECT_EQ(state(id_), "running");
}

TEST_F(StartTest, RanksThatAllCameAndDoNotFindEachOtherAreTold) {
    start();
    look(60, kMeets, kMeets);
    look(5, kMeets, kMeets);
    until([&] { return hang().is_object(); }, "it is told");
    EXPECT_FALSE(hang().contains("rank"));
    EXPECT_THAT(
        hang()["message"].get<std::string>(),
        HasSubstr("all 2 wait in init_process_group (train.py:12 main): do all use the same "
                  "address, port and number of ranks?"));
}

TEST_F(StartTest, AStoppedRankAndOneThatIsNotInPythonAreNamed) {
    start();
    look(60, kMeets, "");
    look(5, kMeets, "");
    until([&] { return hang().is_object(); }, "it is told");
    EXPECT_EQ(hang()["rank"], 1);
    EXPECT_THAT(hang()["message"].get<std::string>(),
                HasSubstr("rank 1 on n1, its process sleeps"));
}

TEST_F(StartTest, ARankThatGetsOnIsNotCalledAHang) {
    start();
    look(60, kMeets, kLoads);
    look(5, kMeets, "train.py:9 load\ntrain.py:11 main");
    EXPECT_TRUE(hang().is_null());
}

TEST_F(StartTest, RanksThatDoNotWaitForEachOtherAreLetBe) {
    start();
    look(60, "serve.py:8 main", kLoads);
    const std::size_t before = looks();
    pass(10);
    pass(0);
    EXPECT_EQ(looks(), before) << "nothing to confirm";
    EXPECT_TRUE(hang().is_null());
    EXPECT_EQ(show(id_).value("warnings", Json::array()).size(), 0U);
}

TEST_F(StartTest, AStepThatComesWhileTheRanksAreLookedAtCounts) {
    start();
    look(60, kMeets, kLoads);
    const std::size_t before = looks();
    pass(5);
    until([&] { return looks() > before; }, "EXAMINE");
    step(0, 1);
    tell(0, "S", kMeets);
    tell(1, "S", kLoads);
    pass(0);
    EXPECT_TRUE(hang().is_null());
}

}  // namespace
}  // namespace lockstep
