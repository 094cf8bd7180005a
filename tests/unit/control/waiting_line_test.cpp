#include "daemon/control/jobs/waiting_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

WaitingLine::Entry job(const std::string& id, std::set<std::string> after = {},
                       const std::string& sweep = "", std::int32_t parallel = 0) {
    return {id, std::move(after), sweep, parallel};
}

TEST(WaitingLine, GivesOutInTheOrderTheyCame) {
    WaitingLine line;
    EXPECT_EQ(line.add(job("a")), "");
    EXPECT_EQ(line.add(job("b")), "");
    EXPECT_EQ(line.take_next(), "a");
    EXPECT_EQ(line.take_next(), "b");
    EXPECT_EQ(line.take_next(), "");
}

WaitingLine::Entry of(const std::string& user, const std::string& id) {
    WaitingLine::Entry out = job(id);
    out.user = user;
    return out;
}

TEST(WaitingLine, UsersTakeTurns) {
    WaitingLine line;
    for (const char* id : {"a1", "a2", "a3"}) {
        line.add(of("ada", id));
    }
    EXPECT_EQ(line.ahead_of("ada"), 3U);
    EXPECT_EQ(line.ahead_of("bob"), 1U) << "one of the three, whoever has waited longer";
    line.add(of("bob", "b1"));
    EXPECT_EQ(line.ahead_of("ada"), 4U);
    EXPECT_EQ(line.ahead_of("bob"), 3U) << "b1, and two of ada's";
    for (const char* next : {"a1", "b1", "a2", "a3", ""}) {
        EXPECT_EQ(line.take_next(), next);
    }
    EXPECT_TRUE(line.empty());
    EXPECT_EQ(line.size(), 0U);
}

TEST(WaitingLine, WhoMayNotGoIsPassedAndKeepsTheirPlace) {
    WaitingLine line;
    line.add(of("ada", "a1"));
    line.add(of("ada", "a2"));
    line.add(of("bob", "b1"));
    const auto not_ada = [](const std::string& user) { return user != "ada"; };
    EXPECT_EQ(line.take_next(not_ada), "b1");
    EXPECT_EQ(line.take_next(not_ada), "");
    EXPECT_FALSE(line.empty());
    EXPECT_THAT(line.finished("a1", false).ready, IsEmpty());
    EXPECT_EQ(line.take_next(), "a2");
    EXPECT_EQ(line.size(), 0U);
}

TEST(WaitingLine, WhatASweepLetsInTakesItsUsersTurn) {
    WaitingLine line;
    for (const char* id : {"s1", "s2"}) {
        WaitingLine::Entry entry = job(id, {}, "s1", 1);
        entry.user = "ada";
        line.add(entry);
    }
    EXPECT_EQ(line.take_next(), "s1");
    EXPECT_THAT(line.finished("s1", true).ready, ElementsAre("s2"));
    EXPECT_EQ(line.take_next([](const std::string& user) { return user == "ada"; }), "s2");
}

TEST(WaitingLine, AJobWaitsForAllOfThoseItIsToRunAfter) {
    WaitingLine line;
    EXPECT_EQ(line.add(job("c", {"a", "b"})), "waits for a to succeed, and 1 more");
    EXPECT_TRUE(line.empty());
    EXPECT_EQ(line.size(), 1U);
    EXPECT_THAT(line.finished("a", true).waiting, ElementsAre(Pair("c", "waits for b to succeed")));
    EXPECT_THAT(line.finished("b", true).ready, ElementsAre("c"));
    EXPECT_EQ(line.take_next(), "c");
}

TEST(WaitingLine, WhenOneDoesNotSucceedItsFollowersFailAndTheirsWithThem) {
    WaitingLine line;
    line.add(job("b", {"a"}));
    line.add(job("c", {"b"}));
    EXPECT_THAT(line.finished("a", false).failed, ElementsAre("b"));
    EXPECT_THAT(line.finished("b", false).failed, ElementsAre("c"));
    EXPECT_THAT(line.finished("c", false).failed, IsEmpty());
    EXPECT_EQ(line.size(), 0U);
    EXPECT_TRUE(line.empty());
}

TEST(WaitingLine, OneThatIsCancelledWhileItWaitsHoldsNothingUp) {
    WaitingLine line;
    line.add(job("b", {"a"}));
    EXPECT_THAT(line.finished("b", false).failed, IsEmpty());
    const auto settled = line.finished("a", true);
    EXPECT_THAT(settled.ready, IsEmpty());
    EXPECT_EQ(line.take_next(), "");
}

TEST(WaitingLine, NoMoreOfASweepThanItAllowsAndOthersPassIt) {
    WaitingLine line;
    EXPECT_EQ(line.add(job("s1", {}, "s1", 2)), "");
    EXPECT_EQ(line.add(job("s2", {}, "s1", 2)), "");
    EXPECT_THAT(line.add(job("s3", {}, "s1", 2)), HasSubstr("2 of it may run at once"));
    EXPECT_EQ(line.add(job("x")), "");
    EXPECT_EQ(line.take_next(), "s1");
    EXPECT_EQ(line.take_next(), "s2");
    EXPECT_EQ(line.take_next(), "x");
    EXPECT_EQ(line.take_next(), "");
    EXPECT_THAT(line.finished("s2", false).ready, ElementsAre("s3"));
    EXPECT_EQ(line.take_next(), "s3");
}

TEST(WaitingLine, WhatAnEarlierDaemonStartedCountsForItsSweep) {
    WaitingLine line;
    line.occupy(job("s1", {}, "s1", 1));
    EXPECT_NE(line.add(job("s2", {}, "s1", 1)), "");
    EXPECT_THAT(line.finished("s1", true).ready, ElementsAre("s2"));
}

TEST(WaitingLine, ASweepAfterAJobComesInOneByOneWhenItIsOver) {
    WaitingLine line;
    line.add(job("s1", {"a"}, "s1", 1));
    line.add(job("s2", {"a"}, "s1", 1));
    const auto settled = line.finished("a", true);
    EXPECT_THAT(settled.ready, ElementsAre("s1"));
    EXPECT_THAT(settled.waiting, ElementsAre(Pair("s2", HasSubstr("its sweep"))));
    EXPECT_EQ(line.take_next(), "s1");
    EXPECT_THAT(line.finished("s1", true).ready, ElementsAre("s2"));
}

// Whatever ends in whatever order: each job comes out once, after what it waits for, and never more
// of a sweep than allowed.
TEST(WaitingLine, NothingIsLostWhateverEndsFirst) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        std::mt19937 random{seed};
        WaitingLine line;
        std::map<std::string, WaitingLine::Entry> all;
        std::set<std::string> running, over, failed, out;
        for (int i = 0; i < 40; ++i) {
            WaitingLine::Entry entry = job("j" + std::to_string(100 + i));
            for (const auto& [other, ignored] : all) {
                if (random() % 12 == 0) {
                    entry.after.insert(other);
                }
            }
            if (random() % 2 == 0) {
                entry.sweep = "w" + std::to_string(random() % 3);
                entry.max_parallel = 2;
            }
            all[entry.id] = entry;
            line.add(entry);
        }
        const auto end = [&](const std::string& id, bool good) {
            std::vector<std::pair<std::string, bool>> ends{{id, good}};
            while (!ends.empty()) {
                const auto [one, succeeded] = ends.back();
                ends.pop_back();
                running.erase(one);
                if (!over.insert(one).second) {
                    continue;
                }
                if (!succeeded) {
                    failed.insert(one);
                }
                for (const std::string& next : line.finished(one, succeeded).failed) {
                    ends.emplace_back(next, false);
                }
            }
        };
        while (over.size() < all.size()) {
            while (!line.empty()) {
                const std::string id = line.take_next();
                ASSERT_TRUE(out.insert(id).second) << seed;
                running.insert(id);
                std::map<std::string, int> of_sweep;
                for (const std::string& one : running) {
                    ASSERT_LE(++of_sweep[all[one].sweep], all[one].sweep.empty() ? 40 : 2) << seed;
                }
                for (const std::string& before : all[id].after) {
                    ASSERT_TRUE(over.contains(before) && !failed.contains(before)) << seed;
                }
            }
            ASSERT_FALSE(running.empty()) << seed << ": " << over.size();
            auto which = running.begin();
            std::advance(which, random() % running.size());
            end(*which, random() % 5 != 0);
        }
        EXPECT_EQ(line.size(), 0U) << seed;
    }
}

}  // namespace
}  // namespace lockstep
