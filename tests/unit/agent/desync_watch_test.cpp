// Which rank is named from NCCL's counts, and which never is.
#include "job/agent/nccl/desync_watch.hpp"

#include "tests/support/ras_words.hpp"
#include "tests/support/sanitized.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

namespace lockstep {
namespace {

using test::ras_words;
using test::RasGroup;
using test::RasMember;
using testing::HasSubstr;
using testing::SizeIs;
using Seconds = std::chrono::seconds;
constexpr std::size_t kAllReduce = 4;
constexpr std::size_t kBroadcast = 0;

// Rank r has pid 100 + r on one node.
RasMember member(int rank, std::uint64_t all_reduces, int of_job = -1) {
    RasMember out;
    out.rank = rank;
    out.pid = 100 + (of_job < 0 ? rank : of_job);
    out.launched[kAllReduce] = all_reduces;
    return out;
}
RasGroup group(const std::vector<std::uint64_t>& all_reduces, std::uint64_t hash = 0xabc) {
    RasGroup out;
    out.hash = hash;
    for (std::size_t i = 0; i < all_reduces.size(); ++i) {
        out.members.push_back(member(static_cast<int>(i), all_reduces[i]));
    }
    return out;
}

class DesyncWatchTest : public testing::Test {
  protected:
    // The next look, two seconds after the one before.
    DesyncWatch::Seen look(const std::vector<RasGroup>& groups) {
        now_ += Seconds{2};
        const auto status = parse_ras_status(ras_words(groups));
        EXPECT_TRUE(status) << status.error().message;
        return status ? watch_->take(*status, now_) : DesyncWatch::Seen{};
    }
    // So many looks at the same; the rank that is named by then, -1: none.
    std::int32_t named_after(int looks, const std::vector<RasGroup>& groups) {
        std::int32_t out = -1;
        for (int i = 0; i < looks; ++i) {
            const auto seen = look(groups);
            out = seen.waited_for ? seen.waited_for->rank : -1;
            message_ = seen.waited_for ? seen.waited_for->message : "";
        }
        return out;
    }
    void world(std::int32_t size, std::int32_t here) {
        watch_.emplace(DesyncWatch::Job{size, 0, here}, [here](std::int64_t pid) {
            const auto rank = static_cast<std::int32_t>(pid - 100);
            return rank >= 0 && rank < here ? std::optional{rank} : std::nullopt;
        });
    }
    void SetUp() override { world(4, 4); }

    std::optional<DesyncWatch> watch_;
    DesyncWatch::TimePoint now_{};
    std::string message_;
};

TEST_F(DesyncWatchTest, TheRankThatSkippedAnOperationIsNamedWithinTenSeconds) {
    EXPECT_EQ(named_after(1, {group({7, 7, 7, 7})}), -1);
    // It happens right after a look: two more until it is seen to stand still, then four seconds.
    EXPECT_EQ(named_after(2, {group({9, 9, 8, 9})}), -1);
    EXPECT_EQ(named_after(1, {group({9, 9, 8, 9})}), 2);
    EXPECT_EQ(message_,
              "rank 2 has not launched AllReduce 9 of NCCL's communicator 0xabc, where "
              "3 ranks wait for it");
    // For as long as it lasts, and not after.
    EXPECT_EQ(named_after(5, {group({9, 9, 8, 9})}), 2);
    EXPECT_EQ(named_after(1, {group({9, 9, 9, 9})}), -1);
}

// Of a slow rank that comes in the end: the others leave the communicator with it before the next
// look.
TEST_F(DesyncWatchTest, ItIsForgottenWhenItsRanksGoOnInAnotherCommunicator) {
    const auto second = [](std::uint64_t count) { return group({count, count, count, count}, 9); };
    EXPECT_EQ(named_after(4, {group({5, 6, 6, 6}), second(20)}), 0);
    EXPECT_EQ(named_after(3, {second(20)}), 0) << "ended with the job, for all that is known";
    EXPECT_EQ(named_after(1, {second(21)}), -1);
    EXPECT_EQ(named_after(4, {second(21)}), -1);
}

// NCCL's RAS has given a process up that was stopped for a minute, and never asks it again.
TEST_F(DesyncWatchTest, ItIsForgottenWhenTheOthersGoOnThoughItIsNotHeardOfAgain) {
    const auto without = [](std::uint64_t count) {
        RasGroup out = group({count, count, count, 10});
        out.members[3].missing = out.members[3].unresponsive = out.members[3].dead = true;
        return out;
    };
    EXPECT_EQ(named_after(1, {group({10, 10, 10, 10})}), -1);
    EXPECT_EQ(named_after(4, {without(11)}), 3);
    EXPECT_EQ(named_after(1, {without(30)}), -1) << "without it none goes on";
    // And its last count is none to go by: rank 1 is behind.
    RasGroup later = without(500);
    later.members[1].launched[kAllReduce] = 499;
    EXPECT_EQ(named_after(6, {later}), -1);
}

// Hundreds of operations between two looks: its last count is far behind when it stops.
TEST_F(DesyncWatchTest, AStoppedRankOfAFastJobIsNamedToo) {
    const auto without = [](std::uint64_t count) {
        RasGroup out = group({count, count, count, 1'000});
        out.members[3].missing = out.members[3].unresponsive = true;
        return out;
    };
    EXPECT_EQ(named_after(1, {group({500, 500, 500, 500})}), -1);
    EXPECT_EQ(named_after(1, {group({1'000, 1'000, 1'000, 1'000})}), -1);
    const auto first = look({without(1'331)});
    EXPECT_FALSE(first.waited_for);
    EXPECT_EQ(named_after(1, {without(1'331)}), -1) << "for two seconds it may be slow";
    const auto seen = look({without(1'331)});
    ASSERT_TRUE(seen.waited_for);
    EXPECT_EQ(seen.waited_for->rank, 3);
    EXPECT_EQ(seen.waited_for->message,
              "rank 3 does not answer NCCL's RAS, and 3 ranks wait for it in AllReduce 1331 of "
              "NCCL's communicator 0xabc");
}

// RAS has lost it, NCCL has not: the others went on for long after.
TEST_F(DesyncWatchTest, ASilentRankWithWhichTheOthersGoOnIsNotNamedWhenTheyRest) {
    const auto without = [](std::uint64_t count) {
        RasGroup out = group({count, count, count, 1'000});
        out.members[3].missing = out.members[3].unresponsive = true;
        return out;
    };
    EXPECT_EQ(named_after(1, {group({1'000, 1'000, 1'000, 1'000})}), -1);
    EXPECT_EQ(named_after(1, {without(1'331)}), -1);
    EXPECT_EQ(named_after(1, {without(1'700)}), -1);
    EXPECT_EQ(named_after(6, {without(1'700)}), -1) << "they may all evaluate";
}

TEST_F(DesyncWatchTest, OfSeveralSilentOnesItMayBeRasThatIsCutOff) {
    RasGroup out = group({11, 10, 10, 11});
    EXPECT_EQ(named_after(1, {group({10, 10, 10, 10})}), -1);
    for (const std::size_t silent : {2U, 3U}) {
        out.members[silent].missing = out.members[silent].unresponsive = true;
    }
    EXPECT_EQ(named_after(6, {out}), -1);
}

TEST_F(DesyncWatchTest, WhatAnAnswerLeavesOutIsNotCountedAgain) {
    std::int64_t launched = 0;
    const auto count = [&](const std::vector<RasGroup>& groups) {
        for (int i = 0; i < 6; ++i) {  // counts are told every ten seconds
            for (const auto& row : look(groups).rows) {
                launched += row.rank == 1 ? row.launched : 0;
            }
        }
    };
    count({group({5, 5, 5, 5}), group({2, 2, 2, 2}, 9)});
    look({group({5, 5, 5, 5})});
    count({group({6, 6, 6, 6}), group({3, 3, 3, 3}, 9)});
    EXPECT_EQ(launched, 9);
}

// 4,000 ranks between two steps, every two seconds, on the agent's only thread.
TEST_F(DesyncWatchTest, AHealthyJobsLookIsOnePassOverItsRanks) {
    world(4'000, 1);
    const std::vector<RasGroup> all{group(std::vector<std::uint64_t>(4'000, 7))};
    const auto status = parse_ras_status(ras_words(all));
    ASSERT_TRUE(status);
    const std::clock_t began = std::clock();  // the processor's time: others may need it too
    watch_->take(*status, DesyncWatch::TimePoint{Seconds{2}});
    // Tens of milliseconds, with a sanitizer hundreds; to compare all with all took seconds.
    EXPECT_LT(std::clock() - began, (test::kSanitized ? 10 : 1) * CLOCKS_PER_SEC);
}

TEST_F(DesyncWatchTest, ARankWhoseCountMovesIsSlowAndNotNamed) {
    for (std::uint64_t step = 1; step < 20; ++step) {
        EXPECT_EQ(named_after(1, {group({step + 1, step, step + 1, step + 1})}), -1);
    }
}

TEST_F(DesyncWatchTest, HowLongItsRanksWaitAndGoOnIsLearned) {
    // A checkpoint of rank 0 takes seven seconds: told, and known from then on.
    EXPECT_EQ(named_after(1, {group({5, 5, 5, 5})}), -1);
    EXPECT_EQ(named_after(4, {group({5, 6, 6, 6})}), 0);
    EXPECT_EQ(named_after(1, {group({9, 9, 9, 9})}), -1);
    EXPECT_EQ(named_after(8, {group({9, 10, 10, 10})}), -1);
    EXPECT_EQ(named_after(2, {group({9, 10, 10, 10})}), 0);
}

TEST_F(DesyncWatchTest, OfSeveralThatAreBehindNobodyKnowsWhichHoldsUpTheOther) {
    EXPECT_EQ(named_after(9, {group({9, 8, 8, 9})}), -1);
}

TEST_F(DesyncWatchTest, TheFewestCountHoweverFarTheOthersRanAhead) {
    // Those that never look at a loss launch on until their queue is full.
    EXPECT_EQ(named_after(4, {group({7, 20, 5, 20})}), 2);
}

TEST_F(DesyncWatchTest, WhoWaitsInAnotherCommunicatorIsInnocent) {
    // 0 and 1 share a model, 0 and 2 data, 1 and 3 data: 1 is missed by 3 because it waits for 0.
    const auto pair = [](std::uint64_t hash, RasMember a, RasMember b) {
        a.rank = 0;
        b.rank = 1;
        RasGroup out;
        out.hash = hash;
        out.members = {a, b};
        return out;
    };
    const std::vector<RasGroup> stuck{
        group({1, 1, 1, 1}), pair(1, member(0, 40, 0), member(1, 41, 1)),
        pair(2, member(0, 9, 1), member(1, 10, 3)), pair(3, member(0, 9, 0), member(1, 10, 2))};
    EXPECT_EQ(named_after(4, stuck), 0);
}

TEST_F(DesyncWatchTest, WhoMayWaitWhereNothingIsCountedIsNotNamed) {
    // Pipeline stages talk by ncclSend and ncclRecv in a communicator of their own.
    RasGroup stages;
    stages.hash = 7;
    stages.members = {member(0, 0, 2), member(1, 0, 3)};
    EXPECT_EQ(named_after(9, {group({9, 9, 8, 9}), stages}), -1);
}

TEST_F(DesyncWatchTest, WhileOneIsMadeOrLeftNobodyIsNamed) {
    RasGroup made = group({0, 0, 0, 0}, 8);
    made.members[1].init_state = 7;
    EXPECT_EQ(named_after(9, {group({9, 9, 8, 9}), made}), -1);
    RasGroup left = group({9, 9, 8, 9});
    left.members[0].finalize_called = true;
    EXPECT_EQ(named_after(9, {left}), -1);
    RasGroup broken = group({9, 9, 8, 9});
    broken.members[0].async_error = 6;
    EXPECT_EQ(named_after(9, {broken}), -1);
    RasGroup partial = group({9, 9, 8});
    partial.size = 4;
    EXPECT_EQ(named_after(9, {partial}), -1);
}

TEST_F(DesyncWatchTest, TheOneThatDidSomethingElseIsNamed) {
    RasGroup all = group({9, 9, 8, 9});
    all.members[2].launched[kBroadcast] = 1;
    EXPECT_EQ(named_after(4, {all}), 2);
    EXPECT_THAT(message_, HasSubstr("rank 2 has launched something else than AllReduce 9"));
    // Two against two: nobody.
    all.members[1] = all.members[2];
    all.members[1].rank = 1;
    all.members[1].pid = 101;
    world(4, 4);
    EXPECT_EQ(named_after(9, {all}), -1);
}

TEST_F(DesyncWatchTest, AProcessThatDoesNotAnswerIsNamedOnceTheOthersWait) {
    RasGroup all = group({9, 9, 9, 9});
    EXPECT_EQ(named_after(1, {all}), -1);
    all.members[3].missing = true;
    all.members[3].unresponsive = true;
    EXPECT_EQ(named_after(5, {all}), -1) << "the others may be computing";
    for (int rank = 0; rank < 3; ++rank) {
        all.members[static_cast<std::size_t>(rank)].launched[kAllReduce] = 10;
    }
    EXPECT_EQ(named_after(4, {all}), 3);
    EXPECT_EQ(message_,
              "rank 3 does not answer NCCL's RAS, and 3 ranks wait for it in AllReduce 10 "
              "of NCCL's communicator 0xabc");
    // One that answers and is no member any more has left, and may have good reason.
    world(4, 4);
    all.members[3].unresponsive = false;
    EXPECT_EQ(named_after(9, {all}), -1);
}

TEST_F(DesyncWatchTest, OfTwoRanksTheOneThatIsWaitedForIsNamed) {
    world(2, 2);
    EXPECT_EQ(named_after(4, {group({3, 4})}), 0);
    EXPECT_THAT(message_, HasSubstr("where 1 rank waits for it"));
}

TEST_F(DesyncWatchTest, RanksOfOtherNodesAreKnownByACommunicatorOfAll) {
    world(4, 2);
    RasGroup all = group({1, 1, 1, 1});
    RasGroup data = group({5, 6}, 9);
    data.members[0] = member(0, 5, 3);
    data.members[1] = member(1, 6, 2);
    for (RasGroup* one : {&all, &data}) {
        for (RasMember& rank : one->members) {
            rank.host = rank.pid >= 102 ? "10.0.0.2" : "10.0.0.1";
        }
    }
    EXPECT_EQ(named_after(4, {all, data}), 3);
    world(4, 2);
    EXPECT_EQ(named_after(9, {data}), -1) << "nobody knows who they are";
    // Of three ranks: its third one need not be the job's.
    RasGroup three = group({6, 6, 5}, 10);
    three.members[2] = member(2, 5, 3);
    world(4, 2);
    EXPECT_EQ(named_after(9, {three}), -1);
    // Its numbers are not the job's.
    std::swap(all.members[0].pid, all.members[1].pid);
    world(4, 2);
    EXPECT_EQ(named_after(9, {all, data}), -1);
}

TEST_F(DesyncWatchTest, LaunchesAreTheSumOfAllCommunicatorsAndLagOnlyOfThoseThatStandStill) {
    const auto row = [](const DesyncWatch::Seen& seen, std::int32_t rank) {
        for (const auto& one : seen.rows) {
            if (one.rank == rank) {
                return one;
            }
        }
        return DesyncWatch::Row{-1, -1, -1};
    };
    const auto first = look({group({7, 7, 7, 7}), group({2, 2, 2, 2}, 5)});
    EXPECT_THAT(first.rows, SizeIs(4));
    EXPECT_EQ(row(first, 1).launched, 9);
    EXPECT_THAT(look({group({9, 9, 8, 9}), group({2, 2, 2, 2}, 5)}).rows, SizeIs(0));
    const auto still = look({group({9, 9, 8, 9}), group({2, 2, 2, 2}, 5)});
    ASSERT_THAT(still.rows, SizeIs(1));
    EXPECT_EQ(row(still, 2).launched, 1);
    EXPECT_EQ(row(still, 2).lag, 1);
    const auto later = look({group({12, 12, 12, 12}), group({2, 2, 2, 2}, 5)});
    ASSERT_THAT(later.rows, SizeIs(1)) << "the others not before ten seconds are over";
    EXPECT_EQ(row(later, 2).lag, 0);
    look({group({12, 12, 12, 12})});
    const auto due = look({group({13, 13, 13, 13})});
    EXPECT_EQ(row(due, 0).launched, 6) << "none twice, and none lost with a communicator";
}

TEST(RasStatusTest, EveryVersionsWordsAreUnderstood) {
    for (const char* version : {"2.28.7", "2.29.2", "2.30.7", "2.32.6"}) {
        RasGroup one = group({3, 4});
        one.members.push_back(member(2, 0));
        one.members[2].missing = true;
        one.members[2].unresponsive = true;
        one.members[2].dead = true;
        one.members[2].host = "unknown";
        one.members[2].pid = -1;
        const auto status = parse_ras_status(ras_words({one}, version));
        ASSERT_TRUE(status) << status.error().message;
        EXPECT_EQ(status->version, version);
        ASSERT_THAT(status->communicators, SizeIs(1));
        const RasCommunicator& all = status->communicators[0];
        EXPECT_EQ(all.name, "0xabc");
        EXPECT_EQ(all.size, 3);
        ASSERT_THAT(all.ranks, SizeIs(2));
        EXPECT_EQ(all.ranks[1].launched.at("AllReduce"), 4);
        EXPECT_EQ(all.ranks[1].total(), 4);
        ASSERT_THAT(all.missing, SizeIs(1));
        EXPECT_TRUE(all.missing[0].unresponsive && all.missing[0].dead);
    }
    const auto none = parse_ras_status(ras_words({}));
    ASSERT_TRUE(none);
    EXPECT_THAT(none->communicators, SizeIs(0));
}

TEST(RasStatusTest, WhatIsNotAsItIsKnownIsRefusedAndNotGuessed) {
    const std::string good = ras_words({group({3, 4})});
    const auto with = [&good](const std::string& from, const std::string& to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        return parse_ras_status(text);
    };
    EXPECT_FALSE(with("\"size\": 2", "\"size\": -2"));
    EXPECT_FALSE(with("\"size\": 2", "\"size\": 1"));  // a rank beyond it
    EXPECT_FALSE(with("\"rank\": 1", "\"rank\": 0"));
    EXPECT_FALSE(with("\"AllReduce\": 3", "\"AllReduce\": -3"));
    EXPECT_FALSE(with("\"AllReduce\": 3", "\"AllReduce\": 18446744073709551615"));
    EXPECT_FALSE(with("\"AllReduce\": 3", "\"AllReduce\": \"3\""));
    EXPECT_FALSE(with("\"ranks\": [", "\"ranks\": 7, \"other\": ["));
    EXPECT_FALSE(with("\"init_state\": 0", "\"init_state\": null"));
    EXPECT_FALSE(parse_ras_status(good.substr(0, good.size() / 2)));
    EXPECT_FALSE(parse_ras_status("[]"));
    EXPECT_FALSE(parse_ras_status(std::string(100'000, '[')));
    EXPECT_FALSE(parse_ras_status(""));
    // A later version may say more.
    EXPECT_TRUE(with("\"cuda_dev\": 0", "\"progress\": {\"a\": [1]}, \"cuda_dev\": 0"));
}

}  // namespace
}  // namespace lockstep
