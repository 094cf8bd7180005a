#include "scheduler-integration/slurm/slurm_copies.hpp"
#include "tests/unit/slurm/slurm_attempt_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>

namespace lockstep {
namespace {

using Stage = SlurmAttempt::Stage;

// A Slurm that behaves as measured: it may take a request and not say so, take it only later (any
// time within the credential's lifetime), forget an acknowledged job that has not been saved, and
// answer "none" while it has not read a request. The daemon is killed at random. Whatever happens,
// no job is lost and no two copies are ever claimed.
struct World {
    struct Copy {
        std::int64_t id;
        SteadyTime appears;  // when slurmctld reads the request
        bool gone = false;
        bool started = false;
        bool refused = false;  // ended by Slurm before its agent could call
    };
    static constexpr std::array kAccidents{"CANCELLED", "NODE_FAIL", "FAILED"};
    std::mt19937_64 random;
    SteadyTime now = kStart;
    std::vector<Copy> copies;
    std::int64_t next_id = 1;
    // What the store keeps.
    UnixMillis intent_at = 0;
    std::string recorded;
    std::string claimed;

    bool chance(int percent) { return static_cast<int>(random() % 100) < percent; }
    void send(SlurmAttempt& attempt) {
        intent_at =
            std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
        recorded.clear();
        attempt.stage = Stage::sending;
        attempt.id = 0;
        const auto kind = random() % 5;
        SubmitReply answer = reply(SubmitReply::Kind::ambiguous);
        if (kind <= 1) {
            copies.push_back({next_id, now});
            answer = reply(SubmitReply::Kind::accepted, next_id++);
        } else if (kind == 2) {  // taken, maybe much later, and nothing said
            copies.push_back({next_id++, now + std::chrono::seconds{random() % 300}});
        } else if (kind == 3) {
            answer = reply(SubmitReply::Kind::not_submitted);
        }
        take_reply(attempt, answer, now);
        if (!chance(20)) {  // else: killed before it was recorded
            recorded = attempt.id != 0 ? std::to_string(attempt.id) : "";
        } else {
            attempt = take_up(saved(), now);
        }
    }
    AttemptRequest saved() const { return request(intent_at, false, recorded, claimed); }
    std::vector<SlurmJob> rows() const {
        std::vector<SlurmJob> out;
        for (const Copy& copy : copies) {
            if (!copy.gone && copy.appears <= now) {
                out.push_back(
                    copy.refused
                        ? ended_at_its_start(copy.id,
                                             kAccidents.at(static_cast<std::size_t>(copy.id) % 3))
                        : row(copy.id, copy.started ? "RUNNING" : "PENDING"));
            }
        }
        return out;
    }
};

TEST(SlurmAttempt, NothingIsLostAndNothingIsClaimedTwiceWhateverSlurmDoes) {
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
        World world;
        world.random.seed(seed);
        SlurmAttempt attempt = take_up(request(), world.now);
        std::set<std::string> claims;
        int refusals = 0;
        for (int round = 0; round < 2'000 && world.claimed.empty(); ++round) {
            world.now += std::chrono::seconds{1 + world.random() % 8};
            // A restart begins the quarantine anew: a daemon that never lives so long never sends.
            if (round < 300 && world.chance(3)) {
                attempt = take_up(world.saved(), world.now);  // kill -9, restart
            }
            if (world.chance(2)) {  // slurmctld dies: what was not saved is forgotten
                for (auto& copy : world.copies) {
                    copy.gone = copy.gone || (world.now - copy.appears < 5s && !copy.started &&
                                              copy.appears <= world.now);
                }
            }
            if (handover(attempt).kind == Handover::Kind::again) {
                ASSERT_TRUE(may_send(attempt));
                world.send(attempt);
            } else if (handover(attempt).kind == Handover::Kind::placed) {
                world.recorded = handover(attempt).id;
            }
            take_rows(attempt, world.rows(), world.now, kPatience);
            if (wants_detail(attempt)) {
                SlurmJobDetail detail;
                detail.exit_code = attempt.seen->state.base == SlurmBase::failed ? 1 : 0;
                take_detail(attempt, detail, kPatience);
            }
            if (wants_history(attempt, world.now)) {
                take_history(attempt, {}, world.now, kPatience);
            }
            for (const std::int64_t id : attempt.surplus) {
                for (auto& copy : world.copies) {
                    copy.gone = copy.gone || (copy.id == id && !copy.started);
                }
            }
            for (auto& copy : world.copies) {
                if (!copy.gone && !copy.refused && copy.appears <= world.now && world.chance(10)) {
                    if (!copy.started && refusals < 3 && world.chance(30)) {
                        copy.refused = true;
                        ++refusals;
                        continue;
                    }
                    copy.started = true;
                    // The agent's HELLO: the daemon takes one allocation and fences the others.
                    if (world.claimed.empty() && may_claim(attempt, copy.id)) {
                        world.claimed = std::to_string(copy.id);
                        attempt.claimed = copy.id;
                        claims.insert(world.claimed);
                    }
                }
            }
        }
        ASSERT_EQ(claims.size(), 1U)
            << "seed " << seed << ": lost; stage " << static_cast<int>(attempt.stage) << " id "
            << attempt.id << " " << attempt.message;
        const auto alive =
            std::count_if(world.copies.begin(), world.copies.end(),
                          [](const auto& copy) { return !copy.gone && !copy.refused; });
        ASSERT_EQ(alive, 1) << "seed " << seed;
        EXPECT_FALSE(may_send(attempt)) << "seed " << seed;
    }
}

}  // namespace
}  // namespace lockstep
