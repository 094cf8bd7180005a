#include "scheduler-integration/slurm/slurm_json.hpp"

#include "tests/unit/slurm/fixtures.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct Release {
    std::string file;
    std::string data_parser;
    std::string release;
    bool array;  // job_state is an array, so flags do not hide the base state
};

const std::vector<Release> kReleases{
    {"23.02/jobs_v0.0.39.json", "v0.0.39", "23.02.7", false},
    {"23.11/jobs_v0.0.40.json", "v0.0.40", "23.11.10", true},
    {"24.05/jobs_v0.0.41.json", "v0.0.41", "24.05.5", true},
    {"24.11/jobs_v0.0.42.json", "v0.0.42", "24.11.5", true},
    {"25.05/jobs_v0.0.43.json", "v0.0.43", "25.05.3", true},
    {"25.11/jobs_v0.0.44.json", "v0.0.44", "25.11.1", true},
};

// `squeue --json --states=all` of Slurm 26.05.3 as it was printed.
TEST(SlurmJson, ReadsWhatALive2605Prints) {
    const auto parsed = parse_slurm_jobs_json(slurm_fixture("26.05/jobs_v0.0.45.json"));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->data_parser, "v0.0.45");
    EXPECT_EQ(parsed->slurm_release, "26.05.3");
    EXPECT_EQ(parsed->malformed, 0U);
    ASSERT_EQ(parsed->jobs.size(), 5U);
    const auto job = [&](std::int64_t id) { return *find_job(parsed->jobs, id); };
    EXPECT_EQ(job(1).verdict().end, SlurmEnd::ok);
    EXPECT_EQ(job(2).verdict().end, SlurmEnd::failed);
    EXPECT_EQ(job(2).exit_code, 3);
    EXPECT_EQ(job(3).verdict().end, SlurmEnd::cancelled);
    EXPECT_EQ(job(4).verdict().phase, SlurmPhase::running);
    EXPECT_EQ(job(4).nodes, "n[1-2]");
    EXPECT_EQ(job(5).verdict().phase, SlurmPhase::queued);
    EXPECT_EQ(job(5).reason, "Resources");
}

TEST(SlurmJson, ReadsTheSameJobsFromEveryRelease) {
    for (const Release& release : kReleases) {
        SCOPED_TRACE(release.file);
        const std::string text = slurm_fixture(release.file);
        const auto parsed = parse_slurm_jobs_json(text);
        ASSERT_TRUE(parsed) << parsed.error().message;
        EXPECT_EQ(parsed->data_parser, release.data_parser);
        EXPECT_EQ(parsed->slurm_release, release.release);
        EXPECT_EQ(parsed->malformed, 0U);
        EXPECT_THAT(parsed->warnings, IsEmpty());
        ASSERT_EQ(parsed->jobs.size(), 6U);

        const SlurmJob& running = parsed->jobs[0];
        EXPECT_EQ(running.id, 101);
        EXPECT_EQ(running.name, "train-01jd5m8x3qw9v7t2k4n6p8r0sz-a1");
        EXPECT_EQ(running.user, "demo");
        EXPECT_EQ(running.uid, 1000);
        EXPECT_EQ(running.cluster, "alps");
        EXPECT_EQ(running.partition, "gpu");
        EXPECT_EQ(running.nodes, "n[1-2]");
        EXPECT_EQ(running.reason, "");
        EXPECT_EQ(running.submitted_at, 1795237917);
        EXPECT_EQ(running.started_at, 1795237922);
        EXPECT_EQ(running.ended_at, 0);
        EXPECT_EQ(running.exit_code, std::nullopt);
        EXPECT_EQ(running.verdict().phase, SlurmPhase::running);

        EXPECT_EQ(parsed->jobs[1].verdict().phase, SlurmPhase::starting);
        EXPECT_EQ(parsed->jobs[1].state.base, release.array ? SlurmBase::running : SlurmBase::none);

        const SlurmJob& failed = parsed->jobs[2];
        EXPECT_TRUE(failed.verdict().terminal);
        EXPECT_EQ(failed.exit_code, 3);
        EXPECT_EQ(failed.signal, 0);
        EXPECT_EQ(failed.ended_at, 1795237926);

        const SlurmJob& finishing = parsed->jobs[3];
        EXPECT_EQ(finishing.verdict().phase, SlurmPhase::finishing);
        EXPECT_EQ(finishing.verdict().end, release.array ? SlurmEnd::failed : SlurmEnd::none);
        EXPECT_EQ(finishing.exit_code, std::nullopt) << "not final yet";

        const SlurmJob& waiting = parsed->jobs[4];
        EXPECT_EQ(waiting.reason, "ReqNodeNotAvail, Reserved for maintenance");
        EXPECT_EQ(waiting.estimated_start, 1795238817);
        EXPECT_EQ(waiting.verdict().phase, SlurmPhase::queued);

        const SlurmJob& oom = parsed->jobs[5];
        EXPECT_EQ(oom.verdict().end, SlurmEnd::oom);
        EXPECT_EQ(oom.signal, 125);
        EXPECT_EQ(oom.restarts, 2);
    }
}

TEST(SlurmJson, ReadsWhatARealSlurmPrinted) {
    for (const std::string version : {"v0.0.37", "v0.0.38"}) {
        const std::string text = slurm_fixture("22.05/jobs_" + version + ".json");
        const auto parsed = parse_slurm_jobs_json(text);
        ASSERT_TRUE(parsed) << parsed.error().message;
        EXPECT_EQ(parsed->data_parser, version);
        EXPECT_EQ(parsed->slurm_release, "22.05.8");
        EXPECT_EQ(parsed->jobs.size(), 5U);
        EXPECT_EQ(parsed->malformed, 1U) << "a name with a newline";
        EXPECT_EQ(parsed->jobs[0].verdict().end, SlurmEnd::ok);
        EXPECT_EQ(parsed->jobs[1].verdict().phase, SlurmPhase::held);
        EXPECT_EQ(parsed->jobs[1].estimated_start, 0);
        EXPECT_EQ(parsed->jobs[2].exit_code, 5) << "1280 is a wait status";
        EXPECT_EQ(parsed->jobs[2].signal, 0);
        EXPECT_EQ(parsed->jobs[3].exit_code, 0);
        EXPECT_EQ(parsed->jobs[3].signal, 15);
        EXPECT_EQ(parsed->jobs[4].user, "lstest-a");
        EXPECT_EQ(parsed->jobs[4].uid, 1001);
    }
}

TEST(SlurmJson, ErrorsOfSlurmAreNoEmptyQueue) {
    // Seen: slurmrestd 22.05.8 with a bad token, and for a job that is not there.
    const auto bad = parse_slurm_jobs_json(
        R"({"meta":{},"errors":[{"description":"Failed while looking for jobs","error_number":-1,
        "error":"Unspecified error","source":"slurm_load_jobs"}],"jobs":[]})");
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, Errc::unavailable);
    EXPECT_EQ(bad.error().message, "Slurm: Failed while looking for jobs: Unspecified error");
    const auto gone = parse_slurm_jobs_json(
        R"({"errors":[{"description":"Unable to find JobId=99999","error_number":2017,
        "error":"Invalid job id specified","source":"slurm_load_job"}],"jobs":[]})");
    ASSERT_FALSE(gone);
    EXPECT_EQ(gone.error().code, Errc::not_found);
    EXPECT_EQ(parse_slurm_jobs_json(R"({"errors":["odd"],"jobs":[]})").error().message,
              "Slurm: odd");
    const auto empty = parse_slurm_jobs_json(R"({"jobs":[],"errors":[],"warnings":[{"description":
        "ignored","source":"#/jobs/"}]})");
    ASSERT_TRUE(empty);
    EXPECT_THAT(empty->jobs, IsEmpty());
    EXPECT_THAT(empty->warnings, testing::ElementsAre("ignored"));
}

TEST(SlurmJson, WhatIsNotADocumentIsRefused) {
    const std::vector<std::pair<std::string, std::string>> table{
        {"", "Slurm's JSON: not JSON, or cut off, at byte 0"},
        {"[]", "Slurm's JSON: not JSON, or cut off, at byte 0"},
        {"{}", "Slurm's JSON: no jobs"},
        {R"({"jobs":{}})", "Slurm's JSON: no jobs"},
        {R"({"jobs":[]} x)", "Slurm's JSON: not JSON, or cut off, at byte 12"},
        {R"({"jobs":[],"jobs":[]})", "Slurm's JSON: the key \"jobs\" appears twice"},
        {R"({"jobs":[1,]})", "Slurm's JSON: not JSON, or cut off, at byte 11"},
        {R"({"jobs":[{"a":1 "b":2}]})", "Slurm's JSON: not JSON, or cut off, at byte 16"},
        {R"({"jobs":[{"a":tru}]})", "Slurm's JSON: a job: not JSON: syntax error at byte 6"},
        {R"({"jobs":[],"meta":{"a":}})", "Slurm's JSON: not JSON: syntax error at byte 24"},
    };
    for (const auto& [text, message] : table) {
        const auto parsed = parse_slurm_jobs_json(text);
        ASSERT_FALSE(parsed) << text;
        EXPECT_EQ(parsed.error().code, Errc::invalid) << text;
        EXPECT_THAT(parsed.error().message, HasSubstr("Slurm's JSON: ")) << text;
        if (text.find("tru") == std::string::npos && text.find("meta") == std::string::npos) {
            EXPECT_EQ(parsed.error().message, message) << text;
        }
    }
}

TEST(SlurmJson, NoCutDocumentPassesForAWholeOne) {
    for (const std::string file : {"22.05/jobs_v0.0.38.json", "24.11/jobs_v0.0.42.json"}) {
        const std::string text = slurm_fixture(file);
        const std::size_t whole = text.find_last_of('}') + 1;
        for (std::size_t size = 0; size < whole; size += 7) {
            ASSERT_FALSE(parse_slurm_jobs_json(std::string_view{text}.substr(0, size))) << size;
        }
    }
}

// A record with one member replaced.
Result<SlurmJob> with(const std::string& member) {
    const auto record = parse_json(member);
    EXPECT_TRUE(record) << member;
    Json job = {{"job_id", 7},
                {"name", "n"},
                {"user_name", "demo"},
                {"user_id", 1000},
                {"job_state", {"FAILED"}},
                {"nodes", ""},
                {"exit_code", nullptr}};
    job.update(*record);
    return slurm_job_from_json(job);
}

TEST(SlurmJson, ARecordWithoutIdNameUserOrStateIsRefused) {
    EXPECT_TRUE(with("{}"));
    for (const std::string member :
         {R"({"job_id":0})", R"({"job_id":-1})", R"({"job_id":"7"})", R"({"job_id":7.5})",
          R"({"job_id":4294967296})", R"({"job_id":{"set":false,"number":7}})",
          R"({"job_id":{"set":true,"infinite":true,"number":7}})", R"({"name":""})",
          R"({"name":null})", R"({"name":"a\nb"})", R"({"name":["a"]})", R"({"job_state":null})",
          R"({"job_state":{}})", R"({"job_state":[1]})", R"({"nodes":"n 1"})",
          R"({"user_name":"","user_id":null})", R"({"user_name":"a\u0007"})"}) {
        EXPECT_FALSE(with(member)) << member;
    }
    EXPECT_EQ(with(R"({"user_name":""})")->user, "1000") << "a uid without a name";
    EXPECT_EQ(with(R"({"job_id":{"set":true,"infinite":false,"number":9}})")->id, 9);
    EXPECT_EQ(with(R"({"job_state":[]})")->verdict().phase, SlurmPhase::unknown);
}

TEST(SlurmJson, ExitCodesOfEveryShape) {
    EXPECT_EQ(with(R"({"exit_code":256})")->exit_code, 1);
    EXPECT_EQ(with(R"({"exit_code":9})")->signal, 9);
    EXPECT_EQ(with(R"({"exit_code":{"set":true,"infinite":false,"number":512}})")->exit_code, 2);
    EXPECT_EQ(with(R"({"exit_code":{"return_code":3}})")->exit_code, 3);
    EXPECT_EQ(with(R"({"exit_code":{"signal":{"signal_id":6,"name":"ABRT"}}})")->signal, 6);
    EXPECT_EQ(with(R"({"exit_code":{"return_code":{"set":true,"infinite":false,"number":4},
        "signal":{"id":{"set":true,"infinite":false,"number":11}}}})")
                  ->signal,
              11);
    EXPECT_EQ(with(R"({"exit_code":70000})")->exit_code, std::nullopt);
    EXPECT_EQ(with(R"({"exit_code":"0:0"})")->exit_code, std::nullopt);
    EXPECT_EQ(with(R"({"exit_code":256,"job_state":["RUNNING"]})")->exit_code, std::nullopt);
}

TEST(SlurmJson, LargeQueuesAndLargeJobsFit) {
    // 3,000 jobs of 40 members, and one whose resources alone are over the limit of one document.
    std::string record =
        R"("name":"n","user_name":"demo","user_id":1,"nodes":"n1","job_state":["RUNNING"])";
    for (int i = 0; i < 40; ++i) {
        record += ",\"extra" + std::to_string(i) + R"(":{"set":true,"infinite":false,"number":1})";
    }
    std::string text = R"({"jobs":[)";
    for (int i = 1; i <= 3000; ++i) {
        text += (i > 1 ? ",{\"job_id\":" : "{\"job_id\":") + std::to_string(i) + "," + record + "}";
    }
    text += ",{\"job_id\":3001," + record + R"(,"job_resources":{"nodes":{"allocation":[0)";
    for (int i = 0; i < 200'000; ++i) {
        text += ",1";
    }
    text += "]}}}]}";
    const auto parsed = parse_slurm_jobs_json(text);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->jobs.size(), 3001U);
    EXPECT_EQ(parsed->jobs.back().id, 3001);
}

TEST(SlurmJson, DepthIsBounded) {
    const std::string deep(100'000, '[');
    EXPECT_FALSE(parse_slurm_jobs_json(R"({"jobs":[{"a":)" + deep));
    EXPECT_FALSE(
        parse_slurm_jobs_json(R"({"jobs":[{"a":)" + deep + std::string(100'000, ']') + "}]}"));
    EXPECT_FALSE(
        parse_slurm_jobs_json(R"({"meta":)" + deep + std::string(100'000, ']') + R"(,"jobs":[]})"));
}

}  // namespace
}  // namespace lockstep
