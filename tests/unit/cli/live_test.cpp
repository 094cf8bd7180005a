#include "job/cli/live.hpp"

#include "job/cli/views.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

Json live_job(const std::string& state) {
    return Json{{"id", "ls-1"}, {"name", "demo"}, {"state", state}};
}

Json rank(int number, std::int64_t step, Json loss, double seconds) {
    return Json{{"rank", number},          {"node", "node-" + std::to_string(number / 8)},
                {"state", "running"},      {"step", step},
                {"loss", std::move(loss)}, {"step_seconds", seconds}};
}

Json items(std::vector<Json> ranks) {
    return Json{{"items", std::move(ranks)}};
}

TEST(FollowView, NoLineIsWiderThanTheTerminal) {
    for (const std::size_t width : {20U, 40U, 80U, 200U}) {
        for (const int count : {1, 4, 16, 17, 300}) {
            FollowView view;
            view.set_total_steps(1'000'000);
            view.take_job(live_job("running"), 0);
            std::vector<Json> ranks;
            std::vector<Json> series;
            for (int i = 0; i < count; ++i) {
                ranks.push_back(rank(i, 123'456, 0.123456, 0.5));
                series.push_back(Json{{"rank", i}, {"points", {{1, 2, 2, 2}, {2, 1, 1, 1}}}});
            }
            view.take_ranks(items(ranks));
            view.take_history(Json{{"series", series}});
            Terminal terminal;
            terminal.width = width;
            terminal.colour = true;
            terminal.interactive = true;
            for (const std::string& line : view.lines(terminal, 100'000)) {
                EXPECT_LE(visible_width(line), width) << line;
            }
        }
    }
}

TEST(FollowView, ProgressIsWhatEveryRankHasReached) {
    FollowView view;
    view.set_total_steps(100);
    view.take_job(live_job("running"), 0);
    view.take_ranks(items({rank(0, 50, 1.0, 0.1), rank(1, 40, 1.0, 0.1)}));
    EXPECT_EQ(view.step(), 40);
    EXPECT_THAT(view.plain(), HasSubstr("step 40/100 (40 %)"));
}

TEST(FollowView, TheTimeLeftFollowsThePaceThatWasSeen) {
    FollowView view;
    view.set_total_steps(100);
    for (int second = 0; second <= 10; ++second) {
        view.take_job(live_job("running"), second);
        view.take_ranks(items({rank(0, second * 4, 1.0, 0.1)}));
    }
    ASSERT_TRUE(view.seconds_left().has_value());
    EXPECT_DOUBLE_EQ(*view.seconds_left(), 15.0);  // 60 steps at 4 a second
}

TEST(FollowView, AfterGoingBackToACheckpointThePaceStartsAnew) {
    FollowView view;
    view.set_total_steps(100);
    view.take_job(live_job("running"), 0);
    view.take_ranks(items({rank(0, 10, 1.0, 0.1)}));
    view.take_job(live_job("running"), 1);
    view.take_ranks(items({rank(0, 50, 1.0, 0.1)}));
    view.take_job(live_job("running"), 2);
    view.take_ranks(items({rank(0, 40, 1.0, 0.1)}));
    EXPECT_FALSE(view.seconds_left().has_value());
}

TEST(FollowView, ALossThatIsNotANumberIsShown) {
    FollowView view;
    view.take_job(live_job("running"), 0);
    view.take_ranks(items({rank(0, 1, "nan", 0.1), rank(1, 1, Json(), 0.1)}));
    EXPECT_THAT(view.plain(), HasSubstr("loss nan -"));
}

TEST(FollowView, AHangIsShownAsLongAsItLasts) {
    FollowView view;
    Json job = live_job("running");
    job["hang"] = {{"message", "no rank has made a step for 60 s"}};
    view.take_job(job, 0);
    const Terminal terminal;
    EXPECT_THAT(view.lines(terminal, 0).back(), HasSubstr("HANGS  no rank has made a step"));
    view.take_job(live_job("running"), 1);
    EXPECT_THAT(view.lines(terminal, 1).back(), ::testing::Not(HasSubstr("HANGS")));
}

// "waiting for the first report" stood there for as long as the job ran.
TEST(FollowView, ThatNoLossIsFoundIsSaidWithWhatHelps) {
    FollowView view;
    view.take_job(live_job("running"), 0);
    view.take_ranks(Json::parse(R"({"items":[{"rank":0,"state":"running"}]})"));
    Terminal terminal;
    terminal.width = 60;
    EXPECT_EQ(view.lines(terminal, 0).at(1), "  waiting for the first report");
    view.set_lacks_loss(true);
    const auto lines = view.lines(terminal, 60);
    EXPECT_EQ(lines.at(1) + lines.at(2).substr(1) + lines.at(3).substr(1),
              "  " + std::string{kLossHint});
    view.take_ranks(items({rank(0, 1, 1.0, 0.1)}));
    EXPECT_EQ(view.lines(terminal, 61).at(1), "  step 1");
}

TEST(FollowView, ARankThatIsWaitedForIsShownAsLongAsItIs) {
    FollowView view;
    Json job = live_job("running");
    job["desync"] = {{"rank", 2}, {"message", "rank 2 has not launched AllReduce 9"}};
    view.take_job(job, 0);
    const Terminal terminal;
    EXPECT_THAT(view.lines(terminal, 0).back(), HasSubstr("WAITED FOR  rank 2 has not launched"));
    view.take_job(live_job("running"), 1);
    EXPECT_THAT(view.lines(terminal, 1).back(), ::testing::Not(HasSubstr("WAITED FOR")));
}

TEST(FollowView, ManyRanksAreSummedUpWithTheWorstByName) {
    FollowView view;
    view.take_job(live_job("running"), 0);
    std::vector<Json> ranks;
    for (int i = 0; i < 64; ++i) {
        ranks.push_back(rank(i, 7, 1.0, 0.1));
    }
    ranks[33]["step_seconds"] = 0.9;
    ranks[5]["exit_code"] = 7;
    view.take_ranks(items(ranks));
    const Terminal terminal;
    const auto lines = view.lines(terminal, 5);
    ASSERT_EQ(lines.size(), 11U);
    EXPECT_THAT(lines[2], HasSubstr("64 ranks, 64 reporting"));
    EXPECT_THAT(lines[4], HasSubstr("100.0 ms / 100.0 ms / 900.0 ms"));
    EXPECT_THAT(lines[6], HasSubstr("exit 7"));
    EXPECT_THAT(lines[7], HasSubstr("33"));
}

TEST(FollowView, TheMedianOfAnEvenNumberOfRanksIsBetweenTheTwoInTheMiddle) {
    FollowView view;
    view.take_job(live_job("running"), 0);
    std::vector<Json> ranks;
    for (int i = 0; i < 64; ++i) {
        ranks.push_back(rank(i, 7, 1.0, i < 32 ? 0.1 : 0.3));
    }
    view.take_ranks(items(ranks));
    EXPECT_THAT(view.lines(Terminal{}, 5)[4], HasSubstr("100.0 ms / 200.0 ms / 300.0 ms"));
}

TEST(FollowView, WhileQueuedItSaysWhatTheJobWaitsFor) {
    FollowView view;
    Json queued = live_job("queued");
    queued["pending_reason"] = "memory is taken";
    view.take_job(queued, 0);
    const Terminal terminal;
    EXPECT_THAT(view.lines(terminal, 0).at(1), HasSubstr("pending: memory is taken"));
}

}  // namespace
}  // namespace lockstep::cli
