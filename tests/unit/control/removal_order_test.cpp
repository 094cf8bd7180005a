// Whose jobs go first where they take too much together.
#include "daemon/control/jobs/removal_order.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

class RemovalOrderTest : public testing::Test {
  protected:
    // One after another, each ending a millisecond later.
    void add(const std::string& job, const std::string& user, std::int64_t bytes,
             bool may_go = true) {
        order_.add({JobId{job}, user, ++now_, bytes}, may_go);
    }
    // What goes until so much is left; "!" = there is more, and none of it may go.
    std::vector<std::string> until(std::int64_t left) {
        std::vector<std::string> out;
        while (order_.bytes() > left) {
            const auto next = order_.next();
            if (!next) {
                out.emplace_back("!");
                break;
            }
            order_.gone(*next);
            out.push_back(next->job.value);
        }
        return out;
    }
    using Jobs = std::vector<std::string>;

    RemovalOrder order_;
    UnixMillis now_ = 0;
};

TEST_F(RemovalOrderTest, TheJobsOfWhoHasMostGoTheOldestFirst) {
    add("bob-1", "bob", 10);
    add("ada-1", "ada", 50);
    add("ada-2", "ada", 60);
    add("ada-3", "ada", 70);
    EXPECT_EQ(until(100), (Jobs{"ada-1", "ada-2"}));
    EXPECT_EQ(order_.bytes(), 80);
}

TEST_F(RemovalOrderTest, OnceAnotherHasMoreItIsTheirTurn) {
    add("ada-1", "ada", 30);
    add("ada-2", "ada", 30);
    add("bob-1", "bob", 20);
    add("bob-2", "bob", 25);
    EXPECT_EQ(until(0), (Jobs{"ada-1", "bob-1", "ada-2", "bob-2"}));
}

TEST_F(RemovalOrderTest, WhoHaveTheSameLoseTheOldest) {
    add("bob-1", "bob", 10);
    add("ada-1", "ada", 10);
    EXPECT_EQ(until(10), Jobs{"bob-1"});
}

TEST_F(RemovalOrderTest, WhatMayNotGoCountsAndStays) {
    add("bob-1", "bob", 10);
    add("ada-1", "ada", 20);
    add("ada-2", "ada", 100, false);
    EXPECT_EQ(until(100), (Jobs{"ada-1", "bob-1"}));
    EXPECT_EQ(until(99), Jobs{"!"});
}

TEST_F(RemovalOrderTest, WhatSomebodyNeedsIsPassedOver) {
    add("ada-1", "ada", 20);
    add("ada-2", "ada", 20);
    EXPECT_EQ(order_.next()->job.value, "ada-1");
    EXPECT_EQ(order_.next()->job.value, "ada-2") << "the first one did not go";
    EXPECT_FALSE(order_.next().has_value());
    EXPECT_EQ(order_.bytes(), 40);
}

}  // namespace
}  // namespace lockstep
