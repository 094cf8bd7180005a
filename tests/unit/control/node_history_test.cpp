// What is remembered of nodes: which event blames whom, and what the API tells of it.
#include "daemon/control/node_notes.hpp"
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
    failed.message = std::string{kPreflightWords} + "n0: 3 files; expected 65536";
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

class NodeHistory : public ControlTest {
  protected:
    void SetUp() override {
        for (const char* name : {"n0", "n1", "n2"}) {
            ClusterNode node;
            node.name = name;
            scheduler_.machines.nodes.push_back(node);
        }
        ControlTest::SetUp();
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
    scheduler_.seen.state = AllocationState::ended;
    first.session->on_closed();
    until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
    scheduler_.seen = {Observation::Kind::state, AllocationState::running, "", {}, {}, ""};
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

}  // namespace
}  // namespace lockstep
