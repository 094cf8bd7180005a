// What lockstepd tells about its dealings with Slurm.
#include "daemon/lockstepd/slurm_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

class SlurmMetricsTest : public testing::Test {
  protected:
    std::string text() {
        slurm_.refresh();
        std::string out;
        telemetry::MetricText to{telemetry::TextFormat::prometheus, out};
        daemon_.write(to);
        to.end();
        return out;
    }

    telemetry::DaemonMetrics daemon_;
    SlurmMetrics slurm_{daemon_};
    SlurmValues values_;
};

// It was 0, and the alert on a silent Slurm fired on a new installation whose users had no job yet.
TEST_F(SlurmMetricsTest, BeforeTheFirstAnswerThereIsNoTimeOfTheLastOne) {
    slurm_.follow([this] { return values_; });
    EXPECT_THAT(text(), HasSubstr("\nlockstep_slurm_attempts 0\n"));
    EXPECT_THAT(text(), Not(HasSubstr("lockstep_slurm_last_success_timestamp_seconds")));
    values_.last_success = 1234.5;
    EXPECT_THAT(text(), HasSubstr("\nlockstep_slurm_last_success_timestamp_seconds 1234.5\n"));
    values_.last_success = 1240.5;
    const std::string later = text();
    EXPECT_THAT(later, HasSubstr("\nlockstep_slurm_last_success_timestamp_seconds 1240.5\n"));
    EXPECT_THAT(later, Not(HasSubstr("1234.5")));
}

TEST_F(SlurmMetricsTest, JobsInSlurmAreCountedByPartitionAndStateAndGoWithTheLastOne) {
    values_.jobs = {{{"gpu", "PENDING"}, 3}, {{"gpu", "RUNNING"}, 2}};
    slurm_.follow([this] { return values_; });
    const std::string both = text();
    EXPECT_THAT(both, HasSubstr("\nlockstep_slurm_jobs{partition=\"gpu\",state=\"PENDING\"} 3\n"));
    EXPECT_THAT(both, HasSubstr("\nlockstep_slurm_jobs{partition=\"gpu\",state=\"RUNNING\"} 2\n"));
    values_.jobs = {{{"gpu", "RUNNING"}, 5}};
    const std::string later = text();
    EXPECT_THAT(later, HasSubstr("\nlockstep_slurm_jobs{partition=\"gpu\",state=\"RUNNING\"} 5\n"));
    EXPECT_THAT(later, Not(HasSubstr("state=\"PENDING\"")));
}

}  // namespace
}  // namespace lockstep
