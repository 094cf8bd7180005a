// Which notices follow from the events of an append, and how they read.
#include "job/model/notices.hpp"

#include "job/base/limits.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace lockstep {
namespace {

// Appended together.
std::vector<Notice> told(History& h, const std::vector<EventData>& all) {
    std::vector<Event> events;
    for (const EventData& data : all) {
        events.push_back(h.make(data));
        const Status applied = apply(h.job, events.back());
        EXPECT_TRUE(applied.has_value()) << (applied ? "" : applied.error().message);
    }
    return notices_of(h.job, events);
}

std::string words_of(const std::vector<Notice>& notices) {
    std::string out;
    for (const Notice& notice : notices) {
        out += (out.empty() ? "" : " ") + notice.body["event"].get<std::string>();
    }
    return out;
}

event::AnomalySeen anomaly(const char* kind, bool over = false) {
    event::AnomalySeen out;
    out.attempt = 1;
    out.generation = 1;
    out.rank = 3;
    out.node = "n1";
    out.anomaly = kind;
    out.step = 40;
    out.message = "it is\nodd";
    out.over = over;
    return out;
}

Cause rank_exit() {
    Cause cause;
    cause.kind = CauseClass::rank_exit;
    cause.message = "rank 1 exited with 3";
    cause.rank = 1;
    cause.node = "n0";
    cause.exit_code = 3;
    cause.log_tail = "boom";
    return cause;
}

TEST(Notices, AStartIsNone) {
    History h;
    EXPECT_EQ(words_of(told(h, {event::AttemptCreated{1, "hash", "/d"}})), "");
    h.placed();
    h.claims();
    h.generation();
    EXPECT_EQ(words_of(told(h, {event::RanksStarted{1, 1}})), "");
}

TEST(Notices, AnEndIsTold) {
    for (const JobState state : {JobState::succeeded, JobState::failed, JobState::cancelled}) {
        History h;
        h.running();
        const Cause cause = state == JobState::succeeded ? Cause{} : rank_exit();
        const auto notices =
            told(h, {event::GenerationEnded{1, 1, cause, 52}, event::AttemptEnded{1, cause},
                     event::Finished{state, cause, 52}});
        ASSERT_EQ(notices.size(), 1U) << "the end of its last generation is no restart";
        const Json& body = notices[0].body;
        EXPECT_EQ(body["event"].get<std::string>(), std::string{to_string(state)});
        EXPECT_EQ(notices[0].seq, body["seq"].get<Seq>());
        const Json& job = body["job"];
        EXPECT_EQ(job["id"].get<std::string>(), h.job.id.value);
        EXPECT_EQ(job["state"].get<std::string>(), std::string{to_string(state)});
        EXPECT_EQ(job["user"].get<std::string>(), "ada");
        EXPECT_EQ(job["step"].get<int>(), 52);
        EXPECT_TRUE(job.contains("finished_at"));
        EXPECT_EQ(job.contains("cause"), state != JobState::succeeded);
        if (state == JobState::failed) {
            EXPECT_EQ(body["text"].get<std::string>(),
                      "t (" + h.job.id.value + ") has failed: rank 1 exited with 3");
            EXPECT_EQ(job["cause"]["class"].get<std::string>(), "rank_exit");
        }
    }
}

TEST(Notices, AJobThatNeverRanEndsToo) {
    History h;
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(words_of(told(h, {event::Finished{JobState::cancelled, {}, -1}})), "cancelled");
}

TEST(Notices, ARestartAfterAFailureIsToldOnce) {
    History h;
    h.running();
    const auto first = told(h, {h.end_of_generation(CauseClass::rank_exit, 7), [&] {
                                    event::GenerationStarted next;
                                    next.attempt = 1;
                                    next.generation = 2;
                                    next.release_told = true;
                                    return next;
                                }()});
    ASSERT_EQ(words_of(first), "restarting");
    EXPECT_EQ(first[0].body["job"]["cause"]["message"].get<std::string>(), "it failed");
    h.ranks_started();
    // The allocation goes, too: its generation ends with it.
    EXPECT_EQ(words_of(told(h, {h.end_of_generation(CauseClass::node_lost),
                                event::AttemptEnded{1, rank_exit()}})),
              "restarting");
}

TEST(Notices, AnAttemptThatEndsAfterItsGenerationIsNotToldAgain) {
    History h;
    h.running();
    EXPECT_EQ(words_of(told(h, {h.end_of_generation(CauseClass::preempted)})), "restarting");
    EXPECT_EQ(words_of(told(h, {event::AttemptEnded{1, rank_exit()}})), "");
}

TEST(Notices, AnAttemptWithoutAGenerationIsTold) {
    History h;
    h.attempt();
    h.placed();
    EXPECT_EQ(words_of(told(h, {event::AttemptEnded{1, rank_exit()}})), "restarting");
}

TEST(Notices, WhatSomebodyAskedForIsNone) {
    History h;
    h.running();
    EXPECT_EQ(words_of(told(h, {event::RestartRequested{1, 1, "ada"},
                                h.end_of_generation(CauseClass::restart_requested)})),
              "");
    h.again();
    h.must(event::CancelRequested{"ada"});
    EXPECT_EQ(words_of(told(h, {h.end_of_generation(CauseClass::cancelled_by_user)})), "");
}

TEST(Notices, EveryHangAndTheFirstAnomalyOfAKindAreTold) {
    History h;
    h.running();
    const auto first = told(h, {anomaly("straggler"), anomaly("straggler"), anomaly("hang")});
    ASSERT_EQ(words_of(first), "anomaly hang");
    EXPECT_EQ(first[0].body["anomaly"]["kind"].get<std::string>(), "straggler");
    EXPECT_EQ(first[0].body["anomaly"]["rank"].get<int>(), 3);
    EXPECT_NE(first[0].body["text"].get<std::string>().find("shows straggler: it is odd"),
              std::string::npos);
    EXPECT_EQ(words_of(told(h, {anomaly("hang", true), anomaly("straggler")})), "");
    EXPECT_EQ(words_of(told(h, {anomaly("hang"), anomaly("loss_spike")})), "hang anomaly");
}

TEST(Notices, SoManyOfAJobAndThenOnlyItsEnd) {
    History h;
    h.running();
    std::int64_t count = 0;
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < 2 * limits::kNoticesOfJob; ++i) {
        for (const Notice& notice : told(h, {anomaly("hang")})) {
            ++count;
            last += notice.body.value("last", false) ? count : 0;
        }
    }
    EXPECT_EQ(count, limits::kNoticesOfJob);
    EXPECT_EQ(last, count) << "the last one says so, and only that";
    EXPECT_EQ(words_of(told(h, {event::Finished{JobState::failed, rank_exit(), 1}})), "failed");
}

TEST(Notices, SeveralInOneAppendStayWithinTheLimit) {
    History h;
    h.running();
    std::vector<EventData> all;
    for (std::int64_t i = 0; i < limits::kNoticesOfJob + 3; ++i) {
        all.emplace_back(anomaly("hang"));
    }
    const auto notices = told(h, all);
    ASSERT_EQ(notices.size(), static_cast<std::size_t>(limits::kNoticesOfJob));
    EXPECT_TRUE(notices.back().body.value("last", false));
    EXPECT_FALSE(notices.front().body.value("last", false));
}

TEST(Notices, AMailSaysWhatAPersonWantsToKnow) {
    History h;
    h.running();
    Cause cause = rank_exit();
    cause.log_tail = "first line\n" + std::string(3000, 'x') + "\n.\n\x1b[31mred";
    const auto notices = told(h, {event::Finished{JobState::failed, cause, 52}});
    ASSERT_EQ(notices.size(), 1U);
    const Mail mail = mail_of(notices[0].body, "https://h:1/#/jobs/x");
    EXPECT_EQ(mail.subject, "[lockstep] t has failed");
    for (const char* part :
         {"rank 1 exited with 3", "Cause     rank_exit\n", "Rank      1\n", "Node      n0\n",
          "Step      52\n", "https://h:1/#/jobs/x\n", "lockstep show ls-", "first line\n"}) {
        EXPECT_NE(mail.text.find(part), std::string::npos) << part << "\n" << mail.text;
    }
    EXPECT_EQ(mail.text.find('\x1b'), std::string::npos);
    std::istringstream lines{mail.text};
    for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), 900U);
    }
    EXPECT_EQ(mail_of(notices[0].body, "").text.find("https://"), std::string::npos);
}

TEST(Notices, AMailOfSomethingElseIsOneAllTheSame) {
    const Mail mail = mail_of(Json::object(), "");
    EXPECT_TRUE(mail.subject.starts_with("[lockstep]"));
    History h;
    h.running();
    const auto notices = told(h, {anomaly("hang")});
    ASSERT_EQ(notices.size(), 1U);
    EXPECT_EQ(mail_of(notices[0].body, "").subject, "[lockstep] t hangs");
    EXPECT_NE(mail_of(notices[0].body, "").text.find("Rank      3\n"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
