#include "tests/unit/slurm/fixtures.hpp"

namespace lockstep {
namespace {

using Kind = SubmitReply::Kind;

TEST(SbatchReply, AnIdIsFoundWhateverIsPrintedAroundIt) {
    const std::vector<std::tuple<std::string, std::int64_t, std::string>> table{
        {"12345\n", 12345, ""},
        {"12345", 12345, ""},
        {"12345;alps\n", 12345, "alps"},
        {"12345,alps\n", 12345, "alps"},
        {"  12345;alps-2.ch \r\n", 12345, "alps-2.ch"},
        {"Welcome to Alps!\nYou have 3 jobs\n77;alps\n", 77, "alps"},
        {"77\n*** account demo is charged ***\n", 77, ""},
        {"Submitted batch job 77\n", 77, ""},
        {"Submitted batch job 77 on cluster alps\n", 77, "alps"},
        {"77\nSubmitted batch job 77\n", 77, ""},
    };
    for (const auto& [out, id, cluster] : table) {
        const SubmitReply reply = parse_sbatch(said(out));
        EXPECT_EQ(reply.kind, Kind::accepted) << out;
        EXPECT_EQ(reply.id, id) << out;
        EXPECT_EQ(reply.cluster, cluster) << out;
    }
}

TEST(SbatchReply, SuccessWithoutOneClearIdIsAmbiguous) {
    for (const std::string_view out :
         {"", "\n", "no number here\n", "0\n", "-5\n", "12x\n", "12 34\n", "12;\n", "12;a b\n",
          "99999999999999999999\n", "12;a;b\n", "1.5\n",
          // A wrapper's own number and the id: which is which nobody can say.
          "2026\n12345\n"}) {
        const SubmitReply reply = parse_sbatch(said(out));
        EXPECT_EQ(reply.kind, Kind::ambiguous) << out;
        EXPECT_EQ(reply.id, 0) << out;
        EXPECT_FALSE(reply.message.empty()) << out;
    }
}

TEST(SbatchReply, AnIdBesideAFailureIsNotBelieved) {
    EXPECT_EQ(parse_sbatch(said("12345\n", "", 1)).kind, Kind::ambiguous);
    ProgramOutput killed = said("1234");
    killed.exit_status.reset();
    killed.signal = 9;
    EXPECT_EQ(parse_sbatch(killed).kind, Kind::ambiguous);
    ProgramOutput late = said("12345\n");
    late.timed_out = true;
    EXPECT_EQ(parse_sbatch(late).kind, Kind::ambiguous);
    EXPECT_EQ(parse_sbatch(late).message, "12345");
}

TEST(SbatchReply, WhatWasNeverStartedIsSafeToRepeat) {
    const SubmitReply reply = parse_sbatch(ProgramOutput{});
    EXPECT_EQ(reply.kind, Kind::not_submitted);
    EXPECT_EQ(reply.message, "sbatch could not be started");
}

struct Told {
    int status;
    Kind kind;
    std::string_view err;
    std::string_view message;
};

// Slurm 22.05.8's own answers, each provoked on a real cluster (tests/slurm/cluster).
const std::vector<Told> kSeen{
    {1, Kind::rejected,
     "sbatch: error: invalid partition specified: nosuch\n"
     "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
     "invalid partition specified: nosuch; Batch job submission failed: Invalid partition name "
     "specified"},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Requested reservation is invalid\n", ""},
    {1, Kind::rejected, "sbatch: error: Batch job submission failed: Invalid node name specified\n",
     ""},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Invalid feature specification\n", ""},
    {1, Kind::rejected, "sbatch: error: Invalid generic resource (gres) specification\n", ""},
    {1, Kind::rejected, "sbatch: error: Batch job submission failed: Job dependency problem\n", ""},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Invalid license specification\n", ""},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Invalid job array specification\n", ""},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or "
     "exceeds some limit)\n",
     ""},
    {1, Kind::rejected,
     "sbatch: error: Memory specification can not be satisfied\n"
     "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
     "Memory specification can not be satisfied; Batch job submission failed: Requested node "
     "configuration is not available"},
    {1, Kind::rejected,
     "sbatch: error: CPU count per node can not be satisfied\n"
     "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
     ""},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Required partition not available (inactive or "
     "drain)\n",
     ""},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Pathname of a file, directory or other "
     "parameter too long\n",
     ""},
    {1, Kind::rejected,
     "sbatch: error: No cluster 'nosuch' known by database.\nsbatch: error: 'nosuch' can't be "
     "reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see "
     "available clusters.\n",
     ""},
    {255, Kind::rejected, "sbatch: error: Invalid --time specification\n",
     "Invalid --time specification"},
    {255, Kind::rejected, "sbatch: error: Invalid --mem specification\n", ""},
    {255, Kind::rejected,
     "Invalid time specification (pos=0): foo\nsbatch: error: Invalid --begin specification\n", ""},
    {255, Kind::rejected,
     "sbatch: unrecognized option '--nosuchopt'\nTry \"sbatch --help\" for more information\n", ""},
    {255, Kind::rejected, "sbatch: error: Maximum node count 2 is less than minimum node count 3\n",
     ""},
    {1, Kind::rejected,
     "sbatch: error: This does not look like a batch script.  The first\nsbatch: error: line must "
     "start with #! followed by the path to an interpreter.\n",
     ""},
    {1, Kind::rejected, "sbatch: error: Batch script is empty!\n", ""},
    {1, Kind::rejected,
     "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\nsbatch: error: instead of "
     "expected UNIX line breaks (\\n).\n",
     ""},
    {1, Kind::rejected, "sbatch: error: Unable to open file nofile\n", ""},
    {1, Kind::rejected, "sbatch: error: invalid number of nodes (-N 2-1)\n",
     "invalid number of nodes (-N 2-1)"},
    // Of a site's job_submit.lua: its own words and slurm.ERROR, 1, or nothing but slurm.ERROR.
    {1, Kind::denied,
     "sbatch: error: You have no allocation on this cluster: see https://site.example\nsbatch: "
     "error: Batch job "
     "submission failed: Unspecified error\n",
     "You have no allocation on this cluster: see https://site.example; Batch job submission "
     "failed: Unspecified "
     "error"},
    {1, Kind::denied, "sbatch: error: Batch job submission failed: Operation not permitted\n", ""},
    {1, Kind::denied, "sbatch: error: Batch job submission failed: Unspecified error\n", ""},
    {1, Kind::ambiguous,
     "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", ""},
    {1, Kind::not_submitted,
     "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
     "failure)\n",
     ""},
    {1, Kind::not_submitted,
     "sbatch: error: s_p_parse_file: cannot stat file /nonexist: No such file or directory, "
     "retrying in 1sec up to 60sec\nsbatch: error: ClusterName needs to be specified\nsbatch: "
     "fatal: Unable to process configuration file\n",
     ""},
    {1, Kind::not_submitted,
     "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: error: "
     "fetch_config: DNS SRV lookup failed\nsbatch: error: _establish_config_source: failed to "
     "fetch config\nsbatch: fatal: Could not establish a configuration source\n",
     ""},
};

// Written from slurm_errno.c and sites' documentation.
const std::vector<Told> kDocumented{
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Invalid account or account/partition "
     "combination specified\n",
     ""},
    {1, Kind::rejected, "sbatch: error: Batch job submission failed: Invalid qos specification\n",
     ""},
    {1, Kind::later,
     "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job "
     "violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n",
     ""},
    {1, Kind::rejected,
     "sbatch: error: Batch job submission failed: Node count specification invalid\n", ""},
    {1, Kind::rejected, "sbatch: error: Batch job submission failed: Access/permission denied\n",
     ""},
    {1, Kind::not_submitted,
     "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode\n", ""},
    {1, Kind::not_submitted,
     "sbatch: error: Batch job submission failed: MaxJobCount limit reached\n", ""},
    {1, Kind::not_submitted,
     "sbatch: error: Batch job submission failed: Protocol authentication error\n", ""},
    {1, Kind::ambiguous,
     "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n", ""},
    {1, Kind::ambiguous,
     "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive "
     "failure)\n",
     ""},
    {1, Kind::denied, "sbatch: error: Batch job submission failed: Operation not supported\n", ""},
    {1, Kind::denied, "sbatch: error: cli_filter plugin terminated with error\n", ""},
    {1, Kind::ambiguous, "ssh: connection closed\n", ""},
    {1, Kind::ambiguous, "", "sbatch was killed, or failed without a message"},
    // Whatever else is said, a time-out may have submitted.
    {1, Kind::ambiguous,
     "sbatch: error: Socket timed out\nsbatch: error: Batch job submission failed: Unable to "
     "contact slurm controller (connect failure)\n",
     ""},
    {1, Kind::ambiguous,
     "sbatch: error: Invalid partition name specified\nsbatch: error: Broken pipe\n", ""},
};

void expect_told(const std::vector<Told>& table) {
    for (const Told& told : table) {
        const SubmitReply reply = parse_sbatch(said("", told.err, told.status));
        EXPECT_EQ(reply.kind, told.kind) << told.err;
        EXPECT_EQ(reply.id, 0);
        EXPECT_FALSE(reply.message.empty());
        EXPECT_EQ(reply.message.find('\n'), std::string::npos);
        if (!told.message.empty()) {
            EXPECT_EQ(reply.message, told.message);
        }
    }
}

TEST(SbatchReply, WhatARealSlurmAnswered) {
    expect_told(kSeen);
}

TEST(SbatchReply, WhatSlurmIsDocumentedToAnswer) {
    expect_told(kDocumented);
}

TEST(SbatchReply, AWrapperMayPutTheErrorOnStdout) {
    const SubmitReply reply =
        parse_sbatch(said("sbatch: error: Invalid partition name specified\n", "", 1));
    EXPECT_EQ(reply.kind, Kind::rejected);
    EXPECT_EQ(reply.message, "Invalid partition name specified");
}

TEST(TestOnly, TellsWhenAndWhereAJobWouldStart) {
    // Seen on 22.05.8 with SLURM_TIME_FORMAT=%s.
    const auto reply = parse_test_only(
        said("",
             "sbatch: Job 1 to start at 1795237809 using 2 processors on nodes n[1-2] in partition "
             "main\n"));
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_TRUE(reply->accepted);
    EXPECT_EQ(reply->start, 1795237809);
    EXPECT_EQ(reply->processors, 2);
    EXPECT_EQ(reply->nodes, "n[1-2]");
    EXPECT_EQ(reply->partition, "main");
}

// Found on a live 26.05.3: the estimate was lost. Both lines are seen there.
TEST(TestOnly, ReadsTheSentenceOfNewerReleases) {
    for (const char* line : {"sbatch: Job 2 to start at 1795237809 a using 1 processors on nodes "
                             "n1 in partition main\n",
                             "sbatch: Job 2 to start at 1795237809 on cluster test1 a using 1 "
                             "processors on nodes n1 in "
                             "partition main\n"}) {
        const auto reply = parse_test_only(said("", line));
        ASSERT_TRUE(reply) << reply.error().message;
        EXPECT_EQ(reply->start, 1795237809) << line;
        EXPECT_EQ(reply->nodes, "n1");
        EXPECT_EQ(reply->partition, "main");
    }
}

TEST(TestOnly, KeepsLocalTimeAsText) {
    const auto reply = parse_test_only(
        said("", "sbatch: Job 9 to start at 2026-11-21T05:10:09 using 8 processors on n1\n"));
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->start, 0);
    EXPECT_EQ(reply->start_text, "2026-11-21T05:10:09");
    EXPECT_EQ(reply->nodes, "n1");
    EXPECT_EQ(reply->partition, "");
}

TEST(TestOnly, ARefusalIsAnAnswerAndAnOutageIsNot) {
    const auto refused = parse_test_only(
        said("", "allocation failure: Requested node configuration is not available\n", 1));
    ASSERT_TRUE(refused);
    EXPECT_FALSE(refused->accepted);
    EXPECT_EQ(refused->message,
              "allocation failure: Requested node configuration is not available");
    const auto down = parse_test_only(
        said("", "allocation failure: Unable to contact slurm controller (connect failure)\n", 1));
    ASSERT_FALSE(down);
    EXPECT_EQ(down.error().code, Errc::unavailable);
    EXPECT_FALSE(parse_test_only(said("", "")));
    EXPECT_FALSE(parse_test_only(said("", "to start at using processors on\n")));
}

}  // namespace
}  // namespace lockstep
