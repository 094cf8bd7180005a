// size: one short test for each thing that is noted
// What is remembered of nodes: which event blames whom, and what the API tells of it.
#include "daemon/control/actor/node_notes.hpp"
#include "daemon/control/actor/node_witness.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/control/control_fixture.hpp"
#include "tests/unit/model/history.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

class Noted : public ::testing::Test {
  protected:
    NodeNotes note(EventData data) {
        const Event event = at_.make(std::move(data));
        EXPECT_TRUE(apply(at_.job, event).has_value());
        return notes_of(at_.job, {event}, machine_);
    }
    static std::vector<std::string> blamed(const NodeNotes& notes) {
        std::vector<std::string> out;
        for (const NodeFault& fault : notes.faults) {
            out.push_back(fault.node + " " + fault.kind);
        }
        return out;
    }
    static std::vector<std::string> ended(const NodeNotes& notes) {
        std::vector<std::string> out;
        for (const auto& one : notes.ended) {
            out.push_back(one.node + (one.healthy ? " well" : " not"));
        }
        return out;
    }
    event::AttemptEnded end(CauseClass kind, const std::string& node = "") const {
        event::AttemptEnded out;
        out.attempt = at_.attempt_number();
        out.cause.kind = kind;
        out.cause.node = node;
        return out;
    }

    History at_;
    std::string machine_;
};

TEST_F(Noted, ALostNodeIsBlamedAndTheOthersWereWell) {
    at_.running();
    const NodeNotes lost = note(at_.fault(CauseClass::node_lost, 1));
    EXPECT_THAT(blamed(lost), ElementsAre("n1 node_lost"));
    EXPECT_EQ(lost.faults[0].user, "ada");
    EXPECT_EQ(lost.faults[0].generation, 1);
    const NodeNotes over = note(end(CauseClass::node_lost, "n1"));
    EXPECT_TRUE(over.faults.empty()) << "it was said";
    EXPECT_THAT(ended(over), ElementsAre("n0 well", "n1 not"));
    EXPECT_FALSE(over.absolved.has_value());
}

TEST_F(Noted, APreflightFailureIsOneAndWithoutRanksNobodyWasWell) {
    at_.attempt();
    at_.placed();
    at_.claims();
    event::FaultSeen failed = at_.fault(CauseClass::node_lost, 0);
    failed.check = "files";
    failed.message = "n0: 3 files; expected 65536";
    EXPECT_THAT(blamed(note(failed)), ElementsAre("n0 preflight"));
    EXPECT_THAT(blamed(note(at_.fault(CauseClass::gpu_fault, 1))), ElementsAre("n1 gpu_fault"));
    EXPECT_THAT(ended(note(end(CauseClass::gpu_fault))), ElementsAre("n0 not", "n1 not"));
}

TEST_F(Noted, AHangIsBlamedOnTheNodeThatHeldTheOthersUp) {
    at_.running();
    event::FaultSeen hang = at_.fault(CauseClass::hang);
    hang.node = "n1";
    EXPECT_TRUE(note(hang).empty()) << "the generation's end says what came first";
    event::GenerationEnded over = at_.end_of_generation(CauseClass::hang);
    over.cause.node = "n1";
    EXPECT_THAT(blamed(note(over)), ElementsAre("n1 hang"));
    EXPECT_THAT(ended(note(end(CauseClass::hang, "n1"))), ElementsAre("n0 well", "n1 not"));
}

TEST_F(Noted, WhatTheJobDidIsNoFaultOfTheNode) {
    at_.running();
    EXPECT_TRUE(note(at_.exit(0, 3)).empty());
    event::GpuXid xid;
    xid.attempt = 1;
    xid.generation = 1;
    xid.node = "n0";
    xid.xid = 31;  // the program's page fault
    EXPECT_TRUE(note(xid).empty());
    EXPECT_TRUE(note(at_.fault(CauseClass::oom, 0)).empty());
    event::GenerationEnded over = at_.end_of_generation(CauseClass::rank_exit);
    over.cause.node = "n0";
    EXPECT_TRUE(note(over).empty());
    EXPECT_THAT(ended(note(end(CauseClass::rank_exit))), ElementsAre("n0 not", "n1 well"));
}

TEST_F(Noted, AnErrorOfAGpuIsTheNodes) {
    at_.running();
    event::GpuXid xid;
    xid.attempt = 1;
    xid.generation = 1;
    xid.node = "n0";
    xid.gpu = 3;
    xid.xid = 79;
    const NodeNotes notes = note(xid);
    EXPECT_THAT(blamed(notes), ElementsAre("n0 gpu_xid"));
    EXPECT_EQ(notes.faults[0].message, "XID 79 of GPU 3");
    EXPECT_THAT(ended(note(end(CauseClass::none))), ElementsAre("n0 not", "n1 well"));
}

TEST_F(Noted, AGpuThatEndedAGenerationIsBlamedOnce) {
    at_.running();
    EXPECT_THAT(blamed(note(at_.fault(CauseClass::gpu_fault, 1))), ElementsAre("n1 gpu_fault"));
    event::GenerationEnded over = at_.end_of_generation(CauseClass::gpu_fault);
    over.cause.node = "n1";
    EXPECT_TRUE(note(over).faults.empty()) << "it was said";
    EXPECT_THAT(ended(note(end(CauseClass::gpu_fault, "n1"))), ElementsAre("n0 well", "n1 not"));
}

TEST_F(Noted, AStragglersNodeIsNamedAndWasWellAllTheSame) {
    at_.running();
    event::AnomalySeen seen;
    seen.attempt = 1;
    seen.generation = 1;
    seen.rank = 2;
    seen.node = "n1";
    seen.anomaly = to_string(AnomalyKind::straggler);
    EXPECT_THAT(blamed(note(seen)), ElementsAre("n1 straggler"));
    seen.anomaly = to_string(AnomalyKind::slow_node);
    EXPECT_THAT(blamed(note(seen)), ElementsAre("n1 slow_node"));
    seen.anomaly = to_string(AnomalyKind::nonfinite);
    EXPECT_TRUE(note(seen).empty());
    EXPECT_THAT(ended(note(end(CauseClass::none))), ElementsAre("n0 well", "n1 well"));
}

TEST_F(Noted, TheSchedulersEndAbsolvesTheLastGeneration) {
    at_.running();
    note(at_.fault(CauseClass::node_lost, 1));
    const NodeNotes over = note(end(CauseClass::preempted));
    ASSERT_TRUE(over.absolved.has_value());
    EXPECT_EQ(over.absolved->attempt, 1);
    EXPECT_EQ(over.absolved->generation, 1);
}

// The node had been lost before anybody wanted an end.
TEST_F(Noted, AnEndThatCameLaterAbsolvesNobody) {
    at_.running();
    note(at_.fault(CauseClass::node_lost, 1));
    note(at_.end_of_generation(CauseClass::node_lost));
    note(event::CancelRequested{"ada"});
    EXPECT_FALSE(note(end(CauseClass::cancelled_by_user)).absolved.has_value());

    at_ = History();
    at_.running();
    note(at_.fault(CauseClass::node_lost, 1));
    at_.now += std::chrono::milliseconds{std::chrono::hours{1}}.count();
    EXPECT_FALSE(note(end(CauseClass::time_limit)).absolved.has_value());
}

TEST_F(Noted, AnAttemptThatGoesWithoutANodeSaysSo) {
    at_ = History(R"({"name":"t","framework":"command","command":["x"],"resources":{"nodes":2},
                      "recovery":{"max_attempts":2}})");
    at_.running();
    note(at_.fault(CauseClass::node_lost, 1));
    note(end(CauseClass::node_lost));
    event::AttemptCreated created;
    created.attempt = 2;
    const NodeNotes notes = note(created);
    EXPECT_THAT(blamed(notes), ElementsAre("n1 excluded"));
    EXPECT_EQ(notes.faults[0].attempt, 2);
}

TEST_F(Noted, OnOneMachineEveryNodeIsThatOne) {
    machine_ = "laptop";
    at_.running();
    EXPECT_THAT(blamed(note(at_.fault(CauseClass::node_lost, 1))), ElementsAre("laptop node_lost"));
    EXPECT_THAT(ended(note(end(CauseClass::node_lost))), ElementsAre("laptop not"));
}

TEST_F(Noted, ANodeThatNeverCalledInHasNoName) {
    at_.attempt();
    at_.placed();
    event::FaultSeen gone = at_.fault(CauseClass::node_lost, 1);
    gone.node = "node 1";
    EXPECT_TRUE(note(gone).empty());
}

// What is said of a node in an attempt's first generation.
NodeNotes noted(const std::string& node, std::int32_t attempt = 1,
                const std::string& kind = "node_lost") {
    NodeNotes out;
    NodeFault fault;
    fault.node = node;
    fault.kind = kind;
    fault.attempt = attempt;
    fault.generation = 1;
    out.faults.push_back(std::move(fault));
    return out;
}

TEST(NodeWitness, BelievesTheSchedulerAndNotTheAgent) {
    NodeWitness witness;
    EXPECT_EQ(witness.word(1, "n0"), NodeWitness::Word::unknown);
    witness.learn(1, "17", {}, 2);
    EXPECT_EQ(witness.word(1, "n0"), NodeWitness::Word::unknown);
    witness.learn(1, "17", {"n0"}, 2);
    EXPECT_EQ(witness.word(1, "n0"), NodeWitness::Word::given);
    EXPECT_EQ(witness.word(1, "n2"), NodeWitness::Word::unknown) << "it has another node";
    witness.learn(1, "17", {"n0", "n1"}, 2);
    EXPECT_EQ(witness.word(1, "n2"), NodeWitness::Word::foreign);
    // Slurm requeued the job, whose number stays, and gave it others.
    NodeWitness requeued = witness;
    requeued.learn(1, "17", {"n2", "n3"}, 2);
    EXPECT_EQ(requeued.word(1, "n2"), NodeWitness::Word::given);
    EXPECT_EQ(requeued.word(1, "n0"), NodeWitness::Word::foreign);
    EXPECT_EQ(witness.word(2, "n0"), NodeWitness::Word::unknown) << "another attempt";
    witness.learn(1, "17", {"n1"}, 2);  // the job is ending, n0 is free already
    EXPECT_EQ(witness.word(1, "n0"), NodeWitness::Word::given);
    witness.learn(1, "18", {"n3", "n4"}, 2);
    EXPECT_EQ(witness.word(1, "n0"), NodeWitness::Word::foreign) << "of the allocation before";
    EXPECT_EQ(witness.word(1, "n3"), NodeWitness::Word::given);
}

TEST(NodeWitness, KeepsWhatIsSaidBeforeTheSchedulerHasToldOfTheNodes) {
    NodeWitness witness;
    NodeNotes notes = noted("n1");
    notes.faults.push_back(noted("n2").faults.front());
    notes.ended = {{"n1", 5, false, 1}, {"n2", 5, false, 1}};
    NodeWitness::Sorted early = witness.sort(std::move(notes));
    EXPECT_TRUE(early.now.empty());
    EXPECT_EQ(early.later.faults.size(), 2U);
    witness.keep(std::move(early.later));
    EXPECT_EQ(witness.waiting(), 4U);
    witness.learn(1, "", {"n0", "n1"}, 2);
    const NodeWitness::Sorted late = witness.sort({});
    ASSERT_EQ(late.now.faults.size(), 1U);
    EXPECT_EQ(late.now.faults[0].node, "n1");
    ASSERT_EQ(late.now.ended.size(), 1U);
    EXPECT_EQ(late.now.ended[0].node, "n1");
    EXPECT_EQ(late.foreign, 2U);
    EXPECT_TRUE(late.later.empty());
}

TEST(NodeWitness, WhatTheSchedulerEndedIsNoFaultThatWaits) {
    NodeWitness witness;
    witness.keep(noted("n1"));
    NodeNotes over;
    over.absolved = NodesAbsolved{JobId{}, 1, 1};
    const NodeWitness::Sorted sorted = witness.sort(std::move(over));
    EXPECT_TRUE(sorted.now.absolved.has_value());
    EXPECT_TRUE(sorted.later.faults.empty());
}

TEST(NodeWitness, AnExcludedNodeWasOfAnAttemptBefore) {
    NodeWitness witness;
    witness.learn(1, "", {"n0", "n1"}, 2);
    EXPECT_EQ(witness.sort(noted("n1", 2, kNodeExcluded)).now.faults.size(), 1U);
    EXPECT_EQ(witness.sort(noted("n7", 2, kNodeExcluded)).foreign, 1U);
    EXPECT_EQ(witness.sort(noted("n7", 3, kNodeExcluded)).later.faults.size(), 1U)
        << "nothing is known of the second attempt";
}

TEST(NodeWitness, WhatWaitsIsBounded) {
    NodeWitness witness;
    NodeNotes many;
    many.faults.resize(limits::kNodeFaults + 7);
    witness.keep(std::move(many));
    EXPECT_EQ(witness.waiting(), limits::kNodeFaults);
}

class NodeHistory : public ControlTest {
  protected:
    void SetUp() override {
        for (const char* name : {"n0", "n1", "n2"}) {
            ClusterNode node;
            node.name = name;
            scheduler_.machines.nodes.push_back(node);
        }
        scheduler_.seen.nodes = {"n0", "n1"};
        ControlTest::SetUp();
    }
    static wire::GpuXid broken_gpu(std::uint64_t event) {
        wire::GpuXid out;
        out.event = event;
        out.generation = 1;
        out.xid = 79;
        return out;
    }
    Json ask(const std::function<Task<Result<std::string>>()>& what) {
        Json out;
        auto run = [&]() -> Task<void> {
            auto task = what();
            const auto text = co_await std::move(task);
            EXPECT_TRUE(text.has_value()) << text.error().message;
            out = parse_json(text.value_or("{}")).value();
        };
        wait(run());
        return out;
    }
    Json node(const std::string& name) {
        return ask([&] { return control_->node(ada_, name); });
    }
    Json nodes() {
        return ask([&] { return control_->nodes(ada_, NodeQuery{}); })["items"];
    }
};

TEST_F(NodeHistory, ALostNodeIsToldAfterARestart) {
    TestAgent first;
    TestAgent second;
    const std::string id =
        start_job_with(first, second, R"(},"recovery":{"max_attempts":2},"labels":{)");
    EXPECT_EQ(nodes()[0]["jobs"], Json::array({id}));
    EXPECT_FALSE(nodes()[0].contains("history")) << "its first attempt still runs";
    scheduler_.seen.lost_nodes = {1};
    second.session->on_closed();
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP");
    EXPECT_EQ(node("n1")["faults"].size(), 1U) << "at once";
    wire::Exited stopped = exit(1, 0, 143);
    stopped.stopped = true;
    first.say(stopped);
    first.say(wire::Done{2, 1});
    scheduler_.seen_until = 1;
    scheduler_.seen.state = AllocationState::ended;
    first.session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
    shut_down();
    boot();
    const Json all = nodes();
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0]["history"]["faults"], 0);
    EXPECT_EQ(all[0]["history"]["attempts"], 1);
    EXPECT_TRUE(all[0]["history"].contains("healthy_at"));
    EXPECT_EQ(all[1]["history"]["faults_7d"], 1);
    EXPECT_EQ(all[1]["history"]["by_kind"], Json({{"node_lost", 1}}));
    EXPECT_EQ(all[1]["history"]["excluded"], 1);
    EXPECT_FALSE(all[1]["history"].contains("healthy_at"));
    EXPECT_FALSE(all[2].contains("history"));
    const Json one = node("n1");
    ASSERT_EQ(one["faults"].size(), 2U);
    EXPECT_EQ(one["faults"][0]["kind"], "excluded");
    EXPECT_EQ(one["faults"][0]["attempt"], 2);
    EXPECT_EQ(one["faults"][1]["kind"], "node_lost");
    EXPECT_EQ(one["faults"][1]["job"], id);
    EXPECT_EQ(one["faults"][1]["generation"], 1);
    clock_.advance(std::chrono::hours{8 * 24});
    EXPECT_EQ(node("n1")["history"]["faults_7d"], 0);
    EXPECT_EQ(node("n1")["history"]["faults"], 1);
}

TEST_F(NodeHistory, ANodeThatTheSchedulerHasNotGivenIsNotBlamed) {
    scheduler_.seen.nodes = {"n0", "n7"};
    TestAgent first;
    TestAgent liar;  // says that it is n1, which is somebody else's
    const std::string id = start_job_with(first, liar);
    liar.say(broken_gpu(1));
    first.say(broken_gpu(1));
    until([&] { return node("n0")["faults"].size() == 1; }, "n0's own fault");
    const auto looked = scheduler_.polls;
    until([&] { return scheduler_.polls > looked + 1; }, "two looks");
    EXPECT_FALSE(show(id).contains("warnings")) << "the scheduler's word may be older";
    for (int half_minute = 0; half_minute < 4; ++half_minute) {
        clock_.advance(std::chrono::seconds{30});
        first.say(wire::Beat{});
        liar.say(wire::Beat{});
        const auto polls = scheduler_.polls;
        until([&] { return scheduler_.polls > polls + 1; }, "a look, with both heard");
    }
    until([&] { return show(id).contains("warnings"); }, "it says so still");
    scheduler_.seen.lost_nodes = {1};
    liar.session->on_closed();
    until([&] { return first.peer->last<wire::Stop>() != nullptr; }, "STOP");
    EXPECT_TRUE(node("n1")["faults"].empty());
    const Json all = nodes();
    EXPECT_EQ(all[0]["jobs"], Json::array({id}));
    EXPECT_EQ(all[1]["jobs"], Json::array());
    EXPECT_FALSE(all[1].contains("history"));
    const std::string warnings = show(id).value("warnings", Json::array()).dump();
    EXPECT_THAT(warnings, testing::HasSubstr("the agent of node 1 says it is n1"));
}

TEST_F(NodeHistory, WhatAnAgentSaysBeforeTheAllocationIsKnownIsNotLost) {
    scheduler_.seen.nodes.clear();
    TestAgent first;
    TestAgent second;
    const std::string id = start_job_with(first, second);
    second.say(broken_gpu(1));
    until(
        [&] {
            const auto* ack = second.peer->last<wire::Ack>();
            return ack != nullptr && ack->event >= 1;
        },
        "it was heard");
    EXPECT_TRUE(node("n1")["faults"].empty()) << "whose node is that?";
    scheduler_.seen.nodes = {"n0", "n1"};
    const int polls = scheduler_.polls;
    until([&] { return scheduler_.polls > polls + 1; }, "the scheduler tells of the nodes");
    first.say(broken_gpu(1));
    until([&] { return node("n0")["faults"].size() == 1; }, "n0's fault");
    EXPECT_EQ(node("n1")["faults"].size(), 1U);
    EXPECT_EQ(show(id).value("warnings", Json::array()), Json::array());
}

}  // namespace
}  // namespace lockstep
