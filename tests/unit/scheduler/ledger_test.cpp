#include "scheduler-integration/local/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Machine machine() {
    return Machine{4, 10'000, 2};
}

Resources resources(std::int32_t nodes, std::int32_t ranks, std::int64_t memory = 0,
                    std::int32_t gpus = 0) {
    Resources out;
    out.nodes = nodes;
    out.ranks_per_node = ranks;
    out.memory_mb_per_node = memory;
    out.gpus_per_node = gpus;
    return out;
}

TEST(Ledger, RefusesWhatCanNeverRunNamingTheFieldAndWhatThereIs) {
    const Ledger ledger{machine()};
    const auto refusal = [&](const Resources& r) {
        const auto admitted = ledger.admit(r);
        EXPECT_FALSE(admitted);
        EXPECT_EQ(admitted.error().code, Errc::invalid);
        return admitted ? FieldError{} : admitted.error().fields.at(0);
    };
    EXPECT_EQ(
        refusal(resources(1, 1, 10'001)),
        (FieldError{"/resources/memory_mb_per_node", "needs 10001 MiB, there are 10000 MiB"}));
    EXPECT_EQ(refusal(resources(2, 1, 6'000)),
              (FieldError{"/resources/memory_mb_per_node",
                          "needs 12000 MiB on 2 nodes of this one machine, there are 10000 MiB"}));
    EXPECT_EQ(refusal(resources(1, 1, 0, 3)),
              (FieldError{"/resources/gpus_per_node", "needs 3 GPUs, there are 2"}));
    EXPECT_EQ(refusal(resources(65, 1)),
              (FieldError{"/resources/nodes", "this machine runs jobs of at most 64 nodes"}));
    EXPECT_EQ(refusal(resources(2, 600)).pointer, "/resources/ranks_per_node");
    EXPECT_EQ(ledger.admit(resources(65, 600, 9'000, 9)).error().fields.size(), 4U);
}

TEST(Ledger, CoresMayBeSharedWithAWarning) {
    const Ledger ledger{Machine{2, 10'000, 0}};
    EXPECT_THAT(*ledger.admit(resources(2, 1)), IsEmpty());
    EXPECT_THAT(*ledger.admit(resources(1, 4)),
                ElementsAre("4 ranks × 1 CPU on 2 cores: ranks will share cores"));
    EXPECT_EQ(ledger.need(resources(1, 4)).cores, 2) << "the need is capped at the machine";
}

TEST(Ledger, NoGpuIsGivenToTwoJobs) {
    Machine machine{8, 10'000, 3};
    machine.gpu_names = {"GPU-a", "MIG-b", "GPU-c"};
    Ledger ledger{machine};
    ledger.enqueue("one", ledger.need(resources(1, 1, 0, 2)));
    ledger.enqueue("two", ledger.need(resources(1, 1, 0, 1)));
    ledger.enqueue("three", ledger.need(resources(1, 1, 0, 1)));
    ledger.enqueue("none", ledger.need(resources(1, 1)));
    EXPECT_EQ(ledger.take_next(), "one");
    EXPECT_EQ(ledger.take_next(), "two");
    EXPECT_EQ(ledger.take_next(), "");
    EXPECT_THAT(ledger.gpus_of("one"), ElementsAre("GPU-a", "MIG-b"));
    EXPECT_THAT(ledger.gpus_of("two"), ElementsAre("GPU-c"));
    ledger.release("one");
    EXPECT_EQ(ledger.take_next(), "three");
    EXPECT_EQ(ledger.take_next(), "none");
    EXPECT_THAT(ledger.gpus_of("three"), ElementsAre("GPU-a"));
    EXPECT_THAT(ledger.gpus_of("none"), IsEmpty());
    EXPECT_THAT(ledger.gpus_of("one"), IsEmpty());
}

// The daemon that gave them is gone; what runs keeps what it was given.
TEST(Ledger, AnAdoptedJobKeepsItsGpus) {
    Machine machine{8, 10'000, 0};
    machine.gpu_names = {"0", "1", "2"};
    Ledger ledger{machine};
    EXPECT_EQ(ledger.capacity().gpus, 3);
    ledger.occupy("adopted", ledger.need(resources(1, 1, 0, 1)), {"1"});
    ledger.enqueue("new", ledger.need(resources(2, 1, 0, 1)));
    EXPECT_EQ(ledger.take_next(), "new");
    EXPECT_THAT(ledger.gpus_of("new"), ElementsAre("0", "2"));
    ledger.enqueue("late", ledger.need(resources(1, 1, 0, 1)));
    EXPECT_EQ(ledger.take_next(), "");
    EXPECT_EQ(ledger.reason("late"), "waiting for GPUs: needs 1, 0 free");
}

TEST(Ledger, AJobWithoutGpusIsToldThatItSeesNone) {
    const Ledger ledger{Machine{4, 10'000, 2}};
    EXPECT_THAT(*ledger.admit(resources(1, 1)),
                ElementsAre("gpus_per_node is 0: the ranks see none of this machine's 2 GPUs"));
    EXPECT_THAT(*ledger.admit(resources(1, 1, 0, 1)), IsEmpty());
}

TEST(Ledger, JobsWaitTheirTurnWhileCoresAreInUse) {
    Ledger ledger{machine()};
    ledger.enqueue("a", ledger.need(resources(1, 3)));
    ledger.enqueue("b", ledger.need(resources(1, 2)));
    ledger.enqueue("c", ledger.need(resources(1, 1)));
    EXPECT_EQ(ledger.take_next(), "a");
    EXPECT_EQ(ledger.take_next(), "") << "c would fit but does not overtake b";
    EXPECT_EQ(ledger.reason("a"), "");
    EXPECT_EQ(ledger.reason("b"), "waiting for cores: needs 2, 1 free");
    EXPECT_EQ(ledger.reason("c"), "waiting for its turn; 1 job ahead");
    ledger.release("a");
    EXPECT_EQ(ledger.take_next(), "b");
    EXPECT_EQ(ledger.take_next(), "c");
    EXPECT_EQ(ledger.take_next(), "");
}

TEST(Ledger, ALargeJobIsNotStarvedBySmallOnes) {
    Ledger ledger{machine()};
    ledger.enqueue("small-1", ledger.need(resources(1, 1)));
    EXPECT_EQ(ledger.take_next(), "small-1");
    ledger.enqueue("large", ledger.need(resources(1, 100)));
    ledger.enqueue("small-2", ledger.need(resources(1, 1)));
    EXPECT_EQ(ledger.take_next(), "");
    ledger.release("small-1");
    EXPECT_EQ(ledger.take_next(), "large");
}

TEST(Ledger, MemoryAndGpusAreNeverPromisedTwice) {
    Ledger ledger{machine()};
    ledger.enqueue("a", ledger.need(resources(2, 1, 4'000, 1)));
    ledger.enqueue("b", ledger.need(resources(1, 1, 8'000, 1)));
    ledger.enqueue("c", ledger.need(resources(1, 1)));
    EXPECT_EQ(ledger.take_next(), "a");
    EXPECT_EQ(ledger.take_next(), "");
    EXPECT_EQ(ledger.reason("b"),
              "waiting for memory: needs 8000 MiB, 2000 MiB free; for GPUs: needs 1, 0 free");
    ledger.release("b");
    EXPECT_FALSE(ledger.queued("b"));
    EXPECT_EQ(ledger.take_next(), "c");
}

TEST(Ledger, WhatIsAdoptedCountsEvenBeyondTheCapacity) {
    Ledger ledger{machine()};
    ledger.occupy("old", LocalNeed{4, 20'000, 2});
    ledger.enqueue("new", ledger.need(resources(1, 1, 1)));
    EXPECT_EQ(ledger.take_next(), "");
    EXPECT_EQ(ledger.reason("new"),
              "waiting for memory: needs 1 MiB, 0 MiB free; for cores: needs 1, 0 free");
    ledger.release("old");
    ledger.release("unknown");
    EXPECT_EQ(ledger.take_next(), "new");
}

}  // namespace
}  // namespace lockstep
