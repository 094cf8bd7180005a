// size: one fixture, a test for each way into the line
// Jobs that wait for other jobs, and jobs of a sweep: what control makes of waiting_line.hpp.
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class ControlLineTest : public ControlTest {
  protected:
    SubmitResult<Submitted> after(const std::string& ids) {
        return submit("", "body", R"(},"after":[)" + ids + R"(],"labels":{)");
    }
    static std::string quoted(const std::string& id) { return "\"" + id + "\""; }
    void cancel(const std::string& id) {
        auto run = [&]() -> Task<void> {
            const auto done = co_await control_->commands().cancel(ada_, id);
            EXPECT_TRUE(done.has_value());
        };
        wait(run());
    }
    void succeed(TestAgent& first, TestAgent& second) {
        first.say(exit(1, 0, 0));
        second.say(exit(1, 1, 0));
    }
    std::vector<Json> sweep(std::int32_t size, std::int32_t parallel, const std::string& key = "") {
        std::string values;
        for (std::int32_t i = 0; i < size; ++i) {
            values += (i > 0 ? "," : "") + quoted(std::to_string(i));
        }
        const auto json = parse_json(
            R"({"name":"s","framework":"command","command":["x","0"],"resources":{"nodes":2},
                "sweep":{"max_parallel":)" +
            std::to_string(parallel) + R"(,"parameters":{"command.1":[)" + values + "]}}}");
        SubmitRequest request;
        request.sweep = parse_sweep(*json).value();
        request.spec = request.sweep->points.front().spec;
        request.idempotency_key = key;
        request.body_sha256 = "b";
        auto run = [&]() -> Task<void> {
            SubmitRequest copy = request;
            const auto done = co_await control_->submit(ada_, std::move(copy));
            EXPECT_TRUE(done.has_value()) << done.error().text();
            first_ = done ? done->id : "";
            repeated_ = done && done->repeated;
        };
        wait(run());
        return list(first_);
    }
    std::vector<Json> list(const std::string& sweep) {
        std::vector<Json> out;
        auto run = [&]() -> Task<void> {
            JobQuery query;
            query.sweep = sweep;
            const auto page = co_await control_->list(ada_, std::move(query));
            EXPECT_TRUE(page.has_value());
            const Json json = *parse_json(*page);
            out.assign(json["items"].rbegin(), json["items"].rend());
        };
        wait(run());
        return out;
    }

    // A job of somebody's that waits for nothing.
    std::string submit_as(const std::string& user) {
        SubmitRequest request;
        request.spec =
            parse_spec(*parse_json(R"({"name":"t","framework":"command","command":["x"]})"))
                .value();
        std::string id;
        auto run = [&]() -> Task<void> {
            Caller caller{user, false, true};
            SubmitRequest copy = request;
            const auto done = co_await control_->submit(std::move(caller), std::move(copy));
            EXPECT_TRUE(done.has_value()) << done.error().text();
            id = done ? done->id : "";
        };
        wait(run());
        return id;
    }

    std::string first_;
    bool repeated_ = false;
};

TEST_F(ControlLineTest, TheJobsOfOneUserKeepNobodyElsesOut) {
    scheduler_.seen.state = AllocationState::pending;
    for (int i = 0; i < 4; ++i) {
        submit_as("bob");
    }
    until([&] { return scheduler_.submissions == 2; }, "bob's fill the window");
    const std::string mine = submit_as("ada");
    until([&] { return scheduler_.last.job.value == mine; }, "ada's goes to the scheduler");
    EXPECT_EQ(scheduler_.submissions, 3);
    const std::string second = submit_as("ada");
    EXPECT_EQ(show(second)["pending_reason"],
              "waiting for its turn: 4 jobs were ahead when it came")
        << "three with the scheduler and one of bob's two";
    EXPECT_EQ(scheduler_.submissions, 3);
}

TEST_F(ControlLineTest, AUserHasSoManyUnfinishedJobsAlsoAfterARestart) {
    context_->settings.of_user = {2, 0};
    const std::string first = submit_as("ada");
    submit_as("ada");
    for (int i = 0; i < 2; ++i) {
        const auto refused = submit();
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Errc::exhausted);
        EXPECT_THAT(refused.error().message, HasSubstr("a user may have 2 unfinished jobs"));
        EXPECT_GT(refused.error().retry_after_s, 0);
        submit_as("bob" + std::to_string(i));
        shut_down();
        boot();
        context_->settings.of_user = {2, 0};
    }
    cancel(first);
    until([&] { return state(first) == "cancelled"; }, "cancelled");
    EXPECT_TRUE(submit());
}

TEST_F(ControlLineTest, ASubmissionThatIsRefusedOrRepeatedCountsForNothing) {
    context_->settings.of_user = {0, 3};
    for (int i = 0; i < 5; ++i) {
        EXPECT_FALSE(submit("", "body", R"(,"gpus_per_node":1)"));
    }
    const auto first = submit("key");
    ASSERT_TRUE(first);
    for (int i = 0; i < 5; ++i) {
        const auto again = submit("key");
        ASSERT_TRUE(again) << again.error().text();
        EXPECT_EQ(again->id, first->id);
    }
    EXPECT_TRUE(submit());
    EXPECT_TRUE(submit());
    const auto refused = submit();
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("3 jobs a minute"));
    EXPECT_EQ(refused.error().retry_after_s, 20);
    clock_.advance(std::chrono::seconds{20});
    EXPECT_TRUE(submit());
}

// Whoever had lost the answer was told that there is no room, and not that the job is there.
TEST_F(ControlLineTest, ARepeatIsAnsweredAlsoWhereThereIsNoRoomForAnotherJob) {
    const auto first = submit("key");
    ASSERT_TRUE(first);
    context_->settings.of_user = {1, 0};
    const auto again = submit("key");
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->id, first->id);
    EXPECT_TRUE(again->repeated);
    const auto other = submit("key", "another body");
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().why, SubmitFailure::key_reused);
    const auto more = submit("new");
    EXPECT_EQ(more.error().code, Errc::exhausted);
    EXPECT_EQ(more.error().why, SubmitFailure::user_quota);
}

// A tool that repeated it was told that nothing could be submitted, while the job was there.
TEST_F(ControlLineTest, ARepeatIsAnsweredWhateverBecameOfTheJobThatItWaitsFor) {
    const std::string a = submit()->id;
    const auto dependent = [&](const std::string& body) {
        return submit("key", body, R"(},"after":[)" + quoted(a) + R"(],"labels":{)");
    };
    const auto first = dependent("body");
    ASSERT_TRUE(first) << first.error().text();
    cancel(a);
    until([&] { return state(a) == "cancelled"; }, "what it waits for is gone");
    const auto again = dependent("body");
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(again->id, first->id);
    EXPECT_TRUE(again->repeated);
    const auto other = dependent("another body");
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().why, SubmitFailure::key_reused);
}

// Its messages were numbered as those of the first jobs, which nobody was told of.
TEST_F(ControlLineTest, WhoComesWhileASweepIsTakenUpIsToldOfEachJobOnceWithItsNumber) {
    std::vector<StreamMessage> told;
    std::shared_ptr<void> subscription;
    net::post(*io_, [&] {
        subscription = control_->stream().subscribe([&](const StreamMessage& message) {
            if (message.event == "submitted") {
                told.push_back(message);
            }
        });
    });
    sweep(1000, 1);
    ASSERT_EQ(told.size(), 1000U);
    std::set<std::string> topics;
    Seq last = 0;
    for (const StreamMessage& message : told) {
        EXPECT_TRUE(topics.insert(message.topic).second) << message.topic;
        EXPECT_GT(message.seq, last);
        last = message.seq;
    }
}

TEST_F(ControlLineTest, WhatIsHeldOrBeginsLaterTakesNoPlace) {
    scheduler_.seen.state = AllocationState::pending;
    scheduler_.seen.later = true;
    for (int i = 0; i < 2; ++i) {
        submit_as("ada");
    }
    until([&] { return scheduler_.submissions == 2; }, "the window is full");
    submit_as("ada");
    until([&] { return scheduler_.submissions == 3; }, "a third goes: the others are aside");
    scheduler_.seen.later = false;
    scheduler_.seen.held = true;
    submit_as("ada");
    until([&] { return scheduler_.submissions == 4; }, "held ones are aside, too");
}

TEST_F(ControlLineTest, AJobStartsOnceWhatItRunsAfterHasSucceeded) {
    TestAgent first;
    TestAgent second;
    const std::string a = start_job_with(first, second);
    const auto b = after(quoted(a));
    ASSERT_TRUE(b) << b.error().text();
    EXPECT_EQ(show(b->id)["pending_reason"], "waits for " + a + " to succeed");
    EXPECT_EQ(show(b->id)["after"][0], a);
    EXPECT_EQ(scheduler_.submissions, 1);
    succeed(first, second);
    until([&] { return scheduler_.submissions == 2; }, "the second goes to the scheduler");
    EXPECT_EQ(state(a), "succeeded");
    // And one that comes when it is over already.
    const auto c = after(quoted(a));
    ASSERT_TRUE(c) << c.error().text();
    until([&] { return scheduler_.submissions == 3; }, "the third goes to the scheduler");
}

TEST_F(ControlLineTest, WhenItDoesNotSucceedWhatFollowsFailsWithoutAStart) {
    TestAgent first;
    TestAgent second;
    const std::string a = start_job_with(first, second);
    const std::string b = after(quoted(a))->id;
    const std::string c = after(quoted(b))->id;
    first.say(exit(1, 0, 3));
    second.say(exit(1, 1, 0));
    until([&] { return state(c) == "failed"; }, "the chain ends");
    for (const auto& [id, why] : {std::pair{b, a}, std::pair{c, b}}) {
        const Json job = show(id);
        EXPECT_EQ(job["state"], "failed");
        EXPECT_EQ(job["cause"]["class"], "dependency");
        EXPECT_EQ(job["cause"]["message"], why + ", which it was to run after, has not succeeded");
        EXPECT_THAT(job["attempts"], SizeIs(0));
    }
    EXPECT_EQ(scheduler_.submissions, 1);
    const auto late = after(quoted(a));
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().fields.at(0).pointer, "/after/0");
    EXPECT_THAT(late.error().message, HasSubstr("did not succeed"));
}

TEST_F(ControlLineTest, OnlyAJobThatTheCallerSeesCanBeWaitedFor) {
    const std::string a = submit()->id;
    const auto unknown = after(R"("ls-00000000000000000000000000")");
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().fields.at(0).pointer, "/after/0");
    SubmitRequest request;
    request.spec = parse_spec(*parse_json(R"({"name":"t","framework":"command","command":["x"],
                                              "after":[)" +
                                          quoted(a) + "]}"))
                       .value();
    SubmitResult<Submitted> out = Submitted{};
    auto run = [&]() -> Task<void> {
        const Caller bob{"bob", false, true};
        SubmitRequest copy = request;
        out = co_await control_->submit(bob, std::move(copy));
    };
    wait(run());
    ASSERT_FALSE(out);
    EXPECT_THAT(out.error().message, HasSubstr("there is no job"));
}

TEST_F(ControlLineTest, ARestartedDaemonGoesOnWaitingAndHearsOfAnEndItMissed) {
    const std::string a = submit()->id;
    const std::string b = after(quoted(a))->id;
    shut_down();
    boot();
    EXPECT_EQ(show(b)["pending_reason"], "waits for " + a + " to succeed");
    EXPECT_EQ(state(b), "accepted");
    cancel(a);
    until([&] { return state(a) == "cancelled"; }, "cancelled");
    shut_down();
    boot();
    until([&] { return state(b) == "failed"; }, "the follower fails");
    EXPECT_EQ(show(b)["cause"]["class"], "dependency");
}

TEST_F(ControlLineTest, AWaitingJobCanBeCancelled) {
    const std::string a = submit()->id;
    const std::string b = after(quoted(a))->id;
    cancel(b);
    until([&] { return state(b) == "cancelled"; }, "cancelled");
    EXPECT_THAT(show(b)["attempts"], SizeIs(0));
    EXPECT_NE(state(a), "cancelled");
}

TEST_F(ControlLineTest, ASweepIsOneSubmissionOfManyJobs) {
    const auto jobs = sweep(3, 1, "key");
    ASSERT_THAT(jobs, SizeIs(3));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        EXPECT_EQ(jobs[i]["sweep"]["id"], first_);
        EXPECT_EQ(jobs[i]["sweep"]["index"], i);
        EXPECT_EQ(jobs[i]["sweep"]["size"], 3);
        EXPECT_EQ(jobs[i]["sweep"]["parameters"]["command.1"], std::to_string(i));
    }
    EXPECT_EQ(jobs[0]["id"], first_);
    EXPECT_THAT(jobs[1]["pending_reason"].get<std::string>(), HasSubstr("1 of it may run at once"));
    EXPECT_FALSE(repeated_);
    EXPECT_THAT(sweep(3, 1, "key"), SizeIs(3));
    EXPECT_TRUE(repeated_);
}

TEST_F(ControlLineTest, NoMoreOfASweepThanAllowedAlsoAfterARestart) {
    const auto jobs = sweep(3, 1);
    until([&] { return scheduler_.submissions == 1; }, "the first goes to the scheduler");
    EXPECT_EQ(scheduler_.last.job.value, first_);
    shut_down();
    boot();
    EXPECT_THAT(list(first_)[1]["pending_reason"].get<std::string>(), HasSubstr("its sweep"));
    EXPECT_EQ(scheduler_.last.job.value, first_);
    cancel(first_);
    const std::string second = jobs[1]["id"].get<std::string>();
    until([&] { return scheduler_.last.job.value == second; }, "the second goes to the scheduler");
    EXPECT_EQ(state(jobs[2]["id"].get<std::string>()), "accepted");
}

// What is told of a sweep's jobs is made before their events have numbers.
TEST_F(ControlLineTest, ASweepsEventsAreToldInOrderWithTheirNumbers) {
    std::vector<StreamMessage> told;
    const auto subscription = control_->stream().subscribe(
        [&](const StreamMessage& message) { told.push_back(message); });
    const auto jobs = sweep(5, 1);
    ASSERT_GE(told.size(), 5U);
    std::int64_t last = 0;
    for (std::size_t i = 0; i < 5; ++i) {
        const Json event = *parse_json(*told[i].data);
        EXPECT_EQ(event["kind"], "submitted");
        EXPECT_EQ(event["job"], jobs[i]["id"]);
        EXPECT_EQ(event["seq"], told[i].seq);
        EXPECT_GT(told[i].seq, last);
        last = told[i].seq;
    }
    auto run = [&]() -> Task<void> {
        const auto stored = co_await control_->stream().replay(0, 5);
        EXPECT_TRUE(stored.has_value());
        for (std::size_t i = 0; stored && i < stored->size(); ++i) {
            EXPECT_EQ(*(*stored)[i].data, *told[i].data);
        }
    };
    wait(run());
}

// The whole of it was looked at in one go: seconds, in which lockstepd did nothing else.
TEST_F(ControlLineTest, WhileALargeSweepIsTakenUpOthersHaveTheirTurn) {
    const Seq before = store_->last_seq();
    std::size_t turns = 0;  // before its events have numbers, and go to the store
    bool done = false;
    bool ended = false;
    const std::function<void()> turn = [&] {
        turns += store_->last_seq() == before ? 1 : 0;
        ended = done;
        if (!done) {
            net::post(*io_, turn);
        }
    };
    net::post(*io_, turn);
    const auto jobs = sweep(1000, 1);
    done = true;
    until([&] { return ended; }, "the last turn");
    EXPECT_THAT(jobs, SizeIs(50)) << "a page";
    EXPECT_GT(turns, 2U);  // a fast machine has finished after some 20 ms
}

TEST_F(ControlLineTest, ASweepIsCancelledAsAWhole) {
    const auto jobs = sweep(4, 2);
    std::string answer;
    auto run = [&]() -> Task<void> {
        std::string id = jobs[2]["id"].get<std::string>();
        const auto done = co_await control_->commands().cancel_sweep(ada_, std::move(id));
        EXPECT_TRUE(done.has_value());
        answer = done.value_or("");
    };
    wait(run());
    EXPECT_EQ(answer, R"({"cancelled":4})");
    for (const Json& job : jobs) {
        const std::string id = job["id"].get<std::string>();
        until([&] { return state(id) == "cancelled"; }, "cancelled");
    }
}

TEST_F(ControlLineTest, AFullDiskTakesNothingOfASweep) {
    limit_store(1);
    Json json = *parse_json(R"({"name":"s","framework":"command","command":["x"]})");
    Json values = Json::array();
    for (int i = 0; i < 100; ++i) {
        values.push_back(std::string(4000, 'x'));
    }
    json["sweep"]["parameters"]["environment.A"] = std::move(values);
    SubmitRequest request;
    request.sweep = parse_sweep(json).value();
    request.spec = request.sweep->points.front().spec;
    SubmitResult<Submitted> out = Submitted{};
    auto run = [&]() -> Task<void> {
        SubmitRequest copy = request;
        out = co_await control_->submit(ada_, std::move(copy));
    };
    wait(run());
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().code, Errc::exhausted);
    EXPECT_THAT(list(""), SizeIs(0));
}

}  // namespace
}  // namespace lockstep
