// Whose log is a job's: of the attempt that runs, and of the one before while the next one waits.
#include "tests/unit/control/control_fixture.hpp"

#include <filesystem>
#include <string>

namespace lockstep {
namespace {

class LogPlaceTest : public ControlTest {
  protected:
    // A job whose first attempt was taken away while it ran and whose second one has no nodes yet.
    std::string requeued(const std::string& launch = "rank") {
        const std::string id = start_job_with(
            first_, second_, R"(},"recovery":{},"launch":")" + launch + R"(","labels":{)");
        scheduler_.submissions = 0;
        scheduler_.seen_until = 1;
        scheduler_.seen.state = AllocationState::ended;
        scheduler_.seen.cause.kind = CauseClass::preempted;
        first_.session->on_closed();
        second_.session->on_closed();
        until([&] { return show(id)["attempts"].size() == 2; }, "the second attempt");
        until([&] { return scheduler_.submissions == 1; }, "handed over");
        return id;
    }
    Result<LogPlace> place(const std::string& id, std::int32_t rank, std::int32_t attempt = 0) {
        Result<LogPlace> out = fail(Errc::internal, "not asked");
        auto ask = [&]() -> Task<void> {
            out = co_await control_->log_place(ada_, id, rank, attempt);
        };
        wait(ask());
        return out;
    }
    // The log's path as "a1/rank-00000.log".
    static std::string name_of(const std::string& path) {
        const std::filesystem::path whole{path};
        return (whole.parent_path().filename() / whole.filename()).string();
    }

    TestAgent first_;
    TestAgent second_;
};

TEST_F(LogPlaceTest, BeforeAnyAttemptHasBegunThereIsNone) {
    const std::string id = submit()->id;
    until([&] { return scheduler_.submissions > 0; }, "the attempt reaches the scheduler");
    EXPECT_EQ(place(id, 0).error().code, Errc::unavailable);
}

// It was "not started yet" for as long as the next attempt waited.
TEST_F(LogPlaceTest, WhileTheNextAttemptWaitsItIsTheOneBefore) {
    const std::string id = requeued();
    const auto waiting = place(id, 1);
    ASSERT_TRUE(waiting.has_value()) << waiting.error().text();
    EXPECT_EQ(waiting->attempt, 1);
    EXPECT_EQ(name_of(waiting->path), "a1/rank-00001.log");
    EXPECT_EQ(waiting->ranks, 2);
    EXPECT_TRUE(waiting->may_grow) << "who follows waits for the second attempt's";
    TestAgent third = hello(0, "i3");
    TestAgent fourth = hello(1, "i4");
    for (TestAgent* agent : {&third, &fourth}) {
        until([&] { return agent->peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
        wire::Join join;
        join.address = "127.0.0.1";
        join.port = 5000;
        agent->say(join);
    }
    until([&] { return third.peer->last<wire::World>() != nullptr; }, "WORLD of the second");
    const auto second = place(id, 1);
    ASSERT_TRUE(second.has_value()) << second.error().text();
    EXPECT_EQ(second->attempt, 2);
    EXPECT_EQ(name_of(second->path), "a2/rank-00001.log");
}

// Who followed rank 0 was told that its log had ended, and missed all of the next generation.
TEST_F(LogPlaceTest, OfARankThatHasEndedMoreMayComeUntilTheJobIsOver) {
    const std::string id = start_job_with(first_, second_);
    const auto acks = first_.peer->count<wire::Ack>();
    first_.say(exit(1, 0, 0));
    until([&] { return first_.peer->count<wire::Ack>() > acks; }, "its exit is stored");
    EXPECT_TRUE(place(id, 0)->may_grow) << "rank 1 may fail yet, and both be started again";
    EXPECT_TRUE(place(id, 0, 1)->may_grow) << "in the same attempt";
}

TEST_F(LogPlaceTest, AnAttemptThatIsNamedIsTheOne) {
    const std::string id = requeued();
    const auto first = place(id, 0, 1);
    ASSERT_TRUE(first.has_value()) << first.error().text();
    EXPECT_EQ(name_of(first->path), "a1/rank-00000.log");
    EXPECT_FALSE(first->may_grow) << "it is over, though the job is not";
    EXPECT_EQ(place(id, 0, 2).error().code, Errc::unavailable) << "it waits";
    EXPECT_EQ(place(id, 0, 3).error().code, Errc::not_found);
}

TEST_F(LogPlaceTest, TheLaunchersOutputIsOfTheSameAttempt) {
    const std::string id = requeued("node");
    const auto waiting = place(id, 1);
    ASSERT_TRUE(waiting.has_value()) << waiting.error().text();
    EXPECT_EQ(name_of(waiting->instead), "a1/rank-00001.log");
}

// It was "not started" for ever.
TEST_F(LogPlaceTest, OfAJobThatIsCancelledWhileItsNextAttemptWaitsItIsTheOneBefore) {
    const std::string id = requeued();
    scheduler_.seen = {Observation::Kind::state, AllocationState::running, "", {}, {}, ""};
    scheduler_.seen_until = 2;
    auto cancel = [&]() -> Task<void> { co_await control_->commands().cancel(ada_, id); };
    wait(cancel());
    until([&] { return state(id) == "cancelled"; }, "cancelled");
    const auto left = place(id, 0);
    ASSERT_TRUE(left.has_value()) << left.error().text();
    EXPECT_EQ(left->attempt, 1);
    EXPECT_EQ(name_of(left->path), "a1/rank-00000.log");
    EXPECT_FALSE(left->may_grow);
}

}  // namespace
}  // namespace lockstep
