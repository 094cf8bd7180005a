#include "daemon/control/base/fair_turns.hpp"

#include <gtest/gtest.h>

#include <list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class FairTurnsTest : public testing::Test {
  protected:
    void ask(const std::string& who) {
        auto run = [](FairTurnsTest* self, std::string name) -> Task<void> {
            auto turn = co_await self->turns_.wait(name);
            self->served_.push_back(turn ? name
                                         : name + " " + std::string{to_string(turn.error().code)});
            if (turn) {
                self->held_.push_back(std::move(*turn));
            }
        };
        net::co_spawn(io_, run(this, who), net::detached);
        io_.restart();
        io_.poll();
    }
    void end_one() {
        held_.erase(held_.begin());
        io_.restart();
        io_.poll();
    }

    net::io_context io_{1};
    FairTurns turns_{io_, 1, 3};
    std::list<FairTurns::Turn> held_;
    std::vector<std::string> served_;
};

TEST_F(FairTurnsTest, WhoeverAsksMuchWaitsForItselfAndNotTheOthers) {
    ask("ada");
    ask("ada");
    ask("ada");
    ask("bob");
    ask("ada");
    ask("eve");
    EXPECT_EQ(turns_.waiting(), 5U);
    for (int i = 0; i < 5; ++i) {
        end_one();
    }
    EXPECT_EQ(served_, (std::vector<std::string>{"ada", "ada", "bob", "eve", "ada", "ada"}));
    end_one();
    ask("bob");
    EXPECT_EQ(served_.back(), "bob") << "the place is free again";
}

TEST_F(FairTurnsTest, TooManyOfOneAreRefusedAndCloseSendsAllAway) {
    for (int i = 0; i < 5; ++i) {
        ask("ada");
    }
    EXPECT_EQ(served_, (std::vector<std::string>{"ada", "ada exhausted"}));
    ask("bob");
    turns_.close();
    io_.restart();
    io_.poll();
    EXPECT_EQ(served_.size(), 6U);
    EXPECT_EQ(served_.back(), "bob unavailable");
    ask("eve");
    EXPECT_EQ(served_.back(), "eve unavailable");
    held_.clear();
}

}  // namespace
}  // namespace lockstep
