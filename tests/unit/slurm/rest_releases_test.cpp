#include "job/base/json.hpp"
#include "scheduler-integration/slurm/slurm_json.hpp"
#include "tests/unit/slurm/fixtures.hpp"
#include "tests/unit/slurm/rest_text_fixture.hpp"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep::rest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = SubmitReply::Kind;

// --- the answers of each version

struct RestRelease {
    std::string folder;
    int parser;
};
const std::vector<RestRelease> kRestReleases{{"23.02", 39}, {"23.11", 40}, {"24.05", 41},
                                             {"24.11", 42}, {"25.05", 43}, {"25.11", 44}};

// Of a file with one answer of each route.
ClientResponse recorded(const RestRelease& release, const char* route, int status = 200) {
    const auto all = parse_json(
        slurm_fixture(release.folder + "/rest_v0.0." + std::to_string(release.parser) + ".json"));
    EXPECT_TRUE(all);
    EXPECT_TRUE(all->contains(route));
    return answer(status, dump_json(all->value(route, Json())));
}
ClientResponse live(const char* name, int status = 200) {
    return answer(status, slurm_fixture("22.05/rest_" + std::string{name} + ".json"));
}

// Slurm 26.05.3, v0.0.45, as it answered; none of it was written by hand.
TEST(RestLive, AnswersOf2605AreReadWhole) {
    const auto said = [](const char* name) {
        return answer(200, slurm_fixture("26.05/rest_" + std::string{name} + ".json"));
    };
    const auto ping = parse_ping_answer(said("ping"), "lstest-a");
    ASSERT_TRUE(ping) << ping.error().message;
    EXPECT_EQ(ping->meta.data_parser, "v0.0.45");
    EXPECT_EQ(ping->meta.slurm_release, "26.05.3");
    EXPECT_EQ(ping->meta.accounting_storage, "accounting_storage/slurmdbd");
    ASSERT_EQ(ping->controllers.size(), 1U);
    EXPECT_TRUE(ping->controllers[0].up);

    const auto partitions = parse_partitions(said("partitions"), "lstest-a");
    ASSERT_TRUE(partitions) << partitions.error().message;
    ASSERT_EQ(partitions->size(), 2U);
    const SlurmPartition& main = partitions->front();
    EXPECT_EQ(main.name, "main");
    EXPECT_EQ(main.state, "UP");
    EXPECT_EQ(main.max_time, 3600);
    EXPECT_EQ(main.default_time, 300);
    EXPECT_EQ(main.total_nodes, 3);
    EXPECT_EQ(main.nodes, "n[1-3]");

    const auto nodes = parse_nodes(said("nodes"), "lstest-a");
    ASSERT_TRUE(nodes) << nodes.error().message;
    EXPECT_EQ(nodes->malformed, 0U);
    ASSERT_EQ(nodes->nodes.size(), 3U);
    EXPECT_EQ(nodes->nodes[0].state, "mixed");
    EXPECT_EQ(nodes->nodes[0].gpus(), 2);
    EXPECT_EQ(nodes->nodes[0].gpus_used(), 1);
    EXPECT_THAT(nodes->nodes[0].partitions, ElementsAre("main", "low"));

    const auto detail = parse_job_detail(said("job"), "lstest-a");
    ASSERT_TRUE(detail) << detail.error().message;
    EXPECT_EQ(detail->job.id, 4);
    EXPECT_EQ(detail->job.verdict().phase, SlurmPhase::running);

    const auto history = parse_history(said("history"), "lstest-a", 0);
    ASSERT_TRUE(history) << history.error().message;
    EXPECT_EQ(history->malformed, 0U);
    ASSERT_EQ(history->jobs.size(), 5U);
    EXPECT_EQ(history->jobs[0].verdict().end, SlurmEnd::ok);
    EXPECT_EQ(history->jobs[1].verdict().end, SlurmEnd::failed);
    EXPECT_EQ(history->jobs[1].exit_code, 3);
    EXPECT_EQ(history->jobs[2].verdict().end, SlurmEnd::cancelled);
}

TEST(RestPing, IsReadFromEveryVersion) {
    const auto old = parse_ping_answer(live("ping"), "demo");
    ASSERT_TRUE(old);
    EXPECT_EQ(old->meta.data_parser, "v0.0.38");
    EXPECT_EQ(old->meta.slurm_release, "22.05.8");
    EXPECT_EQ(old->meta.accounting_storage, std::nullopt);
    ASSERT_EQ(old->controllers.size(), 1U);
    EXPECT_EQ(old->controllers[0].host, "ctl");
    EXPECT_TRUE(old->controllers[0].up);
    for (const RestRelease& release : kRestReleases) {
        SCOPED_TRACE(release.folder);
        const auto ping = parse_ping_answer(recorded(release, "ping"), "demo");
        ASSERT_TRUE(ping);
        EXPECT_EQ(ping->meta.data_parser, "v0.0." + std::to_string(release.parser));
        EXPECT_EQ(ping->meta.slurm_release.substr(0, 5), release.folder);
        EXPECT_EQ(ping->meta.accounting_storage.has_value(), release.parser >= 40);
        EXPECT_EQ(ping->meta.cluster, release.parser >= 40 ? "alps" : "");
        ASSERT_EQ(ping->controllers.size(), 1U);
        EXPECT_TRUE(ping->controllers[0].up);
    }
    const auto down = parse_ping_answer(
        answer(200, R"({"pings":[{"hostname":"ctl","ping":"DOWN"},{"pinged":"DOWN"},)"
                    R"({"responding":false}]})"),
        "demo");
    ASSERT_TRUE(down);
    for (const ControllerPing& one : down->controllers) {
        EXPECT_FALSE(one.up);
    }
    EXPECT_FALSE(parse_ping_answer(answer(200, "{}"), "demo"));
}

TEST(RestPartitions, AreReadFromEveryVersion) {
    const auto old = parse_partitions(live("partitions"), "demo");
    ASSERT_TRUE(old);
    ASSERT_EQ(old->size(), 2U);
    EXPECT_TRUE(old->at(0).is_default);
    EXPECT_FALSE(old->at(1).is_default);
    for (const RestRelease& release : kRestReleases) {
        SCOPED_TRACE(release.folder);
        const auto all = parse_partitions(recorded(release, "partitions"), "demo");
        ASSERT_TRUE(all) << all.error().message;
        ASSERT_EQ(all->size(), 2U);
        EXPECT_THAT(all->at(0).deny_accounts, ElementsAre("guest", "trial"));
        EXPECT_THAT(all->at(0).allow_qos, ElementsAre("high", "normal"));
        const SlurmPartition& low = all->at(1);
        EXPECT_EQ(low.max_time, std::nullopt);
        EXPECT_EQ(low.default_time, std::nullopt);
        EXPECT_EQ(low.max_nodes, 2);
        EXPECT_NE(low.state, "UP");
    }
    std::vector<Result<std::vector<SlurmPartition>>> both{old};
    both.push_back(parse_partitions(recorded(kRestReleases.back(), "partitions"), "demo"));
    for (const auto& all : both) {
        const SlurmPartition& main = all->at(0);
        EXPECT_EQ(main.name, "main");
        EXPECT_EQ(main.state, "UP");
        EXPECT_EQ(main.max_time, 3600);
        EXPECT_EQ(main.default_time, 300);
        EXPECT_EQ(main.max_nodes, std::nullopt);
        EXPECT_EQ(main.min_nodes, 0);
        EXPECT_EQ(main.total_nodes, 3);
        EXPECT_EQ(main.total_cpus, 24);
        EXPECT_EQ(main.nodes, "n[1-3]");
        EXPECT_EQ(main.max_memory_mb_per_node, std::nullopt);
    }
}

TEST(RestNodes, AreReadFromEveryVersion) {
    const auto old = parse_nodes(live("nodes"), "demo");
    ASSERT_TRUE(old);
    ASSERT_EQ(old->nodes.size(), 3U);
    EXPECT_EQ(old->nodes[2].state, "drained");
    EXPECT_EQ(old->nodes[2].reason, "bad\nfan");
    for (const RestRelease& release : kRestReleases) {
        SCOPED_TRACE(release.folder);
        const auto table = parse_nodes(recorded(release, "nodes"), "demo");
        ASSERT_TRUE(table);
        ASSERT_EQ(table->nodes.size(), 3U);
        EXPECT_EQ(table->nodes[2].state, "down");
        EXPECT_EQ(table->nodes[2].flags, "*");
        EXPECT_EQ(table->nodes[2].cpus_idle, 0);
        for (const NodeTable* each : {&*old, &*table}) {
            EXPECT_EQ(each->malformed, 0U);
            const SlurmNode& n1 = each->nodes[0];
            EXPECT_EQ(n1.name, "n1");
            EXPECT_EQ(n1.state, "mixed");
            EXPECT_TRUE(n1.usable());
            EXPECT_EQ(n1.cpus, 8);
            EXPECT_EQ(n1.cpus_allocated, 3);
            EXPECT_EQ(n1.cpus_idle, 5);
            EXPECT_EQ(n1.memory_mb, 16000);
            EXPECT_EQ(n1.gpus(), 2);
            EXPECT_EQ(n1.gpus_used(), 1);
            EXPECT_THAT(n1.partitions, ElementsAre("main", "low"));
            EXPECT_EQ(each->nodes[1].state, "draining");
            EXPECT_EQ(each->nodes[1].reason, "soon");
            EXPECT_FALSE(each->nodes[1].usable());
        }
    }
}

TEST(RestNodes, HaveTheWordsOfSinfo) {
    const std::map<std::string, std::string> words{
        {R"(["IDLE"])", "idle"},
        {R"(["IDLE","PLANNED"])", "planned"},
        {R"(["IDLE","RESERVED"])", "reserved"},
        {R"(["IDLE","MAINTENANCE","RESERVED"])", "maint"},
        {R"(["IDLE","COMPLETING"])", "completing"},
        {R"(["ALLOCATED","COMPLETING"])", "allocated+"},
        {R"(["IDLE","POWERED_DOWN","CLOUD"])", "idle~"},
        {R"(["MIXED","CLOUD","POWERING_UP"])", "mixed#"},
        {R"(["IDLE","REBOOT_REQUESTED"])", "idle@"},
        {R"(["DOWN","DRAIN","NOT_RESPONDING"])", "drained*"},
        {R"(["IDLE","INVALID_REG","DRAIN"])", "inval"},
        {R"(["IDLE","FAIL"])", "fail"},
        {R"(["SOMETHING_NEW"])", "unknown"},
    };
    for (const auto& [state, word] : words) {
        const auto table = parse_nodes(
            answer(200, R"({"nodes":[{"name":"n1","cpus":8,"state":)" + state + "}]}"), "demo");
        ASSERT_TRUE(table);
        ASSERT_EQ(table->nodes.size(), 1U) << state;
        EXPECT_EQ(table->nodes[0].state + table->nodes[0].flags, word);
    }
}

TEST(RestHistory, IsReadFromEveryVersion) {
    const auto old = parse_history(live("history"), "demo", 0);
    ASSERT_TRUE(old) << old.error().message;
    EXPECT_EQ(old->malformed, 0U);
    ASSERT_EQ(old->jobs.size(), 3U);
    EXPECT_EQ(old->jobs[0].verdict().end, SlurmEnd::failed);
    EXPECT_EQ(old->jobs[0].signal, 53);
    EXPECT_EQ(old->jobs[1].verdict().end, SlurmEnd::cancelled);
    EXPECT_EQ(old->jobs[1].started_at, 1'795'265'250);
    EXPECT_EQ(old->jobs[2].nodes, "");  // "None assigned": it never ran
    EXPECT_EQ(old->jobs[2].started_at, 0);
    for (const RestRelease& release : kRestReleases) {
        SCOPED_TRACE(release.folder);
        const auto table = parse_history(recorded(release, "history"), "demo", 1'795'000'000);
        ASSERT_TRUE(table) << table.error().message;
        EXPECT_EQ(table->malformed, 0U);
        ASSERT_EQ(table->jobs.size(), 3U);  // not mallory's, not the one of 2023
        const SlurmJob& done = table->jobs[0];
        EXPECT_EQ(done.id, 101);
        EXPECT_EQ(done.name, "train-01jd5m8x3qw9v7t2k4n6p8r0sz-a1");
        EXPECT_EQ(done.cluster, "alps");
        EXPECT_EQ(done.nodes, "n[1-2]");
        EXPECT_EQ(done.verdict().end, SlurmEnd::ok);
        EXPECT_EQ(done.exit_code, 0);
        EXPECT_EQ(done.submitted_at, 1'795'237'917);
        EXPECT_EQ(done.started_at, 1'795'237'922);
        EXPECT_EQ(done.ended_at, 1'795'237'999);
        EXPECT_EQ(table->jobs[1].verdict().end, SlurmEnd::node_fail);
        EXPECT_EQ(table->jobs[2].signal, 9);
    }
}

// Seen live: 22.05 says so of a script that ended with 3.
TEST(RestHistory, DoesNotBelieveThatAFailureWasASuccess) {
    const auto table =
        parse_history(answer(200, R"({"jobs":[{"job_id":1,"name":"a","user":"demo","nodes":"n1",)"
                                  R"("state":{"current":"FAILED","reason":"None"},)"
                                  R"("exit_code":{"status":"SUCCESS","return_code":0}}]})"),
                      "demo", 0);
    ASSERT_TRUE(table);
    ASSERT_EQ(table->jobs.size(), 1U);
    EXPECT_EQ(table->jobs[0].verdict().end, SlurmEnd::failed);
    EXPECT_EQ(table->jobs[0].exit_code, std::nullopt);
    EXPECT_EQ(table->jobs[0].signal, std::nullopt);
}

TEST(RestHistory, OfNothingIsEmpty) {
    const auto none = parse_history(live("history_none"), "demo", 0);
    ASSERT_TRUE(none);
    EXPECT_THAT(none->jobs, IsEmpty());
    // slurmdbd is away: not known, which is not the same as nothing.
    const auto away = parse_history(
        answer(500, errors(R"({"error":"Unable to connect to database"})")), "demo", 0);
    ASSERT_FALSE(away);
    EXPECT_EQ(away.error().code, Errc::unavailable);
    EXPECT_FALSE(parse_history(answer(404, "Unable find requested URL."), "demo", 0));
}

TEST(RestJobDetail, IsReadFromEveryVersion) {
    const auto old = parse_job_detail(live("job"), "demo");
    ASSERT_TRUE(old) << old.error().message;
    EXPECT_EQ(old->job.id, 116);
    EXPECT_EQ(old->job.user, "demo");
    EXPECT_FALSE(old->preempted);
    for (const RestRelease& release : kRestReleases) {
        SCOPED_TRACE(release.folder);
        const auto detail = parse_job_detail(recorded(release, "job"), "demo");
        ASSERT_TRUE(detail) << detail.error().message;
        EXPECT_EQ(detail->job.id, 101);
        EXPECT_TRUE(detail->preempted);
        EXPECT_EQ(detail->job.exit_code, 1);
    }
    const auto none = parse_job_detail(
        answer(500, errors(R"({"description":"Unable to find JobId=9",)"
                           R"("error_number":2017,"error":"Invalid job id specified"})")),
        "demo");
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Errc::not_found);
    EXPECT_EQ(parse_job_detail(answer(200, R"({"jobs":[]})"), "demo").error().code,
              Errc::not_found);
}

TEST(RestSubmit, IsReadFromEveryVersion) {
    for (const RestRelease& release : kRestReleases) {
        SCOPED_TRACE(release.folder);
        const SubmitReply good = submit_reply(recorded(release, "submit"), "demo");
        EXPECT_EQ(good.kind, Kind::accepted) << good.message;
        EXPECT_EQ(good.id, 117);
        const SubmitReply bad = submit_reply(recorded(release, "refused"), "demo");
        EXPECT_EQ(bad.kind, Kind::rejected);
        EXPECT_THAT(bad.message, HasSubstr("Invalid partition name specified"));
    }
}

}  // namespace
}  // namespace lockstep::rest
