// A batch script as slurmrestd's job properties: every directive becomes one, or the script is
// refused by its name.
#include "scheduler-integration/slurm/rest_job.hpp"

#include "job/base/json.hpp"
#include "job/model/spec/spec_slurm.hpp"
#include "tests/unit/slurm/batch_script_fixture.hpp"
#include "tests/unit/slurm/fixtures.hpp"

#include <gmock/gmock.h>

namespace lockstep::rest {
namespace {

using testing::HasSubstr;

JobSite site_of(int parser) {
    JobSite site;
    site.parser = parser;
    site.user = "demo";
    return site;
}

// The least that a script must say, and one more line.
std::string script_with(const std::string& line) {
    return "#!/bin/bash -p\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH "
           "--cpus-per-task=3\n" +
           (line.empty() ? "" : "#SBATCH " + line + "\n") + "true\n";
}

Json job_of(const std::string& script, int parser) {
    const auto body = submission(script, site_of(parser));
    EXPECT_TRUE(body) << (body ? "" : body.error().message);
    const auto json = body ? parse_json(*body) : parse_json("{}");
    return json ? json->value("job", Json::object()) : Json::object();
}

std::string refusal(const std::string& script, int parser) {
    const auto body = submission(script, site_of(parser));
    EXPECT_FALSE(body) << *body;
    return body ? "" : body.error().message;
}

TEST(RestJob, IsTheGoldenBodyOfEachVersion) {
    const std::string script = slurm_fixture("scripts/rest.sh");
    for (int parser = kOldestParser; parser <= kNewestParser; ++parser) {
        SCOPED_TRACE(parser);
        const auto body = submission(script, site_of(parser));
        ASSERT_TRUE(body) << body.error().message;
        auto json = parse_json(*body);
        ASSERT_TRUE(json);
        // To v0.0.40 beside the job, then in it.
        Json& holder = parser <= 40 ? *json : (*json)["job"];
        EXPECT_EQ(holder["script"], script);
        holder.erase("script");
        const std::string golden =
            slurm_fixture("rest/submit_" + version_text(std::min(parser, 40)) + ".json");
        const auto expected = parse_json(golden);
        ASSERT_TRUE(expected);
        EXPECT_EQ(dump_json_pretty(*json), dump_json_pretty(*expected));
    }
}

// Whatever the generator writes is either said to slurmrestd or refused by name.
TEST(RestJob, KnowsEveryDirectiveOfTheGenerator) {
    using namespace slurm;
    auto request = request_of(kEverything);
    const auto made = make_batch_script(request, site());
    ASSERT_TRUE(made);
    EXPECT_THAT(refusal(made->text, 38), HasSubstr("--contiguous"));
    request.slurm.directives.erase("contiguous");
    EXPECT_THAT(refusal(make_batch_script(request, site())->text, 38), HasSubstr("--switches"));
    request.slurm.directives.erase("switches");
    EXPECT_TRUE(submission(make_batch_script(request, site())->text, site_of(38)));
    for (int parser = 39; parser <= kNewestParser; ++parser) {
        for (const Release release : {Release{22, 5}, Release{25, 11}}) {
            const auto script = make_batch_script(request_of(kEverything), site(release));
            ASSERT_TRUE(script);
            const Json job = job_of(script->text, parser);
            EXPECT_EQ(job["contiguous"], true);
            EXPECT_EQ(job["required_switches"]["number"], 1);
            EXPECT_EQ(job["wait_for_switch"], 1800);
        }
    }
    for (const char* smallest : {kSmallest, R"({"name":"a","framework":"native",
             "resources":{"gpus_per_node":2,"nodes":3}})"}) {
        const auto script = make_batch_script(request_of(smallest), site());
        for (int parser = kOldestParser; parser <= kNewestParser; ++parser) {
            EXPECT_TRUE(submission(script->text, site_of(parser)));
        }
    }
}

// The options that a spec may name (spec_slurm.cpp), with a value each.
const std::vector<std::string> kOptions{"--acctg-freq=30",
                                        "--batch=a",
                                        "--bb=capacity=1GB",
                                        "--begin=2027-01-01T04:00:00",
                                        "--cluster-constraint=a",
                                        "--comment=a",
                                        "--consolidate-segments",
                                        "--contiguous",
                                        "--core-spec=1",
                                        "--cores-per-socket=2",
                                        "--cpu-freq=high",
                                        "--deadline=2027-01-01",
                                        "--delay-boot=5",
                                        "--distribution=block:cyclic",
                                        "--extra=a",
                                        "--extra-node-info=1:2",
                                        "--gpu-freq=high",
                                        "--gres=lustre:1",
                                        "--gres-flags=enforce-binding",
                                        "--hint=nomultithread",
                                        "--licenses=a:1",
                                        "--mail-type=ALL",
                                        "--mail-user=a",
                                        "--mcs-label=a",
                                        "--mem-update=20@30",
                                        "--network=ib",
                                        "--nice=1",
                                        "--oom-kill-step",
                                        "--oversubscribe",
                                        "--power=level",
                                        "--prefer=a",
                                        "--priority=1",
                                        "--profile=all",
                                        "--propagate=NONE",
                                        "--reboot",
                                        "--resources=a:1",
                                        "--segment=2",
                                        "--sockets-per-node=1",
                                        "--spread-job",
                                        "--spread-segments",
                                        "--switches=1",
                                        "--thread-spec=1",
                                        "--threads-per-core=1",
                                        "--tmp=1G",
                                        "--use-min-nodes",
                                        "--wckey=a"};

TEST(RestJob, NeverDropsAnOption) {
    std::vector<std::string> names;
    for (const std::string& option : kOptions) {
        names.push_back(option.substr(2, option.find('=') - 2));
    }
    const auto all = slurm_directives();
    EXPECT_THAT(names, testing::UnorderedElementsAreArray(all.begin(), all.end()));
    for (int parser = kOldestParser; parser <= kNewestParser; ++parser) {
        const std::size_t plain = job_of(script_with(""), parser).size();
        for (const std::string& option : kOptions) {
            SCOPED_TRACE(version_text(parser) + " " + option);
            const auto body = submission(script_with(option), site_of(parser));
            if (body) {
                EXPECT_GT((*parse_json(*body))["job"].size(), plain);
            } else {
                EXPECT_THAT(body.error().message, HasSubstr(option.substr(0, option.find('='))));
                EXPECT_EQ(body.error().code, Errc::invalid);
            }
        }
    }
}

TEST(RestJob, RefusesWhatAVersionCannotTake) {
    for (const char* option : {"--contiguous", "--network=ib", "--power=level", "--switches=1",
                               "--hint=nomultithread", "--distribution=block"}) {
        EXPECT_THAT(refusal(script_with(option), 38), HasSubstr("v0.0.38 cannot take --"));
    }
    for (const char* option : {"--power=level", "--hint=nomultithread"}) {
        EXPECT_THAT(refusal(script_with(option), 42), HasSubstr("v0.0.42 cannot take --"));
    }
    EXPECT_THAT(refusal(script_with("--hold"), 38), HasSubstr("--hold"));
    EXPECT_THAT(refusal(script_with("--begin=teatime"), 40), HasSubstr("--begin=teatime"));
    EXPECT_THAT(refusal(script_with("--gres-flags=allow-task-sharing"), 44),
                HasSubstr("--gres-flags"));
    EXPECT_THAT(refusal(script_with("--nice=a"), 40), HasSubstr("--nice=a"));
    EXPECT_THAT(refusal("#!/bin/sh\ntrue\n", 38), HasSubstr("how many nodes"));
}

// PARSER_FLAG_ARRAY(JOB_FLAGS) and PARSER_FLAG_ARRAY(JOB_SHARED) of Slurm 26.05.3. slurmrestd
// refuses the whole job for a word that it does not know.
TEST(RestJob, FlagsAreTheWordsOfTheDataParser) {
    const auto flags = [](const std::string& line, int parser) {
        return dump_json(job_of(script_with(line), parser)["flags"]);
    };
    EXPECT_EQ(flags("--use-min-nodes", 39), R"(["PREFER_MINIMUM_NODE_COUNT"])");
    EXPECT_EQ(flags("--spread-job", 39), R"(["SPREAD_JOB"])");
    EXPECT_EQ(flags("--gres-flags=disable-binding", 39), R"(["GRED_BINDING_DISABLED"])");
    EXPECT_EQ(flags("--gres-flags=disable-binding", 45), R"(["GRES_BINDING_DISABLED"])");
    EXPECT_EQ(flags("--consolidate-segments", 44), R"(["CONSOLIDATE_SEGMENTS"])");
    EXPECT_EQ(flags("--spread-segments", 45), R"(["SPREAD_SEGMENTS"])");
    const Json shared = job_of(script_with("--oversubscribe"), 45)["shared"];
    EXPECT_EQ(dump_json(shared), R"(["oversubscribe"])");
}

TEST(RestJob, NewOptionsHaveTheirFirstVersion) {
    const std::vector<std::pair<std::string, int>> first{{"--segment=2", 41},
                                                         {"--oom-kill-step=0", 42},
                                                         {"--consolidate-segments", 44},
                                                         {"--cores-per-socket=2", 45},
                                                         {"--mem-update=20@30", 45}};
    for (const auto& [option, parser] : first) {
        EXPECT_THAT(refusal(script_with(option), parser - 1), HasSubstr("cannot take --"))
            << option;
        EXPECT_TRUE(submission(script_with(option), site_of(parser))) << option;
    }
    EXPECT_EQ(job_of(script_with("--segment=2"), 45)["segment_size"]["number"], 2);
    EXPECT_EQ(job_of(script_with("--oom-kill-step"), 45)["oom_kill_step"], 1);
    const Json update = job_of(script_with("--mem-update=20@00:30:01"), 45);
    EXPECT_EQ(update["memory_update_margin"], 20);
    EXPECT_EQ(update["memory_update_delay"], 31);
}

TEST(RestJob, SaysHowManyTasksAndCpusAsSbatchDoes) {
    const Json old = job_of(script_with(""), 38);
    EXPECT_EQ(old["tasks"], 2);
    EXPECT_FALSE(old.contains("minimum_cpus"));
    const Json now = job_of(script_with(""), 41);
    EXPECT_EQ(now["tasks"], 2);
    EXPECT_EQ(now["minimum_cpus"], 6);
}

TEST(RestJob, HandsSoftLimitsOnAsSbatchDoes) {
    for (const int parser : {38, 40}) {
        SCOPED_TRACE(parser);
        JobSite site = site_of(parser);
        site.limits = {{"SLURM_RLIMIT_CORE", "0"}};
        const auto body = submission(script_with(""), site);
        ASSERT_TRUE(body);
        const Json variables = (*parse_json(*body))["job"]["environment"];
        if (parser == 38) {
            EXPECT_EQ(variables.value("SLURM_RLIMIT_CORE", ""), "0");
        } else {
            EXPECT_THAT(variables.get<std::vector<std::string>>(),
                        testing::Contains("SLURM_RLIMIT_CORE=0"));
        }
        EXPECT_THAT(dump_json(job_of(script_with(""), parser)),
                    testing::Not(HasSubstr("SLURM_RLIMIT")));
    }
}

TEST(RestJob, ReadsTimesAndSizesAsSbatchDoes) {
    JobSite site = site_of(40);
    site.now = 1'000'000;
    const auto job = [&](const std::string& line) {
        return (*parse_json(*submission(script_with(line), site)))["job"];
    };
    EXPECT_EQ(job("--begin=now")["begin_time"]["number"], 1'000'000);
    EXPECT_EQ(job("--begin=now+90")["begin_time"]["number"], 1'000'090);
    EXPECT_EQ(job("--begin=now+1minute")["begin_time"]["number"], 1'000'060);
    EXPECT_EQ(job("--begin=now+2weeks")["begin_time"]["number"], 1'000'000 + 14 * 86'400);
    EXPECT_EQ(job("--time=00:00:01")["time_limit"]["number"], 1);
    EXPECT_EQ(job("--time=1-00:00:00")["time_limit"]["number"], 1440);
    EXPECT_EQ(job("--mem=2G")["memory_per_node"]["number"], 2048);
    EXPECT_EQ(job("--mem=2")["memory_per_node"]["number"], 2);
    EXPECT_EQ(job("--tmp=1T")["temporary_disk_per_node"], 1 << 20);
    EXPECT_EQ(job("--signal=URG")["kill_warning_delay"]["number"], 60);
}

TEST(RestJob, ReadsDirectivesWhereSbatchDoes) {
    const auto read = read_directives(
        "#!/bin/sh\n#SBATCH --nodes=1\n\n  \n# x\n#SBATCH "
        "--exclusive\ntrue\n#SBATCH --hold\n");
    ASSERT_TRUE(read);
    ASSERT_EQ(read->size(), 2U);
    EXPECT_EQ(read->at(0).option, "nodes");
    EXPECT_EQ(read->at(0).value, "1");
    EXPECT_EQ(read->at(1).option, "exclusive");
    EXPECT_EQ(read->at(1).value, "");
}

TEST(RestJob, RefusesDirectivesOfAnotherForm) {
    for (const char* line :
         {"#SBATCH -N 2", "#SBATCH --nodes 2", "#SBATCH hetjob", "#SBATCH", "#SBATCH  --nodes=1",
          "#SBATCH --comment=\"a b", "#SBATCH --comment=\"a\" b\"", "#SBATCH --comment=a b",
          "#SBATCH --comment=\"a\\\"", "#SBATCH --nodes=1 --hold", "#SBATCH --", "#SBATCH --=1",
          "#SBATCH --nodes=1 # two", "#SLURM --hold", "#PBS -l x", "#BSUB -n 4", "#SBATCHx"}) {
        EXPECT_FALSE(read_directives("#!/bin/sh\n" + std::string{line} + "\ntrue\n")) << line;
    }
    EXPECT_FALSE(read_directives("#SBATCH --nodes=1\n#SBATCH --nodes=2\n"));
    const auto quoted = read_directives("#SBATCH --comment=\"a b\"\n");
    ASSERT_TRUE(quoted);
    EXPECT_EQ(quoted->front().value, "a b");
    EXPECT_THAT(refusal(script_with("") + "echo \xc3\xa4\n", 38), HasSubstr("ASCII"));
    EXPECT_THAT(refusal(script_with("") + std::string("\0", 1), 38), HasSubstr("ASCII"));
}

}  // namespace
}  // namespace lockstep::rest
