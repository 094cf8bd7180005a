// A submission of unknown outcome waits for the credential's lifetime once, however often lockstepd
// is started meanwhile, and never for less.
#include "scheduler-integration/slurm/slurm_doubt.hpp"

#include "tests/support/test_clock.hpp"
#include "tests/unit/slurm/slurm_scheduler_fixture.hpp"

namespace lockstep {
namespace {

using testing::HasSubstr;

class SlurmDoubtTest : public SlurmSchedulerTest {
  protected:
    SlurmDoubtTest() { shown_ = &time_; }
    void begin() {
        SlurmScheduler::Options options;
        options.reads_per_second = 1000;
        options.quarantine = 360s;
        options.steady_clock = steady_clock_;
        start(options);
    }
    // lockstepd is stopped, or killed, and started: another try has no intent.
    void restart() {
        TearDown();
        job_.intent_is_fresh = false;
        begin();
        hand_over(job_);
    }
    // After so much more time, and two answers of squeue.
    bool waits_after(std::chrono::seconds time) {
        time_.advance(time);
        const int before = slurm_->queries;  // the third begins when the second has been settled
        until([&] {
            time_.advance(1ms);
            return slurm_->queries >= before + 3;
        });
        last_ = wait<Handover>(scheduler_->submit(job_));
        return last_.kind == Handover::Kind::wait;
    }
    // It may be handed in again; throws if it never may.
    void is_over_after(std::chrono::seconds time) {
        time_.advance(time);
        until([&] {
            time_.advance(1ms);
            last_ = wait<Handover>(scheduler_->submit(job_));
            return last_.kind == Handover::Kind::again;
        });
        EXPECT_EQ(slurm_->submissions, 0) << "of this daemon: the intent first";
    }
    void expect_the_whole_wait() {
        EXPECT_TRUE(waits_after(350s));
        is_over_after(20s);
    }
    // This daemon's sbatch got no answer.
    void lose_the_reply() {
        SubmitReply lost;
        lost.kind = SubmitReply::Kind::ambiguous;
        lost.message = "Socket timed out";
        slurm_->says = lost;
        until([&] {
            time_.advance(1ms);
            hand_over(job_);
            return last_.reason.find("not known yet") != std::string::npos;
        });
        until([&] { return std::filesystem::exists(file()); });
    }
    std::string file() const { return job_.directory + "/in-doubt"; }

    TestClock time_;
    std::string steady_clock_ = "this boot";
    AttemptRequest job_ = request(job_name(1));
};

TEST_F(SlurmDoubtTest, TheNextDaemonWaitsForWhatIsLeft) {
    begin();
    lose_the_reply();
    time_.advance(200s);
    restart();
    EXPECT_TRUE(waits_after(150s));
    restart();
    EXPECT_TRUE(waits_after(5s));
    EXPECT_THAT(last_.reason, HasSubstr("not known yet"));
    is_over_after(10s);
}

// lockstepd died beside its sbatch: when that did is not known, only that it did.
TEST_F(SlurmDoubtTest, OfADaemonThatWasKilledTheNextOneBegins) {
    job_.intent_at = time_.wall();
    time_.advance(1000s);
    begin();
    hand_over(job_);
    until([&] { return std::filesystem::exists(file()); });
    EXPECT_TRUE(waits_after(350s));
    restart();
    is_over_after(20s);
}

// What the wall says is no time that has passed: slurmctld may still read the request.
TEST_F(SlurmDoubtTest, AClockThatIsSetAheadShortensNothing) {
    begin();
    lose_the_reply();
    time_.set_ahead(24h);
    restart();
    expect_the_whole_wait();
}

TEST_F(SlurmDoubtTest, AfterAStartOfTheMachineTheWaitIsTheWholeOne) {
    begin();
    lose_the_reply();
    time_.advance(300s);
    steady_clock_ = "another boot";
    restart();
    expect_the_whole_wait();
}

TEST_F(SlurmDoubtTest, AnotherTryHasADoubtOfItsOwn) {
    begin();
    lose_the_reply();
    time_.advance(300s);
    job_.intent_at += 1;
    restart();
    expect_the_whole_wait();
}

TEST_F(SlurmDoubtTest, ATimeAheadOfTheClockIsNotBelieved) {
    begin();
    lose_the_reply();
    ASSERT_TRUE(replace_file(
        file(), to_text({steady_clock_, job_.intent_at, time_.steady() + 100s}), 0600));
    restart();
    expect_the_whole_wait();
}

TEST_F(SlurmDoubtTest, ARestoredStoreBelievesNoFile) {
    begin();
    lose_the_reply();
    time_.advance(355s);
    job_.follow_only = "restored from a backup";
    restart();
    EXPECT_TRUE(waits_after(20s));
}

TEST(SlurmDoubt, IsReadAsItIsWrittenAndNothingElseIs) {
    const SlurmDoubt doubt{"boot/time:[4026531834]", 1'700'000'000'001, SteadyTime{12'345'678ns}};
    const auto again = parse_doubt(to_text(doubt));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->clock, doubt.clock);
    EXPECT_EQ(again->intent_at, doubt.intent_at);
    EXPECT_EQ(again->last_try_end, doubt.last_try_end);
    for (const char* text : {"", "boot\n1\n2", "boot\n1\n", "boot\n1\n2\n3\n", "boot\nx\n2\n",
                             "boot\n1\n2x\n", "boot\n1\n99999999999999999999\n"}) {
        EXPECT_FALSE(parse_doubt(text)) << text;
    }
}

TEST(SlurmDoubt, TheClocksNameIsThatOfEachProcessHere) {
    EXPECT_GE(steady_clock_name().size(), 36U);
    EXPECT_EQ(steady_clock_name(), steady_clock_name());
}

}  // namespace
}  // namespace lockstep
