// size: what agents say, a test of each message
// How agents meet and leave: who is missing, TABLE of a large world, BYE.
#include "daemon/control/actor/agent_link.hpp"
#include "job/base/files.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

class ProtocolTest : public ControlTest {
  protected:
    std::string submit_nodes(int nodes, const std::string& resources = "") {
        const auto json = parse_json(
            R"({"name":"t","framework":"command","command":["x"],"recovery":{},"resources":{"nodes":)" +
            std::to_string(nodes) + resources + "}}");
        SubmitRequest request;
        request.spec = parse_spec(*json).value();
        request.body_sha256 = "body";
        SubmitResult<Submitted> out = fail(Errc::internal, "not run");
        auto run = [&]() -> Task<void> {
            SubmitRequest copy = request;
            Caller caller = ada_;
            out = co_await control_->submit(std::move(caller), std::move(copy));
        };
        wait(run());
        until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
        return out->id;
    }
    void call_in(int slots) {
        for (int slot = 0; slot < slots; ++slot) {
            agents_.push_back(hello(slot));
        }
        until([&] { return last<wire::Welcome>(slots - 1) != nullptr; }, "WELCOME");
        for (int slot = 0; slot < slots; ++slot) {
            join(slot);
        }
    }
    void join(int slot) {
        wire::Join join;
        join.address = "127.0.0." + std::to_string(slot + 1);
        join.port = 5000;
        agents_[static_cast<std::size_t>(slot)].say(join);
    }
    void say(int slot, const wire::AgentMessage& message) {
        agents_[static_cast<std::size_t>(slot)].say(message);
    }
    template <class M>
    const M* last(int slot) const {
        return agents_[static_cast<std::size_t>(slot)].peer->template last<M>();
    }
    void start_all(int members) {
        until([&] { return last<wire::World>(members - 1) != nullptr; }, "WORLD");
        for (int slot = 0; slot < members; ++slot) {
            say(slot, wire::Ready{1});
        }
        for (int slot = 0; slot < members; ++slot) {
            until([&] { return last<wire::Start>(slot) != nullptr; }, "START");
            say(slot, wire::Started{1, {{slot, 100 + slot}}});
        }
    }
    std::string waits_for(const std::string& id) { return show(id).value("pending_reason", ""); }

    std::vector<TestAgent> agents_;
};

TEST_F(ProtocolTest, ReadyOfAGenerationThatIsYetToComeIsFenced) {
    submit_nodes(2);
    call_in(2);
    until([&] { return last<wire::World>(1) != nullptr; }, "WORLD");
    say(1, wire::Ready{2});
    until([&] { return last<wire::Fenced>(1) != nullptr; }, "FENCED");
    EXPECT_EQ(last<wire::Fenced>(1)->message, "READY of another generation");
    say(0, wire::Ready{1});
    EXPECT_EQ(last<wire::Start>(0), nullptr);
}

TEST_F(ProtocolTest, ANodeAsksForKeysOfItsOwnRanksOnly) {
    submit_nodes(2);
    call_in(2);
    start_all(2);
    for (const std::int32_t rank : {1, 0}) {
        wire::KeyRequest request;
        request.generation = 1;
        request.id = static_cast<std::uint64_t>(10 + rank);
        request.rank = rank;
        request.op = wire::KvOp::set;
        request.keys = {"k"};
        request.value = "dg==";
        say(0, request);
        until(
            [&] {
                const auto* reply = last<wire::KeyReply>(0);
                return reply != nullptr && reply->id == request.id;
            },
            "the answer");
        EXPECT_EQ(last<wire::KeyReply>(0)->error, rank == 1 ? "conflict" : "");
    }
}

// The second one's agent is not on its disk, as slurmstepd says; of the first nobody says anything.
TEST_F(ProtocolTest, ANodeThatNeverCallsInIsNamedWithWhatSlurmSaysOfIt) {
    scheduler_.seen.nodes = {"n1", "n2"};
    const std::string id = submit_nodes(2);
    until([&] { return state(id) == "starting"; }, "placed");
    const std::string words =
        "slurmstepd-n2: error: execve(): /opt/lockstep-agent: No such file or directory";
    ASSERT_TRUE(replace_file(scheduler_.last.directory + "/agent-00001.log", words + "\n", 0600));
    const auto told = [&] {
        clock_.advance(std::chrono::seconds{1});
        return waits_for(id).find(words) != std::string::npos;
    };
    until(told, "it is told");
    EXPECT_EQ(waits_for(id),
              "waiting for 2 of 2 nodes: n1 (not connected), n2 (not connected: " + words + ")");
    clock_.advance(limits::kGatherTimeout);
    until([&] { return scheduler_.cancels > 0; }, "they have not called in");
    until([&] { return state(id) == "failed"; }, "failed");
    EXPECT_EQ(
        show(id)["cause"]["message"],
        "0 of 2 nodes called in within 300 s; missing: node 0 node 1 (n1, n2: " + words + ")");
}

TEST_F(ProtocolTest, WhoIsMissingAndWhyIsTold) {
    const std::string id = submit_nodes(12);
    until([&] { return state(id) == "starting"; }, "placed");
    agents_.push_back(hello(0));
    agents_.push_back(hello(1));
    until([&] { return last<wire::Welcome>(1) != nullptr; }, "WELCOME");
    join(0);
    clock_.advance(std::chrono::seconds{1});
    until([&] { return !waits_for(id).empty(); }, "somebody is missed");
    EXPECT_EQ(waits_for(id),
              "waiting for 11 of 12 nodes: n1 (connected, not joined), node 2 (not connected), "
              "node 3 (not connected), node 4 (not connected), node 5 (not connected), node 6 (not "
              "connected), node 7 (not connected), node 8 (not connected) and 3 more");
    for (int slot = 2; slot < 12; ++slot) {
        agents_.push_back(hello(slot));
    }
    for (int slot = 1; slot < 12; ++slot) {
        until([&] { return last<wire::Welcome>(slot) != nullptr; }, "WELCOME");
        join(slot);
    }
    until([&] { return last<wire::World>(11) != nullptr; }, "WORLD");
    for (int slot = 0; slot < 11; ++slot) {
        say(slot, wire::Ready{1});
    }
    clock_.advance(std::chrono::seconds{1});
    until([&] { return waits_for(id) == "waiting for 1 of 12 nodes: n11 (not ready)"; },
          "the one that is not ready");
    say(11, wire::Ready{1});
    for (int slot = 0; slot < 12; ++slot) {
        until([&] { return last<wire::Start>(slot) != nullptr; }, "START");
        say(slot, wire::Started{1, {{slot, 100 + slot}}});
    }
    until([&] { return state(id) == "running"; }, "running");
    until([&] { return waits_for(id).empty(); }, "nobody is missed any more");
}

TEST_F(ProtocolTest, WhyANodeWasRefusedIsSaidOfTheMissing) {
    const std::string id = submit_nodes(2);
    until([&] { return state(id) == "starting"; }, "placed");
    agents_.push_back(hello(0));
    until([&] { return last<wire::Welcome>(0) != nullptr; }, "WELCOME");
    join(0);
    TestAgent other = connect();
    wire::Hello old;
    old.protocol = 99;
    old.node_rank = 1;
    old.node = "n1";
    old.incarnation = "i1";
    other.say(old);
    until([&] { return other.peer->last<wire::Fenced>() != nullptr; }, "FENCED");
    clock_.advance(std::chrono::seconds{1});
    until(
        [&] {
            return waits_for(id) ==
                   "waiting for 1 of 2 nodes: node 1 (refused: this daemon speaks protocol 1)";
        },
        "why");
}

TEST_F(ProtocolTest, RankZerosNodeIsToldWhereRanksMayComeFrom) {
    submit_nodes(2);
    for (int slot = 0; slot < 2; ++slot) {
        agents_.push_back(hello(slot));
    }
    until([&] { return last<wire::Welcome>(1) != nullptr; }, "WELCOME");
    for (int slot = 0; slot < 2; ++slot) {
        wire::Join join;
        join.address = "10.0.0." + std::to_string(slot + 1);
        join.port = 5000;
        join.addresses = {join.address, "192.168.7." + std::to_string(slot + 1)};
        say(slot, join);
    }
    until([&] { return last<wire::World>(1) != nullptr; }, "WORLD");
    // With 127.0.0.1, where the test's agents come from.
    EXPECT_EQ(last<wire::World>(0)->admitted,
              (std::vector<std::string>{"10.0.0.1", "10.0.0.2", "127.0.0.1", "192.168.7.1",
                                        "192.168.7.2"}));
    EXPECT_TRUE(last<wire::World>(1)->admitted.empty()) << "it serves nobody";
}

TEST_F(ProtocolTest, WhereRanksMayComeFromIsAllOrNothing) {
    submit_nodes(2);
    for (int slot = 0; slot < 2; ++slot) {
        agents_.push_back(hello(slot));
    }
    until([&] { return last<wire::Welcome>(1) != nullptr; }, "WELCOME");
    wire::Join join;
    join.address = "10.0.0.1";
    join.port = 5000;
    join.addresses = {"10.0.0.1"};
    say(0, join);
    join.addresses.assign(limits::kNodeAddresses + 1, "10.0.0.2");  // more than an agent says
    say(1, join);
    until([&] { return last<wire::World>(0) != nullptr; }, "WORLD");
    EXPECT_TRUE(last<wire::World>(0)->admitted.empty()) << "a rank of node 1 would be kept out";
}

TEST_F(ProtocolTest, ALargeWorldsHostsGoToWhoeverAsks) {
    constexpr int kNodes = limits::kWorldHosts + 2;
    submit_nodes(kNodes);
    call_in(kNodes);
    until([&] { return last<wire::World>(kNodes - 1) != nullptr; }, "WORLD");
    const wire::World world = *last<wire::World>(7);
    EXPECT_EQ(world.node_rank, 7);
    EXPECT_EQ(world.nodes, kNodes);
    EXPECT_TRUE(world.hosts.empty());
    EXPECT_FALSE(world.table.empty());
    say(7, wire::TableRequest{1});
    until([&] { return last<wire::Table>(7) != nullptr; }, "TABLE");
    EXPECT_EQ(last<wire::Table>(7)->digest, world.table);
    ASSERT_EQ(last<wire::Table>(7)->hosts.size(), static_cast<std::size_t>(kNodes));
    EXPECT_EQ(last<wire::Table>(7)->hosts[65], "n65");
    EXPECT_EQ(last<wire::Table>(8), nullptr) << "only who asks";
    say(8, wire::TableRequest{1});
    until([&] { return last<wire::Table>(8) != nullptr; }, "TABLE");
    // A megabyte for each of 12,288 nodes would be 12 GB.
    EXPECT_EQ(agents_[7].peer->shared.back(), agents_[8].peer->shared.back()) << "one text for all";
}

// After a restart of the daemon everybody's news comes at once. Each of them used to send START to
// all that were ready.
TEST_F(ProtocolTest, StartLeavesOnceHoweverManyNewsComeTogether) {
    const std::string id = submit_nodes(3);
    call_in(3);
    until([&] { return last<wire::World>(2) != nullptr; }, "WORLD");
    for (int slot = 0; slot < 3; ++slot) {
        say(slot, wire::Ready{1});
    }
    until([&] { return last<wire::Start>(2) != nullptr; }, "START");
    for (TestAgent& agent : agents_) {
        agent.session->on_closed();
    }
    shut_down();
    boot();
    agents_.clear();
    for (int slot = 0; slot < 3; ++slot) {  // the third never heard START
        agents_.push_back(hello(slot, "", slot < 2));
    }
    for (int slot = 0; slot < 3; ++slot) {
        until([&] { return last<wire::Welcome>(slot) != nullptr; }, "WELCOME");
    }
    join(2);
    until([&] { return last<wire::World>(2) != nullptr; }, "WORLD again");
    say(2, wire::Ready{1});
    say(0, wire::Started{1, {{0, 100}}});
    say(1, wire::Started{1, {{1, 101}}});
    until([&] { return last<wire::Start>(2) != nullptr; }, "START");
    say(2, wire::Started{1, {{2, 102}}});
    until([&] { return state(id) == "running"; }, "running");
    EXPECT_EQ(agents_[2].peer->count<wire::Start>(), 1U);
    EXPECT_EQ(agents_[0].peer->count<wire::Start>(), 0U);
}

// Of eight ranks a node says eight times that they have ended, and once that it is done.
TEST_F(ProtocolTest, WhatIsHeardTogetherIsAcknowledgedOnce) {
    const std::string id = submit_nodes(1, R"(,"ranks_per_node":3)");
    call_in(1);
    until([&] { return last<wire::World>(0) != nullptr; }, "WORLD");
    say(0, wire::Ready{1});
    until([&] { return last<wire::Start>(0) != nullptr; }, "START");
    say(0, wire::Started{1, {{0, 100}, {1, 101}, {2, 102}}});
    until([&] { return state(id) == "running"; }, "running");
    for (std::int32_t rank = 0; rank < 3; ++rank) {
        say(0, exit(static_cast<std::uint64_t>(rank) + 1, rank, 0));
    }
    say(0, wire::Done{4, 1});
    EXPECT_EQ(last<wire::Ack>(0), nullptr) << "nothing of it is on disk yet";
    until([&] { return last<wire::Ack>(0) != nullptr; }, "heard");
    EXPECT_EQ(last<wire::Ack>(0)->event, 4U);
    until([&] { return state(id) == "succeeded"; }, "the end");
    EXPECT_EQ(agents_[0].peer->count<wire::Ack>(), 1U);
}

// Its nodes are not looked at with every input, but they are.
// An agent drops what is acknowledged: what went back would never be sent again.
TEST_F(ProtocolTest, AnAcknowledgementNeverGoesBack) {
    submit_nodes(2);
    call_in(2);
    auto& link = dynamic_cast<AgentLink&>(*agents_[0].session);
    link.acknowledge_batch(7);
    link.acknowledge_event(3);
    link.acknowledge_batch(5);
    link.acknowledge_event(2);
    EXPECT_EQ(last<wire::Ack>(0)->batch, 7U);
    EXPECT_EQ(last<wire::Ack>(0)->event, 3U);
}

TEST_F(ProtocolTest, OfALargeJobTooASilentNodeIsNoticed) {
    constexpr int kNodes = 600;
    const std::string id = submit_nodes(kNodes);
    call_in(kNodes);
    start_all(kNodes);
    until([&] { return state(id) == "running"; }, "running");
    clock_.advance(std::chrono::seconds{limits::kAgentLost});
    for (int slot = 0; slot < kNodes; ++slot) {
        if (slot != 7) {
            say(slot, wire::Beat{1, 1, 0});
        }
    }
    until([&] { return last<wire::Stop>(0) != nullptr; }, "nobody is to take its place");
    EXPECT_EQ(last<wire::Stop>(0)->reason, "the agent of n7 has not been heard for 60 s");
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], Json::array({"n7"}));
}

// All ranks run again although none of their nodes had to be looked at for it.
TEST_F(ProtocolTest, ALargeJobsNextGenerationFollowsWithoutATick) {
    constexpr int kNodes = 600;
    const std::string id = submit_nodes(kNodes);
    call_in(kNodes);
    start_all(kNodes);
    until([&] { return state(id) == "running"; }, "running");
    bool asked = false;
    auto restart = [&]() -> Task<void> {
        const auto done = co_await control_->commands().restart(ada_, id, "");
        asked = done.has_value();
    };
    wait(restart());
    EXPECT_TRUE(asked);
    for (int slot = 0; slot < kNodes; ++slot) {
        until([&] { return last<wire::Abort>(slot) != nullptr; }, "ABORT");
        wire::Join join;
        join.address = "127.0.0.1";
        join.port = 5000;
        join.generation = 1;
        say(slot, join);
    }
    until([&] { return last<wire::World>(kNodes - 1)->generation == 2; }, "WORLD of the next one");
    for (int slot = 0; slot < kNodes; ++slot) {
        EXPECT_EQ(agents_[static_cast<std::size_t>(slot)].peer->count<wire::Abort>(), 1U) << slot;
    }
}

// ABORT was sent to everybody once; a node that had lost its connection went on with the old ranks.
TEST_F(ProtocolTest, ANodeThatComesBackWhileRanksAreStoppedIsToldToStopThem) {
    const std::string id = submit_nodes(2);
    call_in(2);
    start_all(2);
    until([&] { return state(id) == "running"; }, "running");
    auto restart = [&]() -> Task<void> { co_await control_->commands().restart(ada_, id, ""); };
    wait(restart());
    until([&] { return last<wire::Abort>(1) != nullptr; }, "ABORT");
    agents_[1].session->on_closed();
    agents_[1] = hello(1, "", true);
    until([&] { return last<wire::Abort>(1) != nullptr; }, "ABORT over the new connection");
    EXPECT_EQ(last<wire::Abort>(1)->generation, 1);
    EXPECT_EQ(agents_[0].peer->count<wire::Abort>(), 1U) << "who has it is not told again";
}

// It was told to end, and said so: nobody waits four seconds for it to be silent.
TEST_F(ProtocolTest, ANodeThatSaysByeIsLostAtOnceIfASpareWaits) {
    const std::string id = submit_nodes(2, R"(,"spares":1)");
    call_in(3);
    start_all(2);
    until([&] { return state(id) == "running"; }, "running");
    wire::Exited stopped = exit(1, 0, 143);
    stopped.stopped = true;
    say(0, stopped);
    say(0, wire::Done{2, 1});
    say(0, wire::Bye{3, "it was told to end (SIGTERM)"});
    until([&] { return last<wire::Ack>(0) != nullptr && last<wire::Ack>(0)->event == 3; }, "heard");
    agents_[0].session->on_closed();
    EXPECT_EQ(last<wire::Abort>(1), nullptr);
    clock_.advance(std::chrono::milliseconds{500});
    until([&] { return last<wire::Abort>(1) != nullptr; }, "ABORT to the one that is left");
    EXPECT_THAT(last<wire::Abort>(1)->reason,
                HasSubstr("the agent of n0 left: it was told to end (SIGTERM)"));
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], Json::array({"n0"}));
}

TEST_F(ProtocolTest, WithoutASpareTheSchedulersWordIsWaitedForFirst) {
    const std::string id = submit_nodes(2);
    call_in(2);
    start_all(2);
    until([&] { return state(id) == "running"; }, "running");
    say(0, wire::Bye{1, "it was told to end (SIGTERM)"});
    until([&] { return last<wire::Ack>(0) != nullptr && last<wire::Ack>(0)->event == 1; }, "heard");
    agents_[0].session->on_closed();
    clock_.advance(std::chrono::milliseconds{2999});
    const int polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 1; }, "it was looked at");
    EXPECT_EQ(last<wire::Stop>(1), nullptr);
    clock_.advance(std::chrono::milliseconds{1});
    until([&] { return last<wire::Stop>(1) != nullptr; }, "another attempt is needed");
    EXPECT_THAT(last<wire::Stop>(1)->reason, HasSubstr("left: it was told to end"));
}

// Slurm, which gave the silent node up, tells the others to go, and squeue may take its time.
TEST_F(ProtocolTest, ANodeThatIsToldToGoWhileAnotherIsSilentIsNotTheOneThatWasLost) {
    const std::string id = submit_nodes(2);
    call_in(2);
    start_all(2);
    until([&] { return state(id) == "running"; }, "running");
    clock_.advance(std::chrono::seconds{8});
    say(0, wire::Beat{});
    say(0, wire::Bye{1, "it was told to end (SIGTERM)"});
    until([&] { return last<wire::Ack>(0) != nullptr && last<wire::Ack>(0)->event == 1; }, "heard");
    agents_[0].session->on_closed();
    clock_.advance(std::chrono::seconds{50});
    const int polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 1; }, "it was looked at");
    EXPECT_EQ(show(id)["attempts"][0].value("lost_nodes", Json::array()), Json::array());
    clock_.advance(std::chrono::seconds{2});
    until([&] { return show(id)["attempts"][0].contains("lost_nodes"); }, "a node is lost");
    EXPECT_EQ(show(id)["attempts"][0]["lost_nodes"], Json::array({"n1"})) << "the silent one";
}

}  // namespace
}  // namespace lockstep
