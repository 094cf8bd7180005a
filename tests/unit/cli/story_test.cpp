#include "job/cli/story.hpp"

#include "job/cli/times.hpp"
#include "tests/unit/cli/in_zone.hpp"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

std::string told(const char* event) {
    return story_line(Terminal{}, Json::parse(event)).value_or("");
}

TEST(Story, TellsARestartWithItsCauseAndWhereItGoesOn) {
    EXPECT_EQ(told(R"({"kind":"generation_ended","generation":1,"data":{"cause":{
                       "class":"rank_exit","message":"rank 2 on n1 exited with code 1","rank":2}}})"),
              "generation 1 ended  rank_exit: rank 2 on n1 exited with code 1");
    EXPECT_EQ(told(R"({"kind":"generation_started","generation":2,
                       "data":{"resumed_from_step":60}})"),
              "generation 2 starts from step 60");
}

TEST(Story, ARestartThatSomebodyAskedForIsToldOnceAndNotAsTrouble) {
    Terminal colours;
    colours.colour = true;
    const auto asked = story_line(
        colours, Json::parse(R"({"kind":"restart_requested","generation":1,"data":{"by":"ada"}})"));
    EXPECT_EQ(asked.value_or(""), paint(colours, Style::bold, "restart requested by ada"));
    EXPECT_EQ(told(R"({"kind":"generation_ended","generation":1,"data":{"cause":{
                       "class":"restart_requested","message":"restart asked for by ada"}}})"),
              "");
}

TEST(Story, LeavesOutWhatEveryJobDoes) {
    EXPECT_EQ(told(R"({"kind":"generation_started","generation":1,"data":{}})"), "");
    EXPECT_EQ(told(R"({"kind":"generation_ended","generation":1,"data":{}})"), "");
    EXPECT_EQ(told(R"({"kind":"ranks_started","generation":1,"data":{}})"), "");
    EXPECT_EQ(told(R"({"kind":"checkpoint_saved","data":{"step":3}})"), "");
    EXPECT_EQ(told(R"({"kind":"preflight","data":{"severity":"passed"}})"), "");
    EXPECT_EQ(told(R"({"kind":"rank_exited","rank":1,"data":{"stopped":true,"exit_code":1}})"), "");
    EXPECT_EQ(told(R"({"kind":"rank_exited","rank":1,"data":{"exit_code":0}})"), "");
}

TEST(Story, TellsAnomaliesExitsAndWhatItDoesNotKnow) {
    EXPECT_EQ(told(R"({"kind":"anomaly","rank":3,"node":"n2","data":{"anomaly":"straggler",
                       "message":"busy 2.1 times the median"}})"),
              "straggler rank 3 on n2  busy 2.1 times the median");
    EXPECT_EQ(told(R"({"kind":"rank_exited","rank":1,"node":"n2","data":{"exit_code":7}})"),
              "rank 1 on n2 exited with code 7");
    EXPECT_EQ(told(R"({"kind":"restart_requested","data":{"by":"ada"}})"),
              "restart requested by ada");
    EXPECT_EQ(told(R"({"kind":"gpu_xid","node":"n2","data":{"gpu":1,"xid":79}})"),
              "gpu xid on n2 GPU 1 XID 79");
    EXPECT_EQ(told(R"({"kind":"from_the_future","data":{"message":"something new"}})"),
              "from the future  something new");
}

TEST(Story, WhatIsNoEventIsNoCrash) {
    for (const char* text : {"{}", "[]", "null", R"({"kind":"rank_exited"})",
                             R"({"kind":"generation_ended","generation":"x","data":7})"}) {
        told(text);
    }
    SUCCEED();
}

TEST(Times, AreLocalWithTheirZone) {
    const InZone zone("XST-9");  // nine hours east of Greenwich, by POSIX's own notation
    EXPECT_EQ(local_time(1'763'687'000'000), "2025-11-21 10:03:20 XST");
    EXPECT_EQ(local_clock(1'763'687'000'000), "10:03:20");
}

TEST(Times, AgesHaveTwoUnitsAtMost) {
    EXPECT_EQ(age_text(0, 45'000), "45s");
    EXPECT_EQ(age_text(0, 12 * 60'000), "12m");
    EXPECT_EQ(age_text(0, (3 * 60 + 12) * 60'000), "3h12m");
    EXPECT_EQ(age_text(0, 24LL * 3'600'000), "1d");
    EXPECT_EQ(age_text(0, 125LL * 3'600'000), "5d5h");
    EXPECT_EQ(age_text(5'000, 0), "0s");
}

}  // namespace
}  // namespace lockstep::cli
