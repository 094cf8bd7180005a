// Deadlines of a job whose machine has its clock set, and over a lockstepd that was away.
#include "daemon/control/machine/wait_clock.hpp"
#include "tests/unit/control/control_fixture.hpp"
#include "tests/unit/model/history.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class ControlClockTest : public ControlTest {
  protected:
    // The job looks at what is due; nobody was silent.
    void looked_at() {
        for (TestAgent& agent : agents_) {
            if (agent.session) {
                agent.say(wire::Beat{0, 1, 0});
            }
        }
        const auto polls = scheduler_.polls;
        until([&] { return scheduler_.polls > polls + 1; }, "it was looked at");
    }
    // Agents are heard as often as no silence is too long.
    void pass(std::chrono::milliseconds time) {
        while (time > 0ms) {
            const auto step = std::min<std::chrono::milliseconds>(time, 30s);
            clock_.advance(step);
            time -= step;
            looked_at();
        }
    }
    bool stopped() const { return agents_[0].peer->last<wire::Stop>() != nullptr; }
    std::string cause(const std::string& id) {
        for (TestAgent& agent : agents_) {
            agent.session->on_closed();
        }
        scheduler_.seen.state = AllocationState::ended;
        until([&] { return state(id) == "failed"; }, "failed");
        return show(id)["cause"]["class"];
    }

    TestAgent agents_[2];
};

TEST_F(ControlClockTest, AClockThatIsSetAheadEndsNoJobWithATimeLimit) {
    const std::string id = start_job_with(agents_[0], agents_[1], R"(,"time_limit":"2")");
    pass(60s);
    clock_.set_ahead(1h);
    looked_at();
    EXPECT_EQ(state(id), "running");
    pass(59s);
    EXPECT_EQ(state(id), "running");
    clock_.advance(1s);
    until([&] { return stopped(); }, "STOP: two minutes have passed");
    EXPECT_EQ(cause(id), "time_limit");
}

TEST_F(ControlClockTest, AClockThatIsSetBackGivesNoJobMoreThanItsTimeLimit) {
    const std::string id = start_job_with(agents_[0], agents_[1], R"(,"time_limit":"2")");
    pass(60s);
    clock_.set_ahead(-1h);
    pass(59s);
    EXPECT_EQ(state(id), "running");
    clock_.advance(1s);
    until([&] { return stopped(); }, "STOP: two minutes have passed");
    EXPECT_EQ(cause(id), "time_limit");
}

// An administrator may have moved it there, or the job stood still: Slurm knows, lockstepd does
// not.
TEST_F(ControlClockTest, ATimeLimitThatTheSchedulerKeepsIsNotCountedAlong) {
    scheduler_.keeps_time = true;
    const std::string id = start_job_with(agents_[0], agents_[1], R"(,"time_limit":"2")");
    pass(150s);
    EXPECT_FALSE(stopped());
    EXPECT_EQ(state(id), "running");
}

TEST_F(ControlClockTest, ATimeLimitDoesNotBeginAnewWithEachLockstepd) {
    const std::string id = start_job_with(agents_[0], agents_[1], R"(,"time_limit":"2")");
    pass(60s);
    for (TestAgent& agent : agents_) {
        agent.session->on_closed();
    }
    shut_down();
    clock_.advance(30s);  // the ranks go on
    boot();
    agents_[0] = hello(0, "i0", true);
    agents_[1] = hello(1, "i1", true);
    until([&] { return agents_[1].peer->last<wire::Welcome>() != nullptr; }, "WELCOME");
    pass(29s);
    EXPECT_EQ(state(id), "running");
    clock_.advance(1s);
    until([&] { return stopped(); }, "STOP: two minutes have passed");
    EXPECT_EQ(cause(id), "time_limit");
}

TEST_F(ControlClockTest, NodesHaveTheSameTimeToCallInHoweverTheClockIsSet) {
    for (const std::chrono::hours by : {1h, -1h}) {
        const std::string id = submit()->id;
        until([&] { return state(id) == "starting"; }, "it has its nodes");
        const int cancels = scheduler_.cancels;
        clock_.set_ahead(by);
        looked_at();
        EXPECT_EQ(state(id), "starting");
        clock_.advance(limits::kGatherTimeout - 1ms);
        looked_at();
        EXPECT_EQ(scheduler_.cancels, cancels);
        clock_.advance(1ms);
        until([&] { return scheduler_.cancels > cancels; }, "they have not called in");
        until([&] { return state(id) == "failed"; }, "failed");
        EXPECT_EQ(show(id)["cause"]["class"], "rendezvous_timeout");
        scheduler_.seen.state = AllocationState::running;
    }
}

Surroundings seen_at(std::chrono::milliseconds steady, UnixMillis wall) {
    Surroundings out;
    out.steady = std::chrono::steady_clock::time_point{steady};
    out.wall = wall;
    return out;
}

TEST(WaitClock, EachMomentCountsFromWhenItWasSeen) {
    History h;
    WaitClock waits;
    std::chrono::milliseconds steady{5000};
    const auto passed = [&](std::chrono::milliseconds time) {
        waits.look(h.job, seen_at(steady, h.now));
        steady += time;
        // Events are a second apart by the wall clock; here it is set as well.
        h.now += 3'600'000;
        return waits.waited(h.job, std::chrono::steady_clock::time_point{steady});
    };
    waits.look(h.job, seen_at(steady, h.now));
    h.attempt();
    h.placed();
    Waited waited = passed(10ms);
    EXPECT_EQ(waited.placed, 10ms);
    EXPECT_EQ(waited.ran, 10ms);
    EXPECT_EQ(waited.formed, 0ms);
    h.claims();
    h.generation();
    h.ranks_started();
    waited = passed(20ms);
    EXPECT_EQ(waited.ran, 30ms);
    EXPECT_EQ(waited.formed, 20ms);
    EXPECT_EQ(waited.failed, 0ms);
    h.must(h.exit(0, 3));
    EXPECT_EQ(passed(5ms).failed, 5ms);
    EXPECT_EQ(passed(5ms).failed, 10ms);
    EXPECT_EQ(passed(5ms).ended, 0ms);
    h.must(event::GenerationEnded{1, 1, {}});
    EXPECT_EQ(waits.waited(h.job, std::chrono::steady_clock::time_point{steady}).ended, 0ms)
        << "it is not looked at yet";
    EXPECT_EQ(passed(7ms).ended, 7ms);
    EXPECT_EQ(passed(7ms).ran, 59ms);
}

// Nodes that the scheduler had stopped were given up for not having met in time.
TEST(WaitClock, WaitingForNodesBeginsAnewWhenASuspensionEnds) {
    History h;
    WaitClock waits;
    h.attempt();
    h.placed();
    h.claims();
    h.generation();
    const auto at = [&](std::chrono::seconds steady) {
        waits.look(h.job, seen_at(steady, h.now));
        return waits.waited(h.job, std::chrono::steady_clock::time_point{steady});
    };
    at(10s);
    EXPECT_EQ(at(30s).formed, 20s);
    h.must(event::Suspended{1, false, "it is suspended"});
    at(40s);
    h.must(event::Suspended{1, true, "it is suspended"});
    Waited waited = at(500s);
    EXPECT_EQ(waited.formed, 0s);
    EXPECT_EQ(waited.placed, 0s);
    waited = at(520s);
    EXPECT_EQ(waited.formed, 20s);
    EXPECT_GE(waited.ran, 510s) << "the time limit goes on";
}

TEST(Deadlines, ASuspendedJobIsNotSaidNotToHaveMet) {
    History h;
    h.attempt();
    h.placed();
    h.claims();
    h.generation();
    const auto fault = [&] { return due(h.job, h.now + 301'000).fault.has_value(); };
    EXPECT_TRUE(fault());
    h.must(event::Suspended{1, false, "it is suspended"});
    EXPECT_FALSE(fault());
}

TEST(WaitClock, OfWhatWasBeforeItsFirstLookOnlyTheTimeLimitCounts) {
    History h;
    h.running();
    const UnixMillis placed = h.job.attempt()->placed_at;
    WaitClock waits;
    waits.look(h.job, seen_at(7s, placed + 90'000));
    const Waited waited = waits.waited(h.job, std::chrono::steady_clock::time_point{8s});
    EXPECT_EQ(waited.ran, 91s);
    EXPECT_EQ(waited.placed, 1s);
    EXPECT_EQ(waited.formed, 1s);
    WaitClock behind;
    behind.look(h.job, seen_at(7s, placed - 3'600'000));
    EXPECT_EQ(behind.waited(h.job, std::chrono::steady_clock::time_point{8s}).ran, 1s)
        << "nothing ran before it began";
    // What it knows of one attempt is not the next one's.
    h.must(event::AttemptEnded{1, {}});
    h.attempt();
    h.placed();
    waits.look(h.job, seen_at(9s, placed + 92'000));
    EXPECT_EQ(waits.waited(h.job, std::chrono::steady_clock::time_point{10s}).ran, 1s);
}

}  // namespace
}  // namespace lockstep
