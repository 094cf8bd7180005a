#include "scheduler-integration/slurm/batch_script.hpp"

#include "job/base/limits.hpp"
#include "tests/unit/slurm/batch_script_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace lockstep::slurm {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The scripts of tests/fixtures/slurm/scripts, which the lint "shell" runs through shellcheck. With
// LOCKSTEP_WRITE_GOLDEN in the environment they are written instead of compared: read the diff.
void expect_golden(const std::string& name, const std::string& text) {
    const std::string path =
        std::string{LOCKSTEP_SOURCE_DIR} + "/tests/fixtures/slurm/scripts/" + name;
    if (std::getenv("LOCKSTEP_WRITE_GOLDEN") != nullptr) {
        std::ofstream{path} << text;
        GTEST_SKIP() << "wrote " << path;
    }
    std::ifstream file{path};
    std::ostringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(text, golden.str()) << path;
}

std::string text_of(const AttemptRequest& request, const BatchSite& where = site()) {
    const auto script = make_batch_script(request, where);
    EXPECT_TRUE(script.has_value()) << script.error().message;
    return script ? script->text : std::string{};
}

Error error_of(const AttemptRequest& request, const BatchSite& where = site()) {
    const auto script = make_batch_script(request, where);
    EXPECT_FALSE(script.has_value());
    return script ? Error{Errc::internal, ""} : script.error();
}

TEST(BatchScript, OfTheSmallestSpecIsAsWritten) {
    expect_golden("smallest.sh", text_of(request_of(kSmallest)));
}

TEST(BatchScript, OfASpecThatUsesEverythingIsAsWritten) {
    BatchSite where = site({23, 11});
    where.slurm_bin = "/opt/slurm/23.11/bin";
    expect_golden("everything.sh", text_of(request_of(kEverything), where));
}

TEST(BatchScript, OfAnOldSiteAsksForGpusAsGres) {
    BatchSite where = site();
    where.gpus_as_gres = true;
    expect_golden("gres.sh", text_of(request_of(kEverything), where));
}

TEST(BatchScript, InAContainerOfPyxisIsAsWritten) {
    const auto request = request_of(
        R"({"name":"boxed","framework":"command","command":["x"],"working_directory":"/srv/ada",
            "checkpoint":{"directory":"/ckpt"},
            "container":{"runtime":"pyxis","image":"nvcr.io#nvidia/pytorch:24.01-py3",
                         "mounts":["/data:/data:ro"]}})");
    expect_golden("pyxis.sh", text_of(request, site({24, 5})));
}

TEST(BatchScript, OfApptainerIsAsWithoutAContainer) {
    const char* const plain = R"({"name":"boxed","framework":"command","command":["x"])";
    EXPECT_EQ(text_of(request_of(std::string{plain} +
                                 R"(,"container":{"runtime":"apptainer","image":"/a.sif"}})")),
              text_of(request_of(std::string{plain} + "}")));
}

TEST(BatchScript, StatesEveryOptionOnce) {
    EXPECT_THAT(sbatch_lines(text_of(request_of(kSmallest))),
                ElementsAre("--job-name=first-01j3zq5t8w9xkcd2e4f6g8h0jk-a1", "--nodes=1",
                            "--ntasks-per-node=1", "--cpus-per-task=1", "--time=01:00:00",
                            "--no-requeue", "--kill-on-invalid-dep=no", "--export=ALL",
                            "--chdir=/shared/runs/ls-01J3ZQ5T8W9XKCD2E4F6G8H0JK/a1",
                            "--output=/shared/runs/ls-01J3ZQ5T8W9XKCD2E4F6G8H0JK/a1/batch.log",
                            "--open-mode=append"));
    const auto lines = sbatch_lines(text_of(request_of(kEverything), site({26, 5})));
    EXPECT_THAT(lines,
                testing::IsSupersetOf({"--cpus-per-task=96", "--mem=500000M", "--gpus-per-node=8",
                                       "--gres=lustre:1", "--time=1-04:00:00", "--signal=URG@300",
                                       "--export=NIL", "--contiguous", "--exclusive"}));
}

TEST(BatchScript, ReleasesBefore2302KnowNoNil) {
    for (const auto& [release, word] : std::vector<std::pair<Release, std::string>>{
             {{22, 5}, "ALL"}, {{23, 2}, "NIL"}, {{23, 11}, "NIL"}, {{26, 5}, "NIL"}}) {
        EXPECT_THAT(sbatch_lines(text_of(request_of(kSmallest), site(release))),
                    Contains("--export=" + word));
    }
}

TEST(BatchScript, AsksForGpusOnceAlsoBesideOtherGres) {
    BatchSite where = site();
    where.gpus_as_gres = true;
    const auto lines = sbatch_lines(text_of(request_of(kEverything), where));
    EXPECT_THAT(lines, Contains("--gres=gpu:8,lustre:1"));
    EXPECT_THAT(lines, Not(Contains(HasSubstr("gpus-per-node"))));
    EXPECT_THAT(text_of(request_of(kSmallest), where), Not(HasSubstr("gpu")));
}

TEST(BatchScript, HasAlwaysATimeLimit) {
    BatchSite where = site();
    where.default_time_limit_seconds = 0;
    const auto none = error_of(request_of(kSmallest), where);
    ASSERT_EQ(none.fields.size(), 1U);
    EXPECT_EQ(none.fields[0].pointer, "/resources/time_limit");
    EXPECT_THAT(text_of(request_of(kEverything), where), HasSubstr("--time=1-04:00:00"));

    where.default_time_limit_seconds = 600;
    const auto late = error_of(request_of(R"({"name":"a","framework":"native",
        "checkpoint":{"seconds_before_timeout":600}})"),
                               where);
    ASSERT_EQ(late.fields.size(), 1U);
    EXPECT_EQ(late.fields[0].pointer, "/checkpoint/seconds_before_timeout");
}

TEST(BatchScript, MoreCpusThanSlurmCountsAreRefusedByField) {
    const auto error = error_of(request_of(R"({"name":"a","framework":"native",
        "resources":{"ranks_per_node":64,"cpus_per_rank":1024}})"));
    ASSERT_EQ(error.fields.size(), 1U);
    EXPECT_EQ(error.fields[0].pointer, "/resources/cpus_per_rank");
}

TEST(BatchScript, TakesOnlyPathsThatNeedNoQuotes) {
    for (const std::string path : {"", "relative", "/a b", "/a'b", "/a\"b", "/a$b", "/a\nb", "/a%j",
                                   "/\xC3\xA4", "/", "/a;b", "/a#b", "/a\\b", "/a*"}) {
        auto request = request_of(kSmallest);
        request.directory = path;
        EXPECT_THAT(error_of(request).message, HasSubstr("attempt directory")) << path;
        BatchSite where = site();
        where.agent_path = path;
        EXPECT_THAT(error_of(request_of(kSmallest), where).message, HasSubstr("lockstep-agent"))
            << path;
        where = site();
        where.slurm_bin = path.empty() ? "bin" : path;
        EXPECT_THAT(error_of(request_of(kSmallest), where).message, HasSubstr("Slurm's programs"))
            << path;
    }
    auto request = request_of(kSmallest);
    request.directory = "/" + std::string(5000, 'a');
    EXPECT_EQ(error_of(request).code, Errc::invalid);
}

TEST(BatchScript, ChecksTheSpecsValuesOnceMore) {
    for (const std::string value : {"a b", "a\n#SBATCH --hold", "$(id)", "`id`", "a'b", "a\"b"}) {
        auto request = request_of(kSmallest);
        request.slurm.partition = value;
        EXPECT_EQ(error_of(request).code, Errc::invalid) << value;
        request = request_of(kSmallest);
        request.slurm.directives[value] = "1";
        EXPECT_EQ(error_of(request).code, Errc::invalid) << value;
    }
    auto request = request_of(kSmallest);
    request.job.value = "ls-../../x";
    EXPECT_EQ(error_of(request).code, Errc::invalid);
}

TEST(BatchScript, IsHandedInByItsPath) {
    const auto script = make_batch_script(request_of(kSmallest), site());
    ASSERT_TRUE(script.has_value());
    EXPECT_EQ(script->path, "/shared/runs/ls-01J3ZQ5T8W9XKCD2E4F6G8H0JK/a1/batch.sh");
    EXPECT_THAT(script->sbatch_arguments, ElementsAre("--parsable", script->path));
    EXPECT_EQ(script->name, "first-01j3zq5t8w9xkcd2e4f6g8h0jk-a1");
}

TEST(BatchScript, HashIsOfWhatRunsNotOfTheAttempt) {
    const auto hash = [](const std::string& text, const std::string& job, std::int32_t attempt) {
        return make_batch_script(request_of(spec_of(text), job, attempt), site()).value().hash;
    };
    const std::string other_job = "ls-01J4000000000000000000000A";
    EXPECT_EQ(hash(kSmallest, kJob, 1), hash(kSmallest, other_job, 7));
    const std::string nodes = R"({"name":"first","framework":"native","resources":{"nodes":2}})";
    const std::string renamed = R"({"name":"second","framework":"native"})";
    EXPECT_NE(hash(kSmallest, kJob, 1), hash(nodes, kJob, 1));
    EXPECT_NE(hash(kSmallest, kJob, 1), hash(renamed, kJob, 1));
    BatchSite where = site();
    where.agent_path = "/opt/lockstep-agent";
    EXPECT_NE(make_batch_script(request_of(kSmallest), where).value().hash,
              hash(kSmallest, kJob, 1));
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
    return text;
}

TEST(BatchScript, OfTheTemplateJobBecomesTheSubmittedOneByItsIdAlone) {
    const JobSpec spec = spec_of(kEverything);
    const std::string submitted = text_of(request_of(spec));
    std::string rendered = text_of(request_of(spec, std::string{kTemplateJob}));
    rendered = replaced(rendered, kTemplateJob, kJob);
    rendered = replaced(rendered, "00000000000000000000000000", "01j3zq5t8w9xkcd2e4f6g8h0jk");
    EXPECT_EQ(rendered, submitted);
}

TEST(BatchScript, OfTheLargestSpecIsSmall) {
    auto request = request_of(kEverything);
    request.slurm.nodelist = std::string(4096, 'n');
    request.slurm.exclude = std::string(4096, 'n');
    for (int i = 0; i < 40; ++i) {
        request.slurm.directives["o" + std::string(static_cast<std::size_t>(i), 'o')] =
            std::string(256, '1');
    }
    EXPECT_LT(text_of(request).size(), 64U << 10U);  // Slurm's max_script_size is 4 MiB
}

TEST(BatchJobName, IsLowerCaseWithTheIdAndTheAttempt) {
    EXPECT_EQ(batch_job_name("Vision.DDP_1", JobId{kJob}, 12),
              "vision.ddp_1-01j3zq5t8w9xkcd2e4f6g8h0jk-a12");
    const std::string longest = batch_job_name(std::string(300, 'A'), JobId{kJob}, 2'147'483'647);
    EXPECT_EQ(longest.size(), limits::kSlurmJobNameBytes);
    EXPECT_TRUE(longest.ends_with("-01j3zq5t8w9xkcd2e4f6g8h0jk-a2147483647"));
    EXPECT_EQ(batch_job_name("a,b\nc|d e", JobId{kJob}, 1),
              "a-b-c-d-e-01j3zq5t8w9xkcd2e4f6g8h0jk-a1");
}

}  // namespace
}  // namespace lockstep::slurm
