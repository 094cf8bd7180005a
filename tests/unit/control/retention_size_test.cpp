// What jobs take on disk: which of them go when it is too much, and whose user submits no more.
#include "daemon/control/jobs/retention.hpp"
#include "daemon/control/jobs/stored_jobs.hpp"
#include "tests/unit/control/retention_fixture.hpp"

#include <SQLiteCpp/Database.h>
#include <gmock/gmock.h>

#include <map>
#include <utility>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(RetentionTest, BeyondTheRoomTheyMayTakeTheOldestJobsGo) {
    std::vector<std::string> ids;
    for (const char* labels : {"", R"(,"labels":{"keep":"paper"})", "", ""}) {
        ids.push_back(ended(labels));  // 120 kB
        days_pass(ids.size() < 4 ? 2 : 0);
    }
    keep_bytes_ = 200'000;
    shut_down();
    boot();
    // Three count. The last one, of today, would stay also if it took all of the room alone.
    until([&] { return show(ids[2]).is_null() && !fs::exists(runs(ids[2])); }, "two go");
    EXPECT_TRUE(show(ids[0]).is_null());
    EXPECT_FALSE(show(ids[1]).is_null()) << "it has the label keep";
    EXPECT_FALSE(show(ids[3]).is_null());
}

// Bob's only job went, because ada had filled the disk after it.
TEST_F(RetentionTest, BeyondTheRoomTheyMayTakeTheJobsOfWhoHasMostGo) {
    user_ = Caller{"bob", false, true};
    const std::string bobs = ended();
    user_ = ada_;
    std::vector<std::string> adas;
    for (int i = 0; i < 3; ++i) {
        days_pass(2);
        adas.push_back(ended());
    }
    days_pass(2);
    shut_down();
    keep_bytes_ = bytes_of(bobs) + bytes_of(adas[2]);
    boot();
    until([&] { return show(adas[1]).is_null() && !fs::exists(runs(adas[1])); }, "two go");
    EXPECT_TRUE(show(adas[0]).is_null());
    EXPECT_FALSE(show(adas[2]).is_null());
    EXPECT_FALSE(show(bobs).is_null()) << "the oldest of all, and its user's only one";
}

TEST_F(RetentionTest, WhoseJobsFillTheRoomOfOneUserSubmitsNoMoreUntilTheyAreRemoved) {
    const std::string id = ended();
    shut_down();
    user_bytes_ = 50'000;
    scheduler_.seen.state = AllocationState::pending;  // it says "ended" of the one before
    boot();
    until([&] { return context_->stored.of("ada") >= bytes_of(id); }, "measured after the start");
    const auto refused = submit("");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().why, SubmitFailure::user_quota);
    EXPECT_EQ(refused.error().code, Errc::exhausted);
    EXPECT_EQ(refused.error().retry_after_s, 0) << "nobody knows when";
    EXPECT_THAT(refused.error().message, HasSubstr("may take 5e-05 GB on disk; ada has 0.000"));
    EXPECT_THAT(refused.error().message, HasSubstr("lockstep rm"));
    EXPECT_FALSE(show(id).is_null()) << "nothing goes by itself";
    user_ = Caller{"bob", false, true};
    EXPECT_TRUE(submit(""));
    user_ = Caller{"ada", true, true};
    EXPECT_TRUE(submit("")) << "an admin has to be able to see to it";
    user_ = ada_;
    ASSERT_TRUE(remove(id).has_value());
    EXPECT_TRUE(submit("")) << "at once";
}

TEST_F(RetentionTest, ASpecificationCountsForItsUserFromItsSubmissionOn) {
    shut_down();
    user_bytes_ = 20'000;
    boot();
    const std::string large = R"(,"environment":{"A":")" + std::string(20'000, 'x') + "\"}";
    scheduler_.seen.state = AllocationState::pending;
    ASSERT_TRUE(submit(large));
    const auto refused = [&] {
        const auto more = submit("");
        return !more && more.error().why == SubmitFailure::user_quota;
    };
    EXPECT_GE(context_->stored.of("ada"), 20'000);
    EXPECT_TRUE(refused()) << "nothing has been measured yet";
    shut_down();
    boot();
    until([&] { return context_->stored.of("ada") >= 20'000; }, "and after a start");
    EXPECT_TRUE(refused());
}

// The label keep, or a job that never ends, would have been a way around the bound.
TEST_F(RetentionTest, WhatIsKeptAndWhatIsNotOverCountsForItsUser) {
    const std::string kept = ended(R"(,"labels":{"keep":"paper"})");
    scheduler_.seen.state = AllocationState::pending;
    const std::string running = submitted("");
    write(runs(running) / "a1" / "rank-00000.log", 500'000);
    shut_down();
    user_bytes_ = 1'000'000'000;
    boot();
    // 120 kB and 500 kB.
    until([&] { return context_->stored.of("ada") >= 600'000; }, "both are measured");
    EXPECT_FALSE(show(kept).is_null());
}

TEST_F(RetentionTest, WhatJustFitsTheRoomStays) {
    std::vector<std::string> ids;
    for (int i = 0; i < 3; ++i) {
        ids.push_back(ended());
        days_pass(2);
    }
    shut_down();
    keep_bytes_ = bytes_of(ids[1]) + bytes_of(ids[2]);
    boot();
    // Files go after all rows of a pass have gone.
    until([&] { return show(ids[0]).is_null() && !fs::exists(runs(ids[0])); }, "the oldest goes");
    EXPECT_FALSE(show(ids[1]).is_null()) << "with the last one it takes exactly what they may";
    EXPECT_FALSE(show(ids[2]).is_null());
}

TEST_F(RetentionTest, WhatEndedTodayStaysHoweverMuchItTakes) {
    const std::string old = ended();
    days_pass(2);
    const std::string id = ended();
    keep_bytes_ = 50'000;
    shut_down();
    boot();
    // Files go after all rows of a pass have gone.
    until([&] { return show(old).is_null() && !fs::exists(runs(old)); }, "the old one goes");
    EXPECT_FALSE(show(id).is_null());
    EXPECT_TRUE(fs::exists(runs(id)));
}

// Days that nobody has seen pass made jobs of an hour ago old enough to go.
TEST_F(RetentionTest, AClockThatJumpsAheadLetsNoFreshJobGoForItsSize) {
    const std::string old = ended();
    days_pass(2);
    const std::string id = ended();
    clock_.advance(std::chrono::hours{24 * 40});  // unseen
    keep_bytes_ = 50'000;
    shut_down();
    boot();
    // Files go after all rows of a pass have gone.
    until([&] { return show(old).is_null() && !fs::exists(runs(old)); }, "the old one goes");
    EXPECT_FALSE(show(id).is_null());
}

// Or a restart would let a user go on, or keep one from it.
TEST_F(RetentionTest, AfterAStartSpecificationsCountAsTheyDidBefore) {
    scheduler_.seen.state = AllocationState::pending;
    user_bytes_ = 1'000'000'000;
    shut_down();
    boot();
    const std::string first = submitted("");
    user_ = Caller{"bob", false, true, true};  // his wait for what is not his
    std::map<std::string, std::int64_t> expected;
    for (std::size_t i = 0; i < 20; ++i) {  // more than the store is asked for at once
        const std::int64_t had = context_->stored.of("bob");
        // They wait, so that none has a folder that is measured meanwhile.
        const std::string id = submitted(R"(,"after":[")" + first + R"("],"environment":{"A":")" +
                                         std::string(50 * i, 'x') + "\"}");
        expected[id] = context_->stored.of("bob") - had;
    }
    user_ = ada_;
    shut_down();
    {
        // None is read back for its length, which took seconds of a start with many jobs.
        SQLite::Database raw{(folder_ / "db").string(), SQLite::OPEN_READWRITE};
        raw.exec("UPDATE events SET data = '!' || substr(data, 2)");
    }
    const std::unique_ptr<Database> store = std::move(Database::open(folder_ / "db").value());
    std::map<std::string, std::int64_t> found;
    std::string before;
    for (bool more = true; more;) {
        const auto some = stored_jobs(*store, before);
        ASSERT_TRUE(some.has_value());
        for (const SpecificationSize& one : *some) {
            before = one.job.value;
            if (one.job.value != first) {
                EXPECT_EQ(one.user, "bob");
                EXPECT_TRUE(found.emplace(one.job.value, one.bytes).second) << "each once";
            }
        }
        more = !some->empty();
    }
    EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace lockstep
