#include "scheduler-integration/slurm/slurm_reason.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace lockstep {
namespace {

using testing::HasSubstr;
using enum ReasonClass;

TEST(SlurmReason, CommonReasonsHaveTheirClassAndWhatToChange) {
    const std::vector<std::tuple<std::string_view, ReasonClass, std::string_view>> table{
        {"", waiting, ""},
        {"None", waiting, ""},
        {"Priority", waiting, ""},
        {"Resources", waiting, ""},
        {"(Resources)", waiting, ""},
        {"Dependency", waiting, ""},
        {"DependencyNeverSatisfied", never, "without the dependency"},
        {"JobHeldUser", held, "release"},
        {"JobHeldAdmin", held, "administrators"},
        {"BeginTime", waiting, ""},
        {"Licenses", waiting, ""},
        {"Reservation", waiting, ""},
        {"ReservationDeleted", held, "without the reservation"},
        {"ReqNodeNotAvail", waiting, "other nodes"},
        {"ReqNodeNotAvail, UnavailableNodes:n[1-2]", waiting, "other nodes"},
        {"(ReqNodeNotAvail, Reserved for maintenance)", waiting, "shorten time_limit"},
        {"ReqNodeNotAvail,_Reserved_for_maintenance", waiting, "shorten time_limit"},
        {"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
         "partitions",
         waiting, ""},
        {"NodeDown", waiting, "other nodes"},
        {"FrontEndDown", waiting, "administrators"},
        {"PartitionDown", waiting, "another partition"},
        {"PartitionInactive", waiting, "another partition"},
        {"PartitionNodeLimit", never, "change nodes"},
        {"PartitionTimeLimit", never, "shorten time_limit"},
        {"PartitionConfig", never, "another partition"},
        {"BadConstraints", never, "constraint"},
        {"InvalidAccount", never, "another account"},
        {"InvalidQOS", never, "another QOS"},
        {"AccountNotAllowed", never, "account"},
        {"QOSNotAllowed", never, "QOS"},
        {"QOSUsageThreshold", limit, "another QOS"},
        {"MaxMemPerLimit", never, "less memory"},
        {"JobHoldMaxRequeue", held, "does not start"},
        {"MaxRequeue", held, "does not start"},
        {"launch failed requeued held", held, "administrators"},
        {"launch failure limit exceeded requeued held", held, "administrators"},
        {"user env retrieval failed requeued held", held, "administrators"},
        {"job requeued in held state", held, "release"},
        {"Job's account not permitted to use this partition (low allows zz not root)", never,
         "another account"},
        {"Job's QOS not permitted to use this partition (low allows zz not normal)", never,
         "another QOS"},
        {"DeadLine", never, "submit it again"},
        {"JobArrayTaskLimit", waiting, ""},
        {"BurstBufferOperation", held, "administrators"},
    };
    for (const auto& [reason, reason_class, change] : table) {
        const Explanation told = explain_reason(reason, {});
        EXPECT_EQ(told.reason_class, reason_class) << reason;
        EXPECT_EQ(classify_reason(reason), reason_class) << reason;
        EXPECT_FALSE(told.text.empty()) << reason;
        EXPECT_THAT(told.change, HasSubstr(std::string{change})) << reason;
        EXPECT_EQ(told.change.empty(), change.empty()) << reason;
    }
}

TEST(SlurmReason, LimitsOfQosAndAccountAreReadFromTheirNames) {
    const std::vector<std::tuple<std::string_view, ReasonClass, std::string_view>> table{
        {"QOSMaxJobsPerUserLimit", limit, "one user of its QOS is at the limit of running jobs"},
        {"QOSMaxGRESPerUser", limit, "one user of its QOS is at the limit of GPUs"},
        {"QOSMaxCpuPerUserLimit", limit, "one user of its QOS is at the limit of CPUs"},
        {"QOSMaxNodePerUserLimit", limit, "limit of nodes"},
        {"QOSMaxMemoryPerUser", limit, "limit of memory"},
        {"QOSMaxSubmitJobPerUserLimit", limit, "submitted jobs"},
        {"QOSGrpNodeLimit", limit, "its QOS is at the limit of nodes"},
        {"QOSGrpGRES", limit, "its QOS is at the limit of GPUs"},
        {"QOSGrpGRESMinutes", limit, "its QOS has used up its budget of GPUs"},
        {"QOSGrpCPURunMinutesLimit", limit, "the running jobs of its QOS"},
        {"QOSGrpWallLimit", limit, "used up its budget of wall time"},
        {"QOSMaxWallDurationPerJobLimit", never, "asks for more wall time than"},
        {"QOSMaxGRESPerJob", never, "asks for more GPUs"},
        {"QOSMaxGRESPerNode", never, "on a node"},
        {"QOSMaxCpuMinutesPerJobLimit", never, "asks for more CPUs than"},
        {"QOSMinGRES", never, "asks for less GPUs"},
        {"QOSMinCpuNotSatisfied", never, "asks for less CPUs"},
        {"QOSMinMemory", never, "asks for less memory"},
        {"QOSJobLimit", limit, "its QOS is at the limit of running jobs"},
        {"QOSResourceLimit", limit, "resources"},
        {"QOSTimeLimit", limit, "wall time"},
        {"AssocGrpCpuLimit", limit, "its account is at the limit of CPUs"},
        {"AssocGrpGRES", limit, "its account is at the limit of GPUs"},
        {"AssocGrpCPUMinutesLimit", limit, "its account has used up its budget of CPUs"},
        {"AssocGrpBillingMinutes", limit, "used up its budget of billing units"},
        {"AssocGrpMemRunMinutes", limit, "the running jobs of its account"},
        {"AssocMaxJobsLimit", limit, "its account is at the limit of running jobs"},
        {"AssocMaxWallDurationPerJobLimit", never, "asks for more wall time than"},
        {"AssocMaxNodePerJobLimit", never, "asks for more nodes than"},
        {"AssocMaxGRESMinutesPerJob", never, "asks for more GPUs"},
        {"AssociationJobLimit", limit, "its account is at the limit of running jobs"},
        {"MaxGRESPerAccount", limit, "one account of its QOS is at the limit of GPUs"},
        {"MaxJobsPerAccount", limit, "running jobs"},
        {"MaxSubmitJobsPerAccount", limit, "submitted jobs"},
        {"AssocGrpLicense", limit, "licences"},
        {"QOSGrpEnergy", limit, "energy"},
        {"AssocGrpBB", limit, "burst buffer"},
        {"QOSSomethingOfTheFuture", limit, "resources"},
    };
    for (const auto& [reason, reason_class, text] : table) {
        const Explanation told = explain_reason(reason, {});
        EXPECT_EQ(told.reason_class, reason_class) << reason;
        EXPECT_THAT(told.text, HasSubstr(std::string{text})) << reason;
        EXPECT_FALSE(told.change.empty()) << reason;
    }
    EXPECT_THAT(explain_reason("QOSMaxWallDurationPerJobLimit", {}).change,
                HasSubstr("shorten time_limit"));
}

TEST(SlurmReason, AReasonWeDoNotKnowIsShownAsItIs) {
    EXPECT_EQ(explain_reason("SomethingNew", {}).text, "SomethingNew");
    EXPECT_EQ(classify_reason("SomethingNew"), waiting);
    EXPECT_EQ(explain_reason("odd\x1b[31m\x07 text", {}).text, "odd[31m text");
    EXPECT_LE(explain_reason(std::string(1 << 20, 'x'), {}).text.size(), 256U);
}

TEST(SlurmReason, TheJobAddsWhatItKnows) {
    SlurmJob job;
    job.partition = "gpu";
    job.restarts = 5;
    EXPECT_THAT(explain_reason("PartitionTimeLimit", job).text, HasSubstr("(partition gpu)"));
    EXPECT_THAT(explain_reason("JobHoldMaxRequeue", job).text, HasSubstr("6 times"));
    EXPECT_THAT(explain_reason("Resources", job).text, testing::Not(HasSubstr("gpu")));
    EXPECT_EQ(to_string(waiting), "waiting");
    EXPECT_EQ(to_string(never), "never");
}

TEST(SlurmReason, ACodeIsOneWordOfAFewWhateverSlurmPrints) {
    EXPECT_EQ(reason_code(""), "None");
    EXPECT_EQ(reason_code("Resources"), "Resources");
    EXPECT_EQ(reason_code("(ReqNodeNotAvail, UnavailableNodes:n[1-2])"), "ReqNodeNotAvail");
    EXPECT_EQ(reason_code("ReqNodeNotAvail,_Reserved_for_maintenance"), "ReqNodeNotAvail");
    EXPECT_EQ(reason_code("launch failed requeued held"), "other");
    EXPECT_EQ(reason_code("a\"b"), "other");
    EXPECT_EQ(reason_code(std::string(65, 'a')), "other");
}

}  // namespace
}  // namespace lockstep
