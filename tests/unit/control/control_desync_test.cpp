// A rank that others wait for in NCCL, as lockstepd takes and tells it.
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class DesyncTest : public ControlTest {
  protected:
    // Its steps come one after the other only if no look falls between them.
    DesyncTest() { tick_ = std::chrono::seconds{1}; }
    void start(const std::string& extra = "") {
        id_ = start_job_with(agents_[0], agents_[1], extra);
    }
    // What the agent of rank 0 says after a look.
    void say(std::int32_t rank, std::int64_t waited_ms, std::int32_t generation = 1) {
        agents_[0].say(wire::Desync{generation, rank,
                                    rank < 0 ? "" : "rank 1 has not launched AllReduce 9\x1b[2J",
                                    waited_ms});
    }
    Json desync() { return show(id_)["desync"]; }
    // What was said before this is taken.
    void taken() {
        const auto polls = scheduler_.polls;
        until([&] { return scheduler_.polls > polls + 2; }, "it was taken");
    }
    // Of both ranks; step 5 took a tenth of a second or ten.
    void step(std::uint64_t seq, std::int64_t at, double seconds) {
        for (const std::uint32_t node : {0U, 1U}) {
            Batch rows;
            rows.seq = seq;
            rows.generation = 1;
            rows.node_rank = node;
            rows.add_row(node, at, 1'700'000'000.0);
            rows.set("loss", 1.0);
            rows.set("step_seconds", seconds);
            agents_[node].session->on_binary(encode_batch(rows));
        }
        taken();
    }

    TestAgent agents_[2];
    std::string id_;
};

TEST_F(DesyncTest, AnotherNodesAgentCannotSayIt) {
    start();
    agents_[1].say(wire::Desync{1, 0, "rank 0 has not launched AllReduce 9", 4000});
    taken();
    EXPECT_TRUE(desync().is_null()) << "only the agent of rank 0 asks NCCL";
    say(1, 4000);
    until([&] { return desync().is_object(); }, "it is told");
    agents_[1].say(wire::Desync{1, -1, "", 0});
    taken();
    EXPECT_TRUE(desync().is_object()) << "nor that it is over";
}

TEST_F(DesyncTest, IsToldOnceForAsLongAsItLastsAndEndsNothing) {
    start();
    say(1, 4000);
    until([&] { return desync().is_object(); }, "it is told");
    EXPECT_EQ(desync()["rank"], 1);
    EXPECT_EQ(desync()["node"], "n1");
    EXPECT_EQ(desync()["message"], "rank 1 has not launched AllReduce 9[2J");
    say(1, 6000);
    say(1, 8000);
    taken();
    EXPECT_EQ(show(id_)["anomalies"]["desync"], 1);
    EXPECT_EQ(state(id_), "running");
    say(-1, 0);
    until([&] { return desync().is_null(); }, "it is over");
    say(-1, 0);
    say(0, 4000);
    until([&] { return desync().is_object(); }, "another one");
    EXPECT_EQ(desync()["rank"], 0);
    EXPECT_EQ(show(id_)["anomalies"]["desync"], 2);
}

TEST_F(DesyncTest, StepsOfTheOthersSayThatItIsOverWhateverTheAgentSees) {
    start();
    step(1, 5, 0.1);
    say(1, 4000);
    until([&] { return desync().is_object(); }, "it is told");
    step(2, 7, 0.1);
    EXPECT_TRUE(desync().is_object()) << "two steps may be reported ahead of the GPU";
    step(3, 8, 0.1);
    until([&] { return desync().is_null(); }, "they go on, and NCCL's RAS says nothing any more");
    EXPECT_EQ(state(id_), "running");
}

TEST_F(DesyncTest, WhoIsWaitedForInEveryStepIsNot) {
    start();
    step(1, 5, 10.0);
    say(1, 15'000);
    taken();
    EXPECT_TRUE(desync().is_null()) << "a step and a half";
    say(1, 20'000);
    until([&] { return desync().is_object(); }, "two steps");
}

TEST_F(DesyncTest, WhoSaysThatItSavesIsNotEither) {
    start();
    const auto phase = [this](std::uint64_t seq, double code) {
        Batch rows;
        rows.seq = seq;
        rows.generation = 1;
        rows.node_rank = 1;
        rows.add_row(1, -1, 1'700'000'000.0);
        rows.set("phase_code", code);
        agents_[1].session->on_binary(encode_batch(rows));
        taken();
    };
    phase(1, 3);
    say(1, 60'000);
    taken();
    EXPECT_TRUE(desync().is_null());
    phase(2, 1);
    say(1, 62'000);
    until([&] { return desync().is_object(); }, "it trains again, as it says");
}

TEST_F(DesyncTest, WhatCannotBeIsNotTaken) {
    start();
    say(2, 4000);
    say(-2, 4000);
    say(1, 4000, 2);
    say(1, 4000, 0);
    taken();
    EXPECT_TRUE(desync().is_null());
    say(1, -4000);
    until([&] { return desync().is_object(); }, "it is one, just now");
}

TEST_F(DesyncTest, ARankThatHasEndedIsKnownByItsEnd) {
    start();
    agents_[1].say(exit(1, 1, 0));
    taken();
    say(1, 4000);
    taken();
    EXPECT_TRUE(desync().is_null());
}

TEST_F(DesyncTest, TheHangThatFollowsIsLaidToItsCharge) {
    start(R"(},"watch":{"hang_seconds":3)");
    step(1, 5, 0.1);
    say(1, 4000);
    until([&] { return desync().is_object(); }, "it is told");
    clock_.advance(std::chrono::milliseconds{300});
    agents_[0].say(wire::Beat{0, 1, 0});
    taken();
    clock_.advance(std::chrono::seconds{4});
    agents_[0].say(wire::Beat{0, 1, 0});
    agents_[1].say(wire::Beat{0, 1, 0});
    until([&] { return agents_[1].peer->last<wire::Examine>() != nullptr; }, "EXAMINE");
    for (const std::size_t node : {0U, 1U}) {
        const auto rank = static_cast<std::int32_t>(node);
        wire::RankEvidence evidence{rank, "all_reduce (ddp.py:7)", {}, {}};
        evidence.stack = "~ torch/_tensor.py:488 backward\ntrain.py:39 main";
        agents_[node].say(wire::Examined{1, {{rank, 100 + rank, "S", "do_wait"}}});
        agents_[node].say(wire::EvidenceSaved{1, {evidence}});
    }
    until([&] { return show(id_)["hang"].is_object(); }, "it hangs");
    const Json hang = show(id_)["hang"];
    EXPECT_EQ(hang["rank"], 1);
    EXPECT_EQ(hang["node"], "n1");
    EXPECT_THAT(hang["message"].get<std::string>(),
                HasSubstr("; rank 1 has not launched AllReduce 9"));
}

}  // namespace
}  // namespace lockstep
