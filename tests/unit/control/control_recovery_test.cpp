// size: a job's recovery as its agents see it, one test a way
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

#include <set>
#include <string>

namespace lockstep {
namespace {

class RecoveryTest : public ControlTest {
  protected:
    // A job of two nodes with one rank each, and `spares` nodes more, every rank started.
    std::string start(int spares = 0, const std::string& recovery = "{}") {
        const std::string id = submit("", "body",
                                      (spares > 0 ? R"(,"spares":)" + std::to_string(spares) : "") +
                                          R"(},"recovery":)" + recovery + R"(,"labels":{)")
                                   ->id;
        until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
        call_in(spares);
        begin(1);
        until([&] { return state(id) == "running"; }, "running");
        return id;
    }
    void call_in(int spares) {
        agents_.clear();
        for (int slot = 0; slot < 2 + spares; ++slot) {
            agents_.push_back(hello(slot));
            until([&] { return last<wire::Welcome>(slot) != nullptr; }, "WELCOME");
            join(slot, 0);
        }
    }
    // Both have WORLD, the second is ready, and the first is about to say this.
    wire::Fault fault_of_the_first() {
        until([&] { return last<wire::World>(0) != nullptr && last<wire::World>(1) != nullptr; },
              "WORLD");
        agents_[1].say(wire::Ready{1});
        wire::Fault fault;
        fault.event = ++events_;
        fault.generation = 1;
        return fault;
    }
    void join(int slot, std::int32_t left) {
        wire::Join join;
        join.address = "127.0.0." + std::to_string(slot + 1);
        join.port = 5000 + slot;
        join.generation = left;
        agents_[at(slot)].say(join);
    }
    // Everybody whom the generation has says READY and STARTED.
    void begin(std::int32_t generation) {
        std::vector<int> members;
        until(
            [&] {
                members.clear();
                for (std::size_t slot = 0; slot < agents_.size(); ++slot) {
                    const auto* world = last<wire::World>(static_cast<int>(slot));
                    if (world != nullptr && world->generation == generation) {
                        members.push_back(static_cast<int>(slot));
                    }
                }
                return members.size() == 2;
            },
            "WORLD of every node");
        for (const int slot : members) {
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
    void exits(int slot, std::int32_t generation, std::int32_t code, bool stopped = false) {
        wire::Exited out = exit(++events_, last<wire::World>(slot)->first_rank, code);
        out.generation = generation;
        out.stopped = stopped;
        agents_[at(slot)].say(out);
    }
    bool aborted(int slot, std::int32_t generation) {
        const auto* abort = last<wire::Abort>(slot);
        return abort != nullptr && abort->generation == generation;
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

TEST_F(RecoveryTest, AFailedRankIsANewGenerationWithTheSameRanks) {
    const std::string id = start();
    exits(1, 1, 3);
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT to both");
    EXPECT_EQ(last<wire::World>(0)->generation, 1) << "not while a rank of the first may live";
    join(1, 1);
    exits(0, 1, 143, true);
    join(0, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
    const Json all = generations(id);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0]["cause"]["class"], "rank_exit");
    EXPECT_EQ(last<wire::World>(0)->node_rank, 0);
    EXPECT_EQ(last<wire::World>(1)->node_rank, 1);
    EXPECT_EQ(last<wire::World>(1)->master_address, "127.0.0.1");
    exits(0, 2, 0);
    exits(1, 2, 0);
    until([&] { return state(id) == "succeeded"; }, "succeeded");
}

// What ends one generation and what begins the next share an append: nobody waits for the disk
// twice.
TEST_F(RecoveryTest, TheNextGenerationIsFixedWithTheEndOfTheLastIfAllHaveJoined) {
    const std::string id = start();
    exits(1, 1, 3);
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT to both");
    join(1, 1);
    exits(0, 1, 143, true);
    join(0, 1);
    std::set<std::string> states;
    until(
        [&] {
            states.insert(state(id));
            return last<wire::World>(0)->generation == 2 && last<wire::World>(1)->generation == 2;
        },
        "WORLD of the second");
    EXPECT_EQ(states.count("restarting"), 0U) << "a state of its own on the disk";
    const Json all = generations(id);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0]["cause"]["class"], "rank_exit");
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
    // The ranks of the first had been started: both times the nodes met.
    EXPECT_THAT(metrics_text(),
                testing::AllOf(
                    testing::HasSubstr("lockstep_rendezvous_rounds_total{result=\"completed\"} 2"),
                    testing::HasSubstr("lockstep_rendezvous_rounds_total{result=\"failed\"} 0")));
}

TEST_F(RecoveryTest, AGenerationWhoseRanksWereNotAllStartedIsAFailedRendezvous) {
    const std::string id = start();
    for (const std::int32_t generation : {1, 2}) {
        exits(1, generation, 3);
        until([&] { return aborted(0, generation) && aborted(1, generation); }, "ABORT to both");
        join(1, generation);
        exits(0, generation, 143, true);
        join(0, generation);
        until([&] { return last<wire::World>(1)->generation == generation + 1; }, "WORLD");
    }
    EXPECT_EQ(generations(id).size(), 3U) << "nobody said STARTED in the second";
    EXPECT_THAT(metrics_text(),
                testing::AllOf(
                    testing::HasSubstr("lockstep_rendezvous_rounds_total{result=\"completed\"} 1"),
                    testing::HasSubstr("lockstep_rendezvous_rounds_total{result=\"failed\"} 1")));
}

// Both happen in one millisecond: the last batch of a generation is taken, and the next one begins.
// The one before's steps were the next one's: it was a hang while it imported, and a crash loop.
TEST_F(RecoveryTest, StepsOfTheGenerationBeforeAreNotTheNextOnes) {
    const std::string id = start(0, R"({},"watch":{"hang_seconds":3})");
    agents_[0].session->on_binary(batch(1, 0, 7));
    until([&] { return last<wire::Ack>(0) != nullptr && last<wire::Ack>(0)->batch == 1; }, "ACK");
    for (const std::int32_t generation : {1, 2}) {
        exits(1, generation, 3);
        until([&] { return aborted(0, generation) && aborted(1, generation); }, "ABORT to both");
        join(1, generation);
        exits(0, generation, 143, true);
        join(0, generation);
        begin(generation + 1);
        until([&] { return state(id) == "running"; }, "running again");
    }
    const Json all = generations(id);
    EXPECT_EQ(all[0]["step"], 7);
    EXPECT_FALSE(all[1].contains("step")) << all[1].dump();
    const auto stand_still = [&] {
        for (const auto time : {std::chrono::milliseconds{300}, std::chrono::milliseconds{3500}}) {
            clock_.advance(time);
            agents_[0].say(wire::Beat{0, 3, 0});
            agents_[1].say(wire::Beat{0, 3, 0});
            const auto polls = scheduler_.polls;
            until([&] { return scheduler_.polls > polls + 2; }, "it was looked at");
        }
    };
    stand_still();
    EXPECT_EQ(last<wire::Examine>(0), nullptr) << "nobody knows how long imports take";
    // Its own steps count.
    Batch own;
    own.seq = 2;
    own.generation = 3;
    own.add_row(0, 9, 1'700'000'010.0);
    own.set("loss", 0.5);
    agents_[0].session->on_binary(encode_batch(own));
    until([&] { return last<wire::Ack>(0)->batch == 2; }, "ACK");
    stand_still();
    until([&] { return last<wire::Examine>(0) != nullptr; }, "it hangs now");
}

TEST_F(RecoveryTest, WhatIsSaidOfAGenerationThatIsOverChangesNothing) {
    const std::string id = start();
    exits(1, 1, 3);
    exits(0, 1, 143, true);
    join(0, 1);
    join(1, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
    exits(1, 1, 9);
    agents_[1].say(wire::Started{1, {{1, 7}}});
    until([&] { return aborted(1, 1); }, "told that it is over");
    EXPECT_EQ(agents_[1].peer->closed, "");
    EXPECT_EQ(state(id), "running");
    EXPECT_EQ(generations(id).size(), 2U);
}

TEST_F(RecoveryTest, ASpareTakesTheRanksOfALostNode) {
    const std::string id = start(1);
    scheduler_.seen.lost_nodes = {0};
    agents_[0].session->on_closed();
    until([&] { return aborted(1, 1); }, "ABORT to the one that is left");
    exits(1, 1, 143, true);
    join(1, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
    EXPECT_EQ(last<wire::World>(2)->node_rank, 0) << "the lost node's";
    EXPECT_EQ(last<wire::World>(1)->node_rank, 1) << "its own";
    EXPECT_EQ(last<wire::World>(1)->master_address, "127.0.0.3");
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], Json::array({"n0"}));
    EXPECT_EQ(generations(id)[0]["cause"]["class"], "node_lost");
    // The lost agent lives after all: it is sent away.
    TestAgent late = hello(0, "i0", true);
    until([&] { return late.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    EXPECT_EQ(state(id), "running");
}

// Its full disk was the user's error: the job failed, with a node to spare.
TEST_F(RecoveryTest, ASpareTakesTheRanksOfANodeThatSaysItCannotPrepareThem) {
    const std::string id = submit("", "body", R"(,"spares":1},"recovery":{},"labels":{)")->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    call_in(1);
    wire::Fault fault = fault_of_the_first();
    fault.cause_class = "node_lost";
    fault.message = "checkpoint directory: mkdir /c: No space left on device";
    agents_[0].say(fault);
    until([&] { return aborted(1, 1); }, "ABORT to the one that is left");
    EXPECT_NE(last<wire::Fenced>(0), nullptr) << "the node is given up";
    join(1, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running with the spare");
    EXPECT_EQ(show(id)["attempts"].size(), 1U);
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], Json::array({"n0"}));
    EXPECT_EQ(generations(id)[0]["cause"]["class"], "node_lost");
    EXPECT_EQ(generations(id)[0]["cause"]["node"], "n0");
}

TEST_F(RecoveryTest, ASilentNodeIsLostAfterFourSecondsIfASpareWaits) {
    const std::string id = start(1);
    clock_.advance(limits::kAgentSilence - std::chrono::milliseconds{1});
    agents_[1].say(wire::Beat{0, 1, 0});
    agents_[2].say(wire::Beat{0, 0, 0});
    clock_.advance(std::chrono::milliseconds{1});
    until([&] { return aborted(1, 1); }, "ABORT to the one that is heard");
    EXPECT_NE(last<wire::Fenced>(0), nullptr);
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], Json::array({"n0"}));
}

TEST_F(RecoveryTest, ASilentNodeIsWaitedForAMinuteIfNoneTakesItsPlace) {
    const std::string id = start();
    clock_.advance(limits::kAgentLost - std::chrono::milliseconds{1});
    agents_[1].say(wire::Beat{0, 1, 0});
    const int polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 1; }, "it was looked at");
    EXPECT_EQ(state(id), "running");
    clock_.advance(std::chrono::milliseconds{1});
    until([&] { return last<wire::Stop>(1) != nullptr; }, "STOP: another attempt is needed");
}

TEST_F(RecoveryTest, WithoutASpareALostNodeIsAnotherAttemptWithoutIt) {
    const std::string id = start();
    scheduler_.seen.lost_nodes = {1};
    agents_[1].session->on_closed();
    until([&] { return last<wire::Stop>(0) != nullptr; }, "STOP");
    exits(0, 1, 143, true);
    agents_[0].say(wire::Done{++events_, 1});
    scheduler_.submissions = 0;
    scheduler_.seen_until = 1;
    scheduler_.seen.state = AllocationState::ended;
    agents_[0].session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    EXPECT_EQ(scheduler_.last.attempt, 2);
    EXPECT_THAT(scheduler_.last.exclude, testing::ElementsAre("n1"));
    EXPECT_EQ(show(id)["attempts"][0]["cause"]["class"], "node_lost");
    call_in(0);
    begin(1);
    until([&] { return state(id) == "running"; }, "running in the second");
    exits(0, 1, 0);
    exits(1, 1, 0);
    until([&] { return state(id) == "succeeded"; }, "succeeded");
}

// A hang that is not recovered from, and then a failure that came before it and is: the job stood
// still for a minute, and then lost every node.
TEST_F(RecoveryTest, AFailureHeardAfterStopIsRecoveredFromInAnotherAttempt) {
    const std::string id = start(0, R"({"on":["rank_failure","node_failure"]})");
    wire::Fault hang;
    hang.event = ++events_;
    hang.generation = 1;
    hang.cause_class = "hang";
    hang.message = "no rank has made a step";
    hang.time = 5000;
    agents_[0].say(hang);
    until([&] { return last<wire::Stop>(0) != nullptr && last<wire::Stop>(1) != nullptr; }, "STOP");
    scheduler_.submissions = 0;
    scheduler_.seen_until = 1;
    exits(1, 1, 3);
    exits(0, 1, 143, true);
    until(
        [&] {
            const auto* heard = last<wire::Ack>(0);
            return heard != nullptr && heard->event == events_;
        },
        "both were heard");
    EXPECT_EQ(last<wire::Abort>(0), nullptr) << "its agent is leaving";
    scheduler_.seen.state = AllocationState::ended;
    agents_[0].session->on_closed();
    agents_[1].session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    EXPECT_TRUE(scheduler_.last.exclude.empty()) << "no node is to blame";
    EXPECT_EQ(generations(id).size(), 0U);
    EXPECT_EQ(show(id)["attempts"][0]["generations"][0]["cause"]["class"], "rank_exit");
}

// A scheduler that has forgotten the allocation proves nothing: its agent is heard.
TEST_F(RecoveryTest, NoAttemptStartsBesideAnAgentOfTheOneBefore) {
    const std::string id = start();
    scheduler_.seen.lost_nodes = {1};
    agents_[1].session->on_closed();
    until([&] { return last<wire::Stop>(0) != nullptr; }, "STOP");
    scheduler_.seen = {};
    scheduler_.seen.kind = Observation::Kind::absent;
    const auto polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 3; }, "the scheduler says so");
    EXPECT_EQ(show(id)["attempts"].size(), 1U);
    scheduler_.seen_until = 1;
    scheduler_.seen = {Observation::Kind::state, AllocationState::ended, "", {}, {}, ""};
    agents_[0].session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt once it has left");
}

TEST_F(RecoveryTest, APreemptedJobIsAnotherAttempt) {
    const std::string id = start();
    scheduler_.seen_until = 1;
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.cause.kind = CauseClass::preempted;
    scheduler_.seen.cause.message = "Slurm job 17 was preempted";
    for (TestAgent& agent : agents_) {
        agent.session->on_closed();
    }
    scheduler_.submissions = 0;
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
    until([&] { return scheduler_.submissions == 1; }, "handed over");
    EXPECT_EQ(show(id)["attempts"][0]["cause"]["class"], "preempted");
    EXPECT_TRUE(scheduler_.last.exclude.empty()) << "no node is to blame";
}

// Generations are counted from 1 in every attempt: what was told of the first attempt's is not told
// of the second's.
TEST_F(RecoveryTest, TheTimeLimitOfTheSecondAttemptIsToldToo) {
    const std::string id = start();
    const auto told = [&] {
        Json events;
        auto read = [&]() -> Task<void> {
            const auto page = co_await control_->events(ada_, id, first_events(1000));
            events = *parse_json(*page);
        };
        wait(read());
        return std::count_if(events["items"].begin(), events["items"].end(),
                             [](const Json& one) { return one["kind"] == "checkpoint_requested"; });
    };
    agents_[0].say(wire::SaveAsked{++events_, 1, -1, "", 1000});
    until([&] { return told() == 1; }, "told of the first attempt");
    scheduler_.seen_until = 1;
    scheduler_.seen.state = AllocationState::ended;
    scheduler_.seen.cause.kind = CauseClass::preempted;
    for (TestAgent& agent : agents_) {
        agent.session->on_closed();
    }
    until([&] { return scheduler_.last.attempt == 2; }, "the second attempt");
    call_in(0);
    begin(1);
    until([&] { return state(id) == "running"; }, "running in the second");
    agents_[0].say(wire::SaveAsked{++events_, 1, -1, "", 1000});
    until([&] { return told() == 2; }, "told of the second attempt");
}

TEST_F(RecoveryTest, ACancelWhileTheRanksAreBeingStoppedEndsTheJob) {
    const std::string id = start();
    exits(1, 1, 3);
    until([&] { return aborted(0, 1); }, "ABORT");
    auto cancel = [&]() -> Task<void> { co_await control_->commands().cancel(ada_, id); };
    wait(cancel());
    until([&] { return last<wire::Stop>(0) != nullptr; }, "STOP");
    exits(0, 1, 143, true);
    join(0, 1);
    join(1, 1);
    until([&] { return is_final(*parse_job_state(state(id))); }, "over");
    EXPECT_EQ(generations(id).size(), 1U);
}

TEST_F(RecoveryTest, ADaemonKilledWhileRanksAreBeingStoppedGoesOnWithIt) {
    const std::string id = start();
    exits(1, 1, 3);
    until([&] { return aborted(0, 1); }, "ABORT");
    for (TestAgent& agent : agents_) {
        agent.session->on_closed();
    }
    shut_down();
    boot();
    agents_[0] = hello(0, "i0", true);
    until([&] { return aborted(0, 1); }, "ABORT once more");
    wire::Exited stopped = exit(1, 0, 143);
    stopped.stopped = true;
    agents_[0].say(stopped);
    join(0, 1);
    agents_[1] = hello(1, "i1");
    until([&] { return last<wire::Welcome>(1) != nullptr; }, "WELCOME");
    join(1, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
}

TEST_F(RecoveryTest, ARestartAskedForIsOneGenerationMoreAndIsNotCounted) {
    const std::string id = start(0, R"({"max_restarts":0})");
    Errc refused = Errc::internal;
    auto restart = [&]() -> Task<void> {
        const auto done = co_await control_->commands().restart(ada_, id, "");
        EXPECT_TRUE(done.has_value()) << done.error().message;
        const auto again = co_await control_->commands().restart(ada_, id, "");
        EXPECT_TRUE(again.has_value()) << "asked for twice: once";
    };
    wait(restart());
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT to both");
    for (const int slot : {0, 1}) {
        exits(slot, 1, 143, true);
        join(slot, 1);
    }
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
    EXPECT_EQ(generations(id)[0]["cause"]["class"], "restart_requested");
    exits(0, 2, 0);
    exits(1, 2, 0);
    until([&] { return state(id) == "succeeded"; }, "succeeded");
    auto late = [&]() -> Task<void> {
        const auto done = co_await control_->commands().restart(ada_, id, "");
        refused = done ? Errc::internal : done.error().code;
    };
    wait(late());
    EXPECT_EQ(refused, Errc::conflict);
}

TEST_F(RecoveryTest, ANodeThatNeverStartedItsRanksIsNotWaitedForToEndThem) {
    const std::string id = submit("", "body", R"(,"spares":1},"recovery":{},"labels":{)")->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    call_in(1);
    until([&] { return last<wire::World>(0) != nullptr && last<wire::World>(1) != nullptr; },
          "WORLD");
    agents_[1].say(wire::Ready{1});
    scheduler_.seen.lost_nodes = {0};
    agents_[0].session->on_closed();
    until([&] { return aborted(1, 1); }, "ABORT");
    join(1, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running");
}

// The last node is ready only after the end of the generation is known: START would start ranks
// that ABORT may not meet any more.
TEST_F(RecoveryTest, NoStartLeavesForAGenerationThatIsBeingAborted) {
    const std::string id = submit("", "body", R"(},"recovery":{},"labels":{)")->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    call_in(0);
    wire::Fault fault = fault_of_the_first();
    fault.rank = 0;
    fault.cause_class = "rank_exit";
    fault.message = "its command is not there";
    agents_[0].say(fault);
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT to both");
    agents_[0].say(wire::Ready{1});
    join(0, 1);
    join(1, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running");
    EXPECT_EQ(agents_[0].peer->count<wire::Start>(), 1U) << "of the second only";
    EXPECT_EQ(agents_[1].peer->count<wire::Start>(), 1U);
    std::string events;
    auto run = [&]() -> Task<void> {
        const auto page = co_await control_->events(ada_, id, first_events(100));
        events = page.value_or("");
    };
    wait(run());
    std::size_t released = 0;
    for (auto at = events.find("ranks_released"); at != std::string::npos;
         at = events.find("ranks_released", at + 1)) {
        ++released;
    }
    EXPECT_EQ(released, 1U) << events;
}

TEST_F(RecoveryTest, KeysOfAGenerationAreNotSeenByTheNext) {
    const std::string id = start();
    const auto ask = [&](const char* op, std::int32_t generation) {
        wire::KeyRequest request;
        request.generation = generation;
        request.id = ++events_ + 100;
        request.op = wire::kv_op_of(op);
        request.keys = {"nccl"};
        request.value = "dg==";
        agents_[0].say(request);
        until(
            [&] {
                const auto* reply = last<wire::KeyReply>(0);
                return reply != nullptr && reply->id == request.id;
            },
            "the answer");
        return *last<wire::KeyReply>(0);
    };
    EXPECT_TRUE(ask("set", 1).ok);
    EXPECT_TRUE(ask("get", 1).ok);
    exits(1, 1, 3);
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT to both");
    join(1, 1);
    exits(0, 1, 143, true);
    join(0, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
    EXPECT_EQ(ask("get", 2).error, "not_found") << "an NCCL id of ranks that are gone";
}

TEST_F(RecoveryTest, AnAbortIsNoneOfASparesBusiness) {
    const std::string id = start(1);
    exits(1, 1, 3);
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT to both");
    join(1, 1);
    exits(0, 1, 143, true);
    join(0, 1);
    begin(2);
    until([&] { return state(id) == "running"; }, "running again");
    EXPECT_EQ(last<wire::Abort>(2), nullptr) << "it has no ranks, and waits on";
    EXPECT_EQ(agents_[2].peer->closed, "");
}

TEST_F(RecoveryTest, ANodeWhoseRanksDoNotEndIsGivenUpAndHoldsNobodyUp) {
    const std::string id = start(1);
    exits(1, 1, 3);
    until([&] { return aborted(0, 1) && aborted(1, 1); }, "ABORT to both");
    join(1, 1);
    // Its agent is heard and its rank lives: a driver holds it.
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(last<wire::World>(2), nullptr);
        clock_.advance(std::chrono::seconds{3});
        for (TestAgent& agent : agents_) {
            agent.say(wire::Beat{0, 1, 0});
        }
    }
    begin(2);
    until([&] { return state(id) == "running"; }, "running with the spare");
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], Json::array({"n0"}));
    EXPECT_NE(last<wire::Fenced>(0), nullptr);
}

}  // namespace
}  // namespace lockstep
