// Commands under an Idempotency-Key, as the fold knows them.
#include "job/model/command_keys.hpp"

#include "tests/unit/model/recovery_fixture.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

bool known_as(const Job& job, const std::string& key, Command command,
              const std::string& user = "ada") {
    const Command* found = job.command_keys.find(user, key);
    return found != nullptr && *found == command;
}

event::RestartRequested restart_under(const History& h, const std::string& key) {
    return {h.attempt_number(), h.generation_number(), "ada", "", key};
}

TEST(CommandKeys, TheNewestAreKnownAndNoMore) {
    CommandKeys keys;
    for (std::size_t i = 0; i <= limits::kCommandKeys; ++i) {
        keys.note("ada", std::to_string(i), Command::restart);
        keys.note("ada", std::to_string(i), Command::checkpoint);  // it stays what it was
    }
    keys.note("ada", "", Command::restart);
    EXPECT_EQ(keys.size(), limits::kCommandKeys);
    EXPECT_EQ(keys.find("ada", "0"), nullptr);
    EXPECT_EQ(keys.find("ada", ""), nullptr);
    ASSERT_NE(keys.find("ada", "1"), nullptr);
    EXPECT_EQ(*keys.find("ada", std::to_string(limits::kCommandKeys)), Command::restart);
    EXPECT_EQ(keys.find("bob", "1"), nullptr) << "another's is another key";
}

TEST(CommandKeys, ACommandOfAJobIsKnownByItsKeyUntilAndAfterTheJobsEnd) {
    History h = running(kOn);
    h.must(event::CheckpointRequested{1, 1, "ada", "USR2", -1, "", "", "save"});
    h.must(restart_under(h, "anew"));
    EXPECT_EQ(h.job.restart_requested_by, "ada");
    h.must(h.end_of_generation(CauseClass::restart_requested, 5));
    h.again();
    h.attempt_ends(CauseClass::preempted);
    h.must(event::Finished{JobState::failed, {}, 5});
    EXPECT_TRUE(known_as(h.job, "save", Command::checkpoint));
    EXPECT_TRUE(known_as(h.job, "anew", Command::restart));
    EXPECT_FALSE(known_as(h.job, "anew", Command::restart, "bob"));
}

// The answer of each may be lost, and each may be asked for again after the next generation began.
TEST(CommandKeys, AKeyForARestartThatIsOnItsWayIsNotedAndBeginsNothing) {
    History h = running(kOn);
    h.must(restart_under(h, "first"));
    EXPECT_EQ(h.job.keys_joining, 0U);
    h.must(event::RestartRequested{1, 1, "bob", "", "second"});
    EXPECT_FALSE(h.add(event::RestartRequested{1, 1, "bob"}).has_value()) << "nothing to note";
    EXPECT_FALSE(h.add(event::RestartRequested{1, 2, "ada", "", "of none"}).has_value());
    EXPECT_EQ(h.job.restart_requested_by, "ada");
    h.must(h.end_of_generation(CauseClass::restart_requested, 5));
    ASSERT_EQ(h.job.state, JobState::restarting);
    h.must(restart_under(h, "third"));
    EXPECT_EQ(h.job.state, JobState::restarting);
    EXPECT_EQ(h.job.keys_joining, 2U);
    EXPECT_EQ(due_of(h), ActionKind::gather);
    h.again();
    EXPECT_EQ(h.job.keys_joining, 0U) << "bounded in each generation";
    EXPECT_EQ(due_of(h), ActionKind::watch) << "none of them ends this one";
    EXPECT_TRUE(known_as(h.job, "first", Command::restart));
    EXPECT_TRUE(known_as(h.job, "second", Command::restart, "bob"));
    EXPECT_TRUE(known_as(h.job, "third", Command::restart));
}

TEST(CommandKeys, BetweenTwoAttemptsAKeyIsNotedToo) {
    History h = running(kOn);
    h.attempt_ends(CauseClass::preempted);
    ASSERT_EQ(h.job.state, JobState::requeued);
    h.must(restart_under(h, "k"));
    EXPECT_EQ(h.job.state, JobState::requeued);
    EXPECT_EQ(h.job.restart_requested_by, "");
    History never = History{spec(kOn)};  // its first attempt has had no generation
    never.attempt();
    never.placed();
    never.attempt_ends(CauseClass::preempted);
    never.must(restart_under(never, "k"));
    EXPECT_TRUE(known_as(never.job, "k", Command::restart));
}

}  // namespace
}  // namespace lockstep
