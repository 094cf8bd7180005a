// size: one fixture of three agents and each way in which a node leaves or returns
// Jobs that go on with fewer nodes and take lost ones back, as their agents see it.
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

#include <string>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class ElasticTest : public ControlTest {
  protected:
    // Three nodes with one rank each, two of which are enough.
    std::string submit_elastic(const std::string& recovery = "{}", const std::string& more = "") {
        SubmitRequest request;
        request.spec =
            parse_spec(*parse_json(R"({"name":"t","framework":"command","command":["x"],)"
                                   R"("resources":{"nodes":3,"min_nodes":2},"recovery":)" +
                                   recovery + more + "}"))
                .value();
        request.body_sha256 = "body";
        SubmitResult<Submitted> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            SubmitRequest copy = request;
            Caller caller = ada_;
            out = co_await control_->submit(std::move(caller), std::move(copy));
        };
        wait(run());
        until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
        agents_.resize(3);
        return out->id;
    }
    std::string start(const std::string& recovery = "{}") {
        const std::string id = submit_elastic(recovery);
        for (int slot = 0; slot < 3; ++slot) {
            call_in(slot);
            join(slot, 0);
        }
        begin(1, {0, 1, 2});
        until([&] { return state(id) == "running"; }, "running");
        return id;
    }
    // `generation`: that it has (had) ranks of.
    void call_in(int slot, std::int32_t generation = 0, bool running = false,
                 const std::string& incarnation = "") {
        agents_[at(slot)] = connect();
        wire::Hello hello;
        hello.node_rank = slot;
        hello.node = "n" + std::to_string(slot);
        hello.incarnation = incarnation.empty() ? "i" + std::to_string(slot) : incarnation;
        hello.ranks_running = running;
        hello.generation = generation;
        agents_[at(slot)].say(hello);
        until(
            [&] {
                return last<wire::Welcome>(slot) != nullptr || last<wire::Fenced>(slot) != nullptr;
            },
            "an answer to HELLO");
    }
    void join(int slot, std::int32_t left) {
        wire::Join join;
        join.address = "127.0.0." + std::to_string(slot + 1);
        join.port = 5000 + slot;
        join.generation = left;
        agents_[at(slot)].say(join);
    }
    void begin(std::int32_t generation, const std::vector<int>& members) {
        for (const int slot : members) {
            until(
                [&] {
                    const auto* world = last<wire::World>(slot);
                    return world != nullptr && world->generation == generation;
                },
                "WORLD");
            agents_[at(slot)].say(wire::Ready{generation});
        }
        for (const int slot : members) {
            until(
                [&] {
                    const auto* start = last<wire::Start>(slot);
                    return start != nullptr && start->generation == generation;
                },
                "START");
            wire::Started started;
            started.generation = generation;
            started.ranks.push_back({last<wire::World>(slot)->first_rank, 100 + slot});
            agents_[at(slot)].say(started);
        }
    }
    // Heard of all but those that are silent, for so long.
    void pass(std::chrono::milliseconds time, const std::vector<int>& heard) {
        clock_.advance(time);
        for (const int slot : heard) {
            agents_[at(slot)].say(wire::Beat{});
        }
    }
    bool aborted(int slot, std::int32_t generation) {
        const auto* abort = last<wire::Abort>(slot);
        return abort != nullptr && abort->generation == generation;
    }
    // Node 2 falls silent, the others go on as generation 2.
    void shrink(const std::string& id) {
        pass(4100ms, {0, 1});
        until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT");
        join(0, 1);
        join(1, 1);
        begin(2, {0, 1});
        until([&] { return state(id) == "running"; }, "running again");
    }
    template <class M>
    const M* last(int slot) const {
        return agents_[at(slot)].peer->template last<M>();
    }
    static std::size_t at(int slot) { return static_cast<std::size_t>(slot); }
    Json generations(const std::string& id) { return show(id)["attempts"].back()["generations"]; }

    std::vector<TestAgent> agents_;
    std::uint64_t events_ = 0;
};

TEST_F(ElasticTest, ASilentNodeIsLostAfterFourSecondsAndTheOthersGoOn) {
    const std::string id = start();
    pass(3900ms, {0, 1});
    io_->run_for(50ms);
    EXPECT_EQ(last<wire::Abort>(0), nullptr);
    shrink(id);
    const wire::World& world = *last<wire::World>(1);
    EXPECT_EQ(world.world_size, 2);
    EXPECT_EQ(world.nodes, 2);
    EXPECT_EQ(world.node_rank, 1);
    EXPECT_EQ(world.hosts, (std::vector<std::string>{"n0", "n1"}));
    EXPECT_EQ(last<wire::Fenced>(2), nullptr) << "it may come back";
    EXPECT_NE(agents_[2].peer->closed, "");
    const Json all = generations(id);
    EXPECT_EQ(all[0]["cause"]["class"], "node_lost");
    EXPECT_EQ(all[1]["nodes"], 2);
    EXPECT_EQ(all[1]["message"], "goes on with 2 of 3 nodes: n2 is lost");
    EXPECT_EQ(show(id)["attempts"].size(), 1U) << "no other allocation";
    const std::string text = metrics_text(ada_);
    EXPECT_THAT(text, ::testing::ContainsRegex("lockstep_job_nodes\\{[^}]*\\} 2\n"));
    EXPECT_THAT(text, ::testing::ContainsRegex("lockstep_job_nodes_requested\\{[^}]*\\} 3\n"));
    EXPECT_THAT(text, ::testing::ContainsRegex("lockstep_job_ranks_expected\\{[^}]*\\} 2\n"));
    EXPECT_THAT(text, ::testing::ContainsRegex("lockstep_rendezvous_ranks_missing\\{[^}]*\\} 0\n"));
    for (const int slot : {0, 1}) {
        wire::Exited end = exit(++events_, slot, 0);
        end.generation = 2;
        agents_[at(slot)].say(end);
    }
    until([&] { return state(id) == "succeeded"; }, "two ranks are all there are");
}

TEST_F(ElasticTest, TheSecondSilentNodeIsOneTooMany) {
    const std::string id = start();
    shrink(id);
    pass(10s, {0});
    io_->run_for(50ms);
    EXPECT_FALSE(aborted(0, 2)) << "its connection may well come back";
    pass(51s, {0});
    until([&] { return last<wire::Stop>(0) != nullptr; }, "STOP: another attempt is needed");
}

// Its return made a restart in place of what was being ended: nobody was left to start ranks, and a
// minute later every node was lost, and kept from the next attempt.
TEST_F(ElasticTest, ANodeThatComesBackAfterStopDoesNotHoldUpTheNextAttempt) {
    const std::string id = start();
    shrink(id);
    pass(61s, {0});
    until([&] { return last<wire::Stop>(0) != nullptr; }, "STOP: another attempt is needed");
    call_in(1, 2, true);
    until([&] { return last<wire::Stop>(1) != nullptr; }, "STOP to the one that is back");
    join(1, 2);
    wire::Exited end = exit(++events_, 0, 143);
    end.generation = 2;
    end.stopped = true;
    agents_[0].say(end);
    scheduler_.submissions = 0;
    scheduler_.seen_until = 1;
    scheduler_.seen.state = AllocationState::ended;
    agents_[0].session->on_closed();
    agents_[1].session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    EXPECT_THAT(scheduler_.last.exclude, testing::UnorderedElementsAre("n1", "n2"));
}

TEST_F(ElasticTest, ANodeThatComesBackEndsItsRanksFirstAndIsTakenAtTheDeadline) {
    const std::string id = start(R"({"grow_after_seconds":60})");
    shrink(id);
    call_in(2, 1, true);
    until([&] { return aborted(2, 1); }, "it is told to end its ranks");
    join(2, 0);  // they live
    io_->run_for(50ms);
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], (Json::array({"n2"})));
    join(2, 1);
    until([&] { return !show(id)["attempts"][0].contains("lost_nodes"); }, "it is back");
    // Without a checkpoint nobody is in a hurry.
    for (int second = 0; second < 58; ++second) {
        pass(1s, {0, 1, 2});
        io_->run_for(1ms);
    }
    EXPECT_FALSE(aborted(0, 2));
    until(
        [&] {
            pass(1s, {0, 1, 2});
            return aborted(0, 2) && aborted(1, 2);
        },
        "ABORT of the smaller one");
    EXPECT_EQ(last<wire::World>(2), nullptr) << "it has no part in what is aborted";
    join(0, 2);
    join(1, 2);
    begin(3, {0, 1, 2});
    until([&] { return state(id) == "running"; }, "all of them again");
    const Json all = generations(id);
    EXPECT_EQ(all[1]["cause"]["class"], "node_returned");
    EXPECT_EQ(all[1]["cause"]["message"],
              "n2 is there: the ranks are started again on 3 of 3 nodes");
    EXPECT_EQ(all[2]["message"], "3 of 3 nodes again");
    EXPECT_EQ(all[2]["world_size"], 3);
}

TEST_F(ElasticTest, ACheckpointIsAskedForAndItsComingIsTheMoment) {
    const std::string id = start(R"({"grow_after_seconds":86400})");
    shrink(id);
    call_in(2, 1);
    join(2, 1);
    until(
        [&] {
            pass(1s, {0, 1, 2});
            return last<wire::AskSave>(0) != nullptr && last<wire::AskSave>(1) != nullptr;
        },
        "the ranks are asked whether they catch the signal");
    EXPECT_EQ(last<wire::AskSave>(2), nullptr) << "it has no ranks";
    for (const int slot : {0, 1}) {
        const wire::AskSave& ask = *last<wire::AskSave>(slot);
        wire::CanSave can;
        can.generation = ask.generation;
        can.round = ask.round;
        agents_[at(slot)].say(can);
    }
    until([&] { return last<wire::Save>(0) != nullptr; }, "SAVE");
    EXPECT_FALSE(aborted(0, 2));
    wire::CheckpointSaved saved;
    saved.event = ++events_;
    saved.generation = 2;
    saved.rank = 0;
    saved.step = 40;
    saved.path = "/c/40";
    agents_[0].say(saved);
    until(
        [&] {
            pass(1s, {0, 1, 2});
            return aborted(0, 2);
        },
        "the checkpoint is there");
    join(0, 2);
    join(1, 2);
    begin(3, {0, 1, 2});
    EXPECT_EQ(last<wire::World>(2)->resume_step, 40);
}

TEST_F(ElasticTest, ANodeThatIsLostTwiceStaysOut) {
    const std::string id = start(R"({"grow_after_seconds":0,"max_restarts":9})");
    shrink(id);
    call_in(2, 1);
    join(2, 1);
    until(
        [&] {
            pass(1s, {0, 1, 2});
            return aborted(0, 2) && aborted(1, 2);
        },
        "it grows at once");
    join(0, 2);
    join(1, 2);
    begin(3, {0, 1, 2});
    pass(4100ms, {0, 1});
    until([&] { return aborted(0, 3) && aborted(1, 3); }, "it is silent again");
    join(0, 3);
    join(1, 3);
    begin(4, {0, 1});
    call_in(2, 3, true);
    ASSERT_NE(last<wire::Fenced>(2), nullptr);
    EXPECT_THAT(last<wire::Fenced>(2)->message, ::testing::HasSubstr("given up"));
}

TEST_F(ElasticTest, AnAgentThatWasStartedAgainCostsNoNode) {
    const std::string id = start();
    call_in(2, 0, false, "another");
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT");
    join(2, 0);
    join(0, 1);
    join(1, 1);
    begin(2, {0, 1, 2});
    until([&] { return state(id) == "running"; }, "running again");
    const Json all = generations(id);
    EXPECT_EQ(all[0]["cause"]["message"], "the agent of n2 ended and was started again");
    EXPECT_EQ(all[1]["nodes"], 3);
    EXPECT_FALSE(all[1].contains("message"));
    call_in(2, 2, false, "a third");
    ASSERT_NE(last<wire::Fenced>(2), nullptr) << "a second time is too often";
    until([&] { return aborted(0, 2); }, "and its node is lost");
}

TEST_F(ElasticTest, OneThatHasCalledInAgainIsWaitedForAMoment) {
    const std::string id = start();
    call_in(2, 0, false, "another");
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT");
    join(0, 1);
    join(1, 1);
    io_->run_for(50ms);
    EXPECT_EQ(last<wire::World>(0)->generation, 1) << "it will join in a moment";
    until(
        [&] {
            pass(500ms, {0, 1, 2});
            return last<wire::World>(0)->generation == 2;
        },
        "a moment is over");
    EXPECT_EQ(last<wire::World>(0)->nodes, 2);
    EXPECT_EQ(state(id), "starting");
}

TEST_F(ElasticTest, WhatALostNodeSaysOfItsOldRanksChangesNothing) {
    const std::string id = start();
    shrink(id);
    call_in(2, 1, true);
    until([&] { return aborted(2, 1); }, "ABORT");
    wire::Exited late = exit(++events_, 2, 9);
    agents_[2].say(late);
    wire::Started started;
    started.generation = 1;
    started.ranks.push_back({2, 102});
    agents_[2].say(started);
    agents_[2].say(wire::Ready{1});
    wire::Fault fault;
    fault.event = ++events_;
    fault.generation = 1;
    fault.cause_class = "rank_exit";
    fault.message = "late";
    agents_[2].say(fault);
    until(
        [&] {
            const auto* ack = last<wire::Ack>(2);
            return ack != nullptr && ack->event == events_;
        },
        "it was heard");
    EXPECT_EQ(last<wire::Fenced>(2), nullptr);
    EXPECT_EQ(state(id), "running");
    EXPECT_EQ(generations(id).size(), 2U);
}

TEST_F(ElasticTest, ADaemonThatIsStartedAnewKnowsWhoIsLostAndTakesItBack) {
    const std::string id = start(R"({"grow_after_seconds":0})");
    shrink(id);
    shut_down();
    boot();
    call_in(0, 2, true);
    call_in(1, 2, true);
    call_in(2, 1, true);
    until([&] { return aborted(2, 1); }, "ABORT of its old ranks");
    join(2, 1);
    until(
        [&] {
            pass(1s, {0, 1, 2});
            return aborted(0, 2) && aborted(1, 2);
        },
        "it grows");
    join(0, 2);
    join(1, 2);
    begin(3, {0, 1, 2});
    until([&] { return state(id) == "running"; }, "running");
}

TEST_F(ElasticTest, TheFirstStartWaitsAWhileForThoseThatAreLate) {
    const std::string id = submit_elastic(R"({"grow_after_seconds":0})");
    call_in(0);
    join(0, 0);
    call_in(2);
    join(2, 0);
    until(
        [&] {
            pass(1s, {0, 2});
            return show(id).value("pending_reason", "").find("node 1") != std::string::npos;
        },
        "it says who is missing");
    EXPECT_EQ(last<wire::World>(0), nullptr);
    until(
        [&] {
            pass(5s, {0, 2});
            return last<wire::World>(0) != nullptr;
        },
        "half a minute is over");
    begin(1, {0, 2});
    until([&] { return state(id) == "running"; }, "running");
    EXPECT_EQ(generations(id)[0]["message"], "starts with 2 of 3 nodes: node 1 is not there yet");
    call_in(1);
    join(1, 0);
    until(
        [&] {
            pass(1s, {0, 1, 2});
            return aborted(0, 1) && aborted(2, 1);
        },
        "the late one is taken");
    join(0, 1);
    join(2, 1);
    begin(2, {0, 1, 2});
    EXPECT_EQ(last<wire::World>(2)->node_rank, 1) << "who was there keeps its ranks";
    EXPECT_EQ(last<wire::World>(1)->node_rank, 2);
}

TEST_F(ElasticTest, AGenerationThatIsAboutToEndIsLeftAlone) {
    const std::string id = start(R"({"grow_after_seconds":0})");
    shrink(id);
    wire::Exited end = exit(++events_, 0, 0);
    end.generation = 2;
    agents_[0].say(end);
    call_in(2, 1);
    join(2, 1);
    for (int second = 0; second < 10; ++second) {
        pass(1s, {0, 1, 2});
        io_->run_for(10ms);
    }
    EXPECT_FALSE(aborted(1, 2));
    end = exit(++events_, 1, 0);
    end.generation = 2;
    agents_[1].say(end);
    until([&] { return state(id) == "succeeded"; }, "succeeded");
}

}  // namespace
}  // namespace lockstep
