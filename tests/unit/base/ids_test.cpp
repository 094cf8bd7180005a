#include "job/base/ids.hpp"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

TEST(JobIds, AscendWithinAMillisecondAndWhenTheClockStepsBack) {
    std::string last = make_job_id(1'700'000'000'000).value;
    for (int i = 0; i < 1000; ++i) {
        const std::string next = make_job_id(1'700'000'000'000 - i % 7).value;
        EXPECT_LT(last, next);
        EXPECT_TRUE(is_job_id(next));
        last = next;
    }
}

TEST(JobIds, CarryTheTimeTheyWereMadeAt) {
    // 2^40 ms in base 32 with 10 characters of time: 2^40 = 1 followed by eight zeros.
    EXPECT_EQ(make_job_id(UnixMillis{1} << 41U).value.substr(0, 13), "ls-0200000000");
}

TEST(JobIds, AreAllThatMayBecomePartOfAPath) {
    EXPECT_FALSE(is_job_id("ls-../../etc/passwd1234567890"));
    EXPECT_FALSE(is_job_id("ls-01J0000000000000000000000"));
    EXPECT_FALSE(is_job_id("ls-01j00000000000000000000000"));
    EXPECT_FALSE(is_job_id("ls-81J00000000000000000000000"));
    EXPECT_FALSE(is_job_id("xx-01J00000000000000000000000"));
    EXPECT_FALSE(is_job_id("ls-01J0000000000000000000000U"));
    EXPECT_TRUE(is_job_id("ls-01J00000000000000000000000"));
}

TEST(Secrets, AreLongAndDiffer) {
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
        const std::string secret = random_secret();
        EXPECT_EQ(secret.size(), 64U);
        EXPECT_TRUE(seen.insert(secret).second);
    }
}

}  // namespace
}  // namespace lockstep
