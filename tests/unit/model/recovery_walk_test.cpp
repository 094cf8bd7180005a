// size: one daemon and one world, with and without errors, and their counters
// Random histories: first any event at any time, then a daemon that does what is due.
#include "job/model/invariants.hpp"
#include "job/model/recovery.hpp"
#include "tests/unit/model/history.hpp"

#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

constexpr int kWalks = 20'000;
constexpr int kEventsPerWalk = 40;
constexpr int kObedient = 2'000;

class Dice {
  public:
    explicit Dice(std::uint64_t seed) : engine_(seed) {}
    // 0 … below - 1
    int roll(int below) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(below)); }
    bool one_in(int many) { return roll(many) == 0; }

  private:
    std::mt19937_64 engine_;
};

std::string random_spec(Dice& dice) {
    const bool elastic = dice.one_in(3);
    return R"({"name":"t","framework":"command","command":["x"],"resources":{"nodes":2,)"
           R"("ranks_per_node":2,"time_limit":"5","spares":)" +
           std::to_string(dice.roll(3)) + (elastic ? R"(,"min_nodes":1)" : "") + "}" +
           (!elastic && dice.one_in(4)
                ? std::string{}
                : R"(,"recovery":{"max_restarts":)" + std::to_string(dice.roll(6)) +
                      R"(,"max_attempts":)" + std::to_string(1 + dice.roll(4)) + "}") +
           "}";
}

CauseClass random_cause(Dice& dice) {
    constexpr std::array kKinds{CauseClass::rank_exit, CauseClass::oom,       CauseClass::node_lost,
                                CauseClass::gpu_fault, CauseClass::hang,      CauseClass::preempted,
                                CauseClass::scheduler, CauseClass::time_limit};
    return kKinds[static_cast<std::size_t>(dice.roll(kKinds.size()))];
}

std::vector<std::int32_t> random_slots(const History& h, Dice& dice) {
    std::vector<std::int32_t> out;
    const std::int32_t all = h.job.spec.resources.allocated_nodes();
    for (std::int32_t slot = 0;
         slot < all && out.size() < static_cast<std::size_t>(h.job.spec.resources.nodes); ++slot) {
        const bool usable = h.job.attempt() != nullptr && h.job.attempt()->claims.contains(slot) &&
                            !h.job.attempt()->lost.contains(slot);
        if (usable || dice.one_in(10)) {
            out.push_back(slot);
        }
    }
    return out;
}

event::RankExited random_exit(const History& h, Dice& dice) {
    event::RankExited out = h.exit(dice.roll(5), dice.one_in(3) ? 1 : 0, h.now);
    out.stopped = dice.one_in(3);
    return out;
}

// Any event; numbers are mostly the current ones.
EventData random_event(const History& h, Dice& dice) {
    const std::int32_t off = dice.one_in(8) ? dice.roll(3) - 1 : 0;
    const std::int32_t attempt = h.attempt_number() + off;
    const std::int32_t generation = h.generation_number() + (dice.one_in(8) ? dice.roll(3) - 1 : 0);
    switch (dice.roll(23)) {
        case 22:
            return event::NodeReturned{attempt, dice.roll(5), "n", "j", 2};
        case 0:
            return event::AttemptCreated{attempt + 1, "", ""};
        case 1:
            return event::AttemptPlaced{attempt, "17"};
        case 2:
        case 3:
        case 4:
        case 5:
            return event::AgentClaimed{attempt, dice.roll(5), "n", "i", 1};
        case 6:
        case 7:
        case 8: {
            event::GenerationStarted started = h.next_generation();
            started.generation = generation + 1;
            started.slots = random_slots(h, dice);
            return started;
        }
        case 9:
        case 10:
            return dice.one_in(2) ? EventData{event::RanksReleased{attempt, generation}}
                                  : EventData{event::RanksStarted{attempt, generation}};
        case 11:
        case 12:
            return random_exit(h, dice);
        case 13: {
            event::FaultSeen fault = h.fault(random_cause(dice), dice.roll(5) - 1);
            fault.may_return = dice.one_in(2);
            return fault;
        }
        case 14:
            return dice.one_in(4) ? h.attempt_fault(random_cause(dice))
                                  : h.fault(random_cause(dice));
        case 15:
            return event::CheckpointSaved{attempt, generation, dice.roll(50), "p"};
        case 16:
        case 17:
            return h.end_of_generation(random_cause(dice), dice.roll(50) - 1);
        case 18: {
            event::AttemptEnded ended;
            ended.attempt = attempt;
            ended.cause.kind = random_cause(dice);
            return ended;
        }
        case 19:
            return event::RestartRequested{attempt, generation, "ada"};
        case 20:
            return dice.one_in(4) ? EventData{event::CancelRequested{"ada"}}
                                  : EventData{event::AttemptSubmitting{attempt, 1 + dice.roll(2)}};
        default:
            return dice.one_in(6) ? EventData{event::Finished{JobState::failed, {}, -1}}
                                  : EventData{event::Held{attempt, "why"}};
    }
}

// Mostly one that has a place in the job's state.
EventData next_event(const History& h, Dice& dice) {
    EventData data = random_event(h, dice);
    while (!dice.one_in(6) && !is_final(h.job.state) &&
           !next(h.job.state, static_cast<EventKind>(data.index()))) {
        data = random_event(h, dice);
    }
    return data;
}

// What holds of every job, whatever has happened to it.
void check(const Job& job, UnixMillis now) {
    int live = 0;
    for (const Attempt& attempt : job.attempts) {
        const bool newest = &attempt == &job.attempts.back();
        ASSERT_EQ(attempt.number, &attempt - job.attempts.data() + 1);
        ASSERT_TRUE(newest || attempt.finished_at != 0) << "two attempts at once";
        for (const Generation& generation : attempt.generations) {
            ASSERT_EQ(generation.number, &generation - attempt.generations.data() + 1);
            live += generation.open() ? 1 : 0;
            ASSERT_TRUE(!generation.open() || (newest && attempt.finished_at == 0));
            for (const std::int32_t slot : generation.slots) {
                ASSERT_TRUE(attempt.claims.contains(slot));
            }
            ASSERT_LE(generation.nodes, job.spec.resources.nodes);
            ASSERT_GE(generation.nodes, job.spec.resources.least_nodes());
            ASSERT_TRUE(!generation.open() ||
                        generation.exited.size() == static_cast<std::size_t>(job.world_size()));
        }
    }
    ASSERT_LE(live, 1);
    ASSERT_EQ(job.live_generation() != nullptr, live == 1);
    const Action action = due(job, now);
    ASSERT_EQ(action.kind == ActionKind::none, is_final(job.state));
    if (action.kind == ActionKind::restart) {
        // The fold lets a generation start that not all nodes have called in for; the invariants
        // (invariants.hpp), which stand before it, do not.
        const bool never_met = job.attempt()->claims.size() <
                               static_cast<std::size_t>(job.spec.resources.least_nodes());
        ASSERT_EQ(live, 1);
        ASSERT_TRUE(never_met || action.cause.kind == CauseClass::restart_requested ||
                    action.cause.kind == CauseClass::node_returned ||
                    usable_nodes(job) >= job.spec.resources.least_nodes());
    }
    if (action.kind == ActionKind::restart || action.kind == ActionKind::next_attempt) {
        ASSERT_EQ(job.cancel_requested_at, 0);
        ASSERT_TRUE(job.spec.recovery.wanted || action.cause.kind == CauseClass::restart_requested);
        ASSERT_TRUE(job.spec.resources.is_elastic() ||
                    action.cause.kind != CauseClass::node_returned);
        ASSERT_NE(action.cause.kind, CauseClass::none);
    }
}

TEST(RecoveryWalk, NoHistoryBreaksAJob) {
    std::size_t taken = 0;
    std::size_t generations = 0;
    std::size_t attempts = 0;
    std::size_t finals = 0;
    for (int walk = 0; walk < kWalks; ++walk) {
        SCOPED_TRACE(walk);
        Dice dice{static_cast<std::uint64_t>(walk)};
        History h{random_spec(dice)};
        for (int i = 0; i < kEventsPerWalk; ++i) {
            const bool was_final = is_final(h.job.state);
            const Seq before = h.job.last_seq;
            h.now += dice.one_in(20) ? 200'000 : dice.roll(2000);
            const bool added = h.add(next_event(h, dice)).has_value();
            ASSERT_FALSE(was_final && added) << "an event of a final job";
            ASSERT_EQ(h.job.last_seq != before, added);
            taken += added ? 1 : 0;
            check(h.job, h.now);
            if (HasFatalFailure()) {
                return;
            }
        }
        finals += is_final(h.job.state) ? 1 : 0;
        attempts += h.job.attempts.size();
        for (const Attempt& attempt : h.job.attempts) {
            generations += attempt.generations.size();
        }
    }
    // The walk gets about: most of it would be worth nothing if it were refused.
    EXPECT_GT(taken, 5U * kWalks);
    EXPECT_GT(generations, static_cast<std::size_t>(kWalks / 4));
    EXPECT_GT(attempts, static_cast<std::size_t>(kWalks));
    EXPECT_GT(finals, static_cast<std::size_t>(kWalks / 20));
}

// Does what is due, with a world that fails at random.
class Daemon {
  public:
    explicit Daemon(std::uint64_t seed) : dice_(seed), h_(random_spec(dice_)) {
        h_.allocation = dice_.one_in(2) ? "17" : "";
    }
    bool has_allocation() const { return !h_.allocation.empty(); }

    // Until the job is final. false: it never is.
    bool run() {
        for (int i = 0; i < 3000; ++i) {
            const Action action = due(h_.job, h_.now);
            if (action.kind == ActionKind::none) {
                return true;
            }
            if (action.fault) {
                take(*action.fault);
                continue;
            }
            act(action);
        }
        return false;
    }
    const Job& job() const { return h_.job; }
    std::string broken;  // why the fold or an invariant refused a step that was due
    int asked = 0;       // restarts that a person asked for, or a node that was back
    int shrunk = 0;      // generations of fewer nodes

  private:
    void take(const EventData& data) {
        if (const auto found = broken_by(h_.job, data)) {
            broken = kInvariantNames[static_cast<std::size_t>(*found)];
        } else if (auto added = h_.add(data); !added) {
            broken = added.error().message;
        }
    }
    void chance(const EventData& data) { static_cast<void>(h_.add(data)); }
    void act(const Action& action) {
        switch (action.kind) {
            case ActionKind::create_attempt:
                h_.attempt();
                return;
            case ActionKind::place:
                dice_.one_in(20) ? take(h_.attempt_fault(CauseClass::scheduler)) : h_.placed();
                return;
            case ActionKind::gather:
                return gather();
            case ActionKind::watch:
                return watch();
            case ActionKind::restart:
                return end_generation(action.cause);
            case ActionKind::next_attempt:
                if (h_.job.live_generation() != nullptr &&
                    dice_.one_in(2)) {  // or with its attempt
                    end_generation(action.cause);
                }
                return end_attempt(action.cause);
            default: {
                const event::Finished end = outcome(h_.job);
                if (h_.job.live_generation() != nullptr) {
                    end_generation(end.cause);
                }
                if (h_.job.attempt() != nullptr && h_.job.attempt()->finished_at == 0) {
                    end_attempt(end.cause);
                }
                return take(end);
            }
        }
    }
    void gather() {
        if (dice_.one_in(30)) {
            return take(h_.attempt_fault(CauseClass::preempted));
        }
        if (const Generation* live = h_.job.live_generation()) {
            return live->released_at == 0 ? h_.released() : h_.ranks_started();
        }
        const std::int32_t slot = dice_.roll(h_.job.spec.resources.allocated_nodes());
        if (!h_.job.attempt()->claims.contains(slot)) {
            h_.claim(slot);
        } else if (dice_.one_in(10)) {
            chance(h_.fault(CauseClass::node_lost, slot));
        }
        std::vector<std::int32_t> slots;
        for (const auto& [claimed, claim] : h_.job.attempt()->claims) {
            if (slots.size() < 2 && !h_.job.attempt()->lost.contains(claimed)) {
                slots.push_back(claimed);
            }
        }
        const auto least = static_cast<std::size_t>(h_.job.spec.resources.least_nodes());
        const bool enough = slots.size() == 2 || (slots.size() >= least && dice_.one_in(4));
        if (enough && !reason_to_stop(h_.job)) {
            shrunk += slots.size() < 2 ? 1 : 0;
            take(h_.next_generation(slots));
        }
    }
    void watch() {
        step_ += dice_.roll(4);
        switch (dice_.roll(16)) {
            case 0: {
                event::FaultSeen lost = h_.fault(
                    CauseClass::node_lost, dice_.roll(h_.job.spec.resources.allocated_nodes()));
                lost.may_return = true;
                return chance(lost);
            }
            case 5:
                return come_back();
            case 1:
                return take(h_.fault(CauseClass::hang));
            case 2:
                return take(h_.attempt_fault(CauseClass::preempted));
            case 3:
                asked += dice_.one_in(2) && h_.job.restart_requested_by.empty() ? ask() : 0;
                return;
            case 4:
                return dice_.one_in(10) ? take(event::CancelRequested{"ada"}) : void();
            default:
                return chance(h_.exit(dice_.roll(4), dice_.one_in(8) ? 1 : 0, h_.now));
        }
    }
    // One that is lost, if one is; then the ranks are started again with it.
    void come_back() {
        for (const auto& [slot, cause] : h_.job.attempt()->lost) {
            if (h_.job.spec.resources.is_elastic() && h_.job.attempt()->may_return(slot) &&
                h_.job.attempt()->claims.contains(slot)) {
                take(event::NodeReturned{h_.attempt_number(), slot, "n", "j", 2});
                if (h_.job.restart_requested_by.empty()) {
                    take(event::RestartRequested{h_.attempt_number(), h_.generation_number(),
                                                 "lockstep", "a node is there"});
                    ++asked;
                }
                return;
            }
        }
    }
    int ask() {
        take(event::RestartRequested{h_.attempt_number(), h_.generation_number(), "ada"});
        return 1;
    }
    void end_generation(const Cause& cause) {
        for (int rank = 0; rank < h_.job.world_size(); ++rank) {
            event::RankExited exit = h_.exit(rank, -1, h_.now);
            exit.signal = 15;
            exit.stopped = true;
            chance(exit);
        }
        event::GenerationEnded end = h_.end_of_generation(cause.kind, step_);
        end.cause = cause;
        take(end);
    }
    void end_attempt(const Cause& cause) {
        event::AttemptEnded end;
        end.attempt = h_.attempt_number();
        end.cause = cause;
        take(end);
    }

    Dice dice_;
    History h_;
    std::int64_t step_ = 0;
};

TEST(RecoveryWalk, EveryJobThatGetsWhatIsDueEndsWithinItsBounds) {
    std::size_t restarts = 0;
    std::size_t more_attempts = 0;
    std::size_t succeeded = 0;
    std::size_t shrunk = 0;
    for (int walk = 0; walk < kObedient; ++walk) {
        SCOPED_TRACE(walk);
        Daemon daemon{static_cast<std::uint64_t>(walk)};
        ASSERT_TRUE(daemon.run()) << to_string(daemon.job().state);
        ASSERT_EQ(daemon.broken, "");
        const RecoverySpec& recovery = daemon.job().spec.recovery;
        std::size_t again = 0;
        for (const Attempt& attempt : daemon.job().attempts) {
            again += attempt.generations.empty() ? 0 : attempt.generations.size() - 1;
        }
        const int most = (recovery.wanted ? recovery.max_restarts : 0) + daemon.asked;
        ASSERT_LE(again, static_cast<std::size_t>(most));
        const int forgiven = daemon.has_allocation() ? kUnstarted : 0;
        ASSERT_LE(
            daemon.job().attempts.size(),
            static_cast<std::size_t>((recovery.wanted ? recovery.max_attempts : 1) + forgiven));
        restarts += again;
        shrunk += static_cast<std::size_t>(daemon.shrunk);
        more_attempts += daemon.job().attempts.size() > 1 ? 1 : 0;
        succeeded += daemon.job().state == JobState::succeeded ? 1 : 0;
    }
    EXPECT_GT(restarts, static_cast<std::size_t>(kObedient / 4));
    EXPECT_GT(more_attempts, static_cast<std::size_t>(kObedient / 20));
    EXPECT_GT(succeeded, static_cast<std::size_t>(kObedient / 100));
    EXPECT_GT(shrunk, static_cast<std::size_t>(kObedient / 40));
}

}  // namespace
}  // namespace lockstep
