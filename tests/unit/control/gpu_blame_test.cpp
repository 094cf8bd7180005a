// A GPU that fails while ranks run: whose fault it is, by what agents say in either order.
#include "job/model/gpu_error.hpp"
#include "tests/unit/control/job_machine_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GpuBlameTest : public JobMachineTest {
  protected:
    void SetUp() override { place_gpus(); }
    // Two nodes with a rank and a GPU of the job's on each; the ranks run.
    void place_gpus(const std::string& more = R"(,"gpus_per_node":1)",
                    const std::string& recovered = R"(["rank_failure","node_failure"])") {
        place(R"({"nodes":2)" + more + "}", recovered);
        start();
    }
    void xid(std::int64_t number, std::int32_t rank = 1, std::int32_t node = 1,
             std::int32_t generation = 1) {
        wire::GpuXid said;
        said.generation = generation;
        said.rank = rank;
        said.gpu = 3;
        said.xid = number;
        said.time = at_.wall;
        take(AgentInput{agents_[static_cast<std::size_t>(node)], said});
    }
    void fails(std::int32_t rank, const std::string& failure = "") {
        wire::Exited exited;
        exited.generation = 1;
        exited.rank = rank;
        exited.exit_code = 1;
        exited.failure = failure;
        exited.time = at_.wall;
        exited.log_tail = "CUDA error: unspecified launch failure";
        take(AgentInput{agents_[static_cast<std::size_t>(rank)], exited});
    }
    CauseClass cause() const {
        const auto& first = job().generation()->first_failure;
        return first ? first->kind : CauseClass::none;
    }
    bool is_lost(std::int32_t slot) const { return job().attempt()->lost.contains(slot); }
};

// It was an event and nothing else: the next generation met the same GPU.
TEST_F(GpuBlameTest, TheGpuIsTheCauseAndItsNodeIsLostOfARankThatFailsAfterAnErrorOfIt) {
    xid(48);
    EXPECT_EQ(cause(), CauseClass::none) << "its ranks may go on";
    pass(std::chrono::seconds{50});
    fails(1);
    ASSERT_EQ(cause(), CauseClass::gpu_fault);
    const Cause& first = *job().generation()->first_failure;
    EXPECT_EQ(first.message,
              "GPU 3 of n1 reported XID 48: an uncorrectable error of its memory. Then rank 1 on "
              "n1 exited with code 1");
    EXPECT_EQ(first.node, "n1");
    EXPECT_EQ(first.rank, 1);
    EXPECT_EQ(first.log_tail, "CUDA error: unspecified launch failure");
    EXPECT_TRUE(is_lost(1));
    EXPECT_FALSE(is_lost(0));
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::next_attempt) << "no node is to spare";
    EXPECT_THAT(nodes_to_exclude(job()), ElementsAre("n1"));
}

TEST_F(GpuBlameTest, TheErrorMayBeHeardAfterTheRanksEnd) {
    fails(1);
    EXPECT_EQ(cause(), CauseClass::rank_exit);
    pass(std::chrono::seconds{1});
    xid(74);
    EXPECT_EQ(cause(), CauseClass::gpu_fault);
    EXPECT_TRUE(is_lost(1));
}

TEST_F(GpuBlameTest, WithANodeToSpareTheNextGenerationGoesWithoutIt) {
    place_gpus(R"(,"gpus_per_node":1,"min_nodes":1)");
    xid(95);
    fails(1);
    EXPECT_EQ(cause(), CauseClass::gpu_fault);
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::restart);
    EXPECT_EQ(usable_nodes(job()), 1);
}

TEST_F(GpuBlameTest, APeerThatOnlyLostItsConnectionIsNotTheCause) {
    xid(64);
    fails(0, "echo");
    ASSERT_EQ(cause(), CauseClass::gpu_fault);
    EXPECT_EQ(job().generation()->first_failure->node, "n1");
    EXPECT_TRUE(is_lost(1));
    EXPECT_FALSE(is_lost(0));
}

TEST_F(GpuBlameTest, AnotherNodesOwnFailureIsItsOwn) {
    xid(64);
    fails(0);
    EXPECT_EQ(cause(), CauseClass::rank_exit);
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
}

TEST_F(GpuBlameTest, WhatAProgramDoesWrongAndWhatIsContainedIsNotTheGpusFault) {
    for (const std::int64_t number : {13, 31, 43, 45, 63, 94}) {
        EXPECT_EQ(find_gpu_error(number), nullptr) << number;
        place_gpus();
        xid(number);
        fails(1);
        EXPECT_EQ(cause(), CauseClass::rank_exit) << number;
        EXPECT_THAT(job().attempt()->lost, IsEmpty()) << number;
    }
}

TEST_F(GpuBlameTest, AnErrorOfLongAgoIsNotTheCause) {
    xid(74);
    pass(std::chrono::minutes{2});
    fails(1);
    EXPECT_EQ(cause(), CauseClass::rank_exit);
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
}

TEST_F(GpuBlameTest, AnErrorOfAnotherGenerationIsNotTheCause) {
    xid(48, 1, 1, 0);
    fails(1);
    EXPECT_EQ(cause(), CauseClass::rank_exit);
}

TEST_F(GpuBlameTest, AGpuThatIsNotTheJobsIsNotTheCause) {
    place_gpus("");  // it asks for none
    xid(79);
    fails(1);
    EXPECT_EQ(cause(), CauseClass::rank_exit);
    // No rank was on it, and nobody knows that the node has no other.
    place_gpus();
    xid(79, -1);
    EXPECT_EQ(cause(), CauseClass::none);
    fails(1);
    EXPECT_EQ(cause(), CauseClass::rank_exit);
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
    // Its agent says that it was another node's rank.
    place_gpus();
    xid(48, 0);
    fails(1);
    EXPECT_EQ(cause(), CauseClass::rank_exit);
}

TEST_F(GpuBlameTest, WhereTheJobHasAllGpusOfTheNodeNoRankNeedBeNamed) {
    place(R"({"nodes":2,"gpus_per_node":8,"ranks_per_node":1})");
    agents_ = {hello(0), hello(1)};
    for (const AgentPtr& one : agents_) {
        wire::Join join = JobMachineTest::join();
        join.gpus = 8;
        take(AgentInput{one, join});
    }
    run_ranks();
    xid(48, -1);
    fails(1);
    EXPECT_EQ(cause(), CauseClass::gpu_fault);
    EXPECT_EQ(job().generation()->first_failure->rank, 1);
}

// Its ranks may wait in the driver for ever.
TEST_F(GpuBlameTest, AGpuThatIsGoneEndsTheGenerationAtOnceIfThatIsRecoveredFrom) {
    xid(79);
    ASSERT_EQ(cause(), CauseClass::gpu_fault);
    EXPECT_EQ(job().generation()->first_failure->message,
              "GPU 3 of n1 reported XID 79: it has fallen off the bus");
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::next_attempt);
    place_gpus(R"(,"gpus_per_node":1)", R"(["rank_failure"])");
    xid(79);
    EXPECT_EQ(cause(), CauseClass::none);
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
    pass(std::chrono::minutes{30});  // NCCL's patience
    fails(1);
    EXPECT_EQ(job().generation()->first_failure->message,
              "GPU 3 of n1 reported XID 79: it has fallen off the bus. Then rank 1 on n1 exited "
              "with code 1");
}

// It failed at once, as if a node of it were lost; before, its ranks were started again.
TEST_F(GpuBlameTest, AJobThatRecoversFromRanksOnlyIsRestartedAndLosesNoNode) {
    place_gpus(R"(,"gpus_per_node":1)", R"(["rank_failure"])");
    xid(48);
    fails(1);
    ASSERT_EQ(cause(), CauseClass::rank_exit);
    EXPECT_EQ(job().generation()->first_failure->message,
              "GPU 3 of n1 reported XID 48: an uncorrectable error of its memory. Then rank 1 on "
              "n1 exited with code 1");
    EXPECT_EQ(job().generation()->first_failure->log_tail,
              "CUDA error: unspecified launch failure");
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::restart);
}

TEST_F(GpuBlameTest, WithoutAnotherNodeOrAttemptTheRanksAreRestartedWhereTheyAre) {
    for (const bool heard_first : {true, false}) {
        place_gpus(R"(,"gpus_per_node":1)", R"(["rank_failure","node_failure"],"max_attempts":1)");
        if (heard_first) {
            xid(48);
        }
        fails(1);
        if (!heard_first) {
            xid(48);
        }
        ASSERT_EQ(cause(), CauseClass::rank_exit) << heard_first;
        EXPECT_TRUE(job().generation()->first_failure->message.starts_with("GPU 3 of n1 "));
        EXPECT_THAT(job().attempt()->lost, IsEmpty()) << heard_first;
        EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::restart) << heard_first;
    }
}

// Nothing has failed yet that could be restarted.
TEST_F(GpuBlameTest, WithoutAnotherNodeOrAttemptAGpuThatIsGoneEndsNothingByItself) {
    place_gpus(R"(,"gpus_per_node":1)", R"(["rank_failure","node_failure"],"max_attempts":1)");
    xid(79);
    EXPECT_EQ(cause(), CauseClass::none);
    EXPECT_THAT(job().attempt()->lost, IsEmpty());
    fails(1);
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::restart);
}

TEST_F(GpuBlameTest, AJobThatEndsInAnyCaseHasTheGpuAsItsCauseAndItsOtherRanksTheirGrace) {
    place_gpus(R"(,"gpus_per_node":1)", R"(["hang"])");
    xid(48);
    fails(1);
    EXPECT_EQ(cause(), CauseClass::gpu_fault);
    EXPECT_EQ(job().generation()->first_failure->node, "n1");
    EXPECT_THAT(job().attempt()->lost, IsEmpty()) << "its agent is not sent away";
    EXPECT_EQ(machine_->what_is_due(at_).kind, ActionKind::stop);
}

// Each of a large job's ranks that lose their peer would be an event of its own.
TEST_F(GpuBlameTest, AGpuThatIsOnlyNamedIsNamedOnce) {
    place_gpus(R"(,"gpus_per_node":1)", R"(["rank_failure"])");
    xid(48);
    fails(1);
    fails(0, "echo");
    EXPECT_EQ(job().generation()->faults, 1);
}

// Both are told at nearly one moment, and the rank says when it failed.
TEST_F(GpuBlameTest, ARankThatSaysThatItFailedBeforeItsGpuWasHeardIsNotTheCause) {
    xid(79);
    Draft draft = machine_->draft(at_);
    event::RankExited exited;
    exited.attempt = exited.generation = 1;
    exited.rank = 1;
    exited.node = "n1";
    exited.exit_code = 1;
    exited.at = exited.failed_at = at_.wall - 1000;
    ASSERT_TRUE(draft.add(exited));
    machine_->stored(draft, at_);
    EXPECT_EQ(cause(), CauseClass::gpu_fault);
}

}  // namespace
}  // namespace lockstep
