#include "job/cli/job_names.hpp"

#include "tests/unit/cli/fake_daemon.hpp"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

constexpr const char* kOtherJob = "ls-01JCXW3V5N8Q2R7T9ZABCDEFGJ";

std::string listed(const std::vector<std::pair<std::string, std::string>>& ids_and_states) {
    std::string items;
    for (const auto& [id, state] : ids_and_states) {
        items += (items.empty() ? "" : ",");
        items += R"({"id":")" + id + R"(","state":")" + state + R"("})";
    }
    return R"({"items":[)" + items + "]}";
}

TEST(JobNames, AWholeIdIsTakenWithoutAsking) {
    FakeDaemon daemon;
    EXPECT_EQ(find_job(daemon.client(), kId, true)->id, kId);
    EXPECT_EQ(find_job(daemon.client(), "LS-01jcxw3v5n8q2r7t9zabcdefgh", false)->id, kId);
    EXPECT_TRUE(daemon.asked.empty());
}

TEST(JobNames, AnyUniquePartOfAnIdIsEnough) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?limit=500&name=", 200, R"({"items":[]})");
    daemon.on("GET /v1/jobs?limit=500&cursor=p%2F2", 200, listed({{kId, "running"}}));
    daemon.on("GET /v1/jobs", 200,
              R"({"items":[{"id":"ls-01JCXX3V5N8Q2R7T9ZABCDEFGJ"}],"next_cursor":"p/2"})");
    for (const char* text : {"ls-01jcxw", "01JCXW", "defgh", "…ABCDEFGH", "~CDEFGH"}) {
        const auto found = find_job(daemon.client(), text, false);
        ASSERT_TRUE(found.has_value()) << text << ": " << found.error().message;
        EXPECT_EQ(found->id, kId) << text;
    }
    EXPECT_EQ(find_job(daemon.client(), "ls-01JAAA", false).error().code, Errc::not_found);
}

TEST(JobNames, APartOfTwoIdsIsRefusedAndNamesThem) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?limit=500&name=", 200, R"({"items":[]})");
    daemon.on("GET /v1/jobs", 200, listed({{kId, "running"}, {kOtherJob, "running"}}));
    const auto found = find_job(daemon.client(), "01JCXW3V", false);
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().code, Errc::conflict);
    EXPECT_NE(found.error().message.find(kOtherJob), std::string::npos);
}

TEST(JobNames, ANameIsTheNewestOfThatNameAndSaysSo) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?limit=500&name=train", 200,
              listed({{kOtherJob, "succeeded"}, {kId, "running"}}));
    const auto found = find_job(daemon.client(), "train", false);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->id, kOtherJob);
    EXPECT_NE(found->note.find("the newest of 2 jobs"), std::string::npos);
}

TEST(JobNames, WhatActsTakesTheOneThatHasNotEndedAndNeverGuesses) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?limit=500&name=train", 200,
              listed({{kOtherJob, "succeeded"}, {kId, "running"}}));
    daemon.on("GET /v1/jobs?limit=500&name=twice", 200,
              listed({{kOtherJob, "queued"}, {kId, "running"}}));
    EXPECT_EQ(find_job(daemon.client(), "train", true)->id, kId);
    const auto twice = find_job(daemon.client(), "twice", true);
    ASSERT_FALSE(twice.has_value());
    EXPECT_EQ(twice.error().code, Errc::conflict);
}

TEST(JobNames, LastIsTheCallersNewest) {
    FakeDaemon daemon;
    daemon.on("GET /v1/whoami", 200, R"({"user":"ada"})");
    daemon.on("GET /v1/jobs?limit=500&user=ada", 200, listed({{kId, "running"}}));
    EXPECT_EQ(find_job(daemon.client(), "last", false)->id, kId);
}

TEST(JobNames, ANumberIsALineOfTheList) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs", 200, listed({{kOtherJob, "running"}, {kId, "running"}}));
    EXPECT_EQ(find_job(daemon.client(), "@2", false)->id, kId);
    EXPECT_EQ(find_job(daemon.client(), "@3", false).error().message, "there are only 2 jobs");
    for (const char* text : {"@", "@0", "@x", "@-1"}) {
        EXPECT_EQ(find_job(daemon.client(), text, false).error().code, Errc::invalid) << text;
    }
}

TEST(JobNames, WhatIsNoNameNeverReachesAPath) {
    FakeDaemon daemon;
    daemon.on("GET /v1/jobs?limit=500&name=", 200, R"({"items":[]})");
    for (const char* text : {"", "ls-", "../../etc", "ls-01JCX/../..", "ls-01JCXW?x"}) {
        EXPECT_FALSE(find_job(daemon.client(), text, false).has_value()) << text;
    }
    for (const ClientRequest& request : daemon.asked) {
        EXPECT_EQ(request.target.find("/v1/jobs?limit=500&name="), 0U) << request.target;
    }
}

TEST(JobNames, ShortFormsBeginWhereTheIdsDiffer) {
    std::vector<Json> jobs{{{"id", kId}}, {{"id", kOtherJob}}};
    EXPECT_EQ(short_id_length(jobs), 6U);
    jobs.push_back({{"id", "ls-01JCXW3V5N8Q2R7T9YABCDEFGJ"}});
    EXPECT_EQ(short_id_length(jobs), 9U);
    EXPECT_EQ(short_id(kId, 6, true), "…CDEFGH");
    EXPECT_EQ(short_id(kId, 6, false), "~CDEFGH");
    EXPECT_EQ(short_id(kId, std::string::npos, true), kId);
    // Jobs without ids of their own never make it look for a length that does not exist.
    EXPECT_LE(short_id_length({Json(), Json()}), 30U);
}

}  // namespace
}  // namespace lockstep::cli
