#include "scheduler-integration/slurm/slurm_info.hpp"
#include "tests/unit/slurm/fixtures.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kUlid = "01jd5m8x3qw9v7t2k4n6p8r0sz";

TEST(SlurmJobName, IsOursOnlyInFull) {
    const std::string ulid{kUlid};
    for (const std::string& name :
         std::vector<std::string>{"x-" + ulid + "-a1", "first.run_2-" + ulid + "-a12",
                                  "-" + ulid + "-a0", "a-a1-" + ulid + "-a1"}) {
        EXPECT_EQ(is_slurm_job_name(name), name.front() != '-') << name;
    }
    for (const std::string& name : std::vector<std::string>{
             ulid + "-a1", "x" + ulid + "-a1", "x-" + ulid + "-a", "x-" + ulid + "-a1 ",
             "x-" + ulid + "-b1", "X-" + ulid + "-a1", "x-" + ulid + "-a1\n", "x\n-" + ulid + "-a1",
             "x-" + ulid.substr(1) + "-a1", "x-01jd5m8x3qw9v7t2k4n6p8r0si-a1",
             "x-" + ulid + "-a1234567890", std::string(200, 'x') + "-" + ulid + "-a1",
             std::string{}, std::string{"-a1"}}) {
        EXPECT_FALSE(is_slurm_job_name(name)) << name;
    }
}

TEST(Squeue, AsksForEveryStateInRowsThatCannotBeForged) {
    EXPECT_THAT(squeue_arguments("abcd1234", "demo"),
                ElementsAre("-h", "-a", "-t", "all", "-o",
                            "abcd1234\x1f%A\x1f%U\x1f%u\x1f%T\x1f%r\x1f%N\x1f%P\x1f%S\x1f%V\x1f%e"
                            "\x1f%j\x1f"
                            "abcd1234",
                            "-u", "demo"));
    EXPECT_EQ(squeue_arguments("abcd1234").size(), 6U);
}

// Jobs of hidden partitions were left out, counted as lost and submitted again without end.
TEST(Slurm, IsAskedForWhatIsHiddenToo) {
    EXPECT_THAT(squeue_arguments("abcd1234", "demo"), Contains("-a"));
    EXPECT_THAT(show_job_arguments(17), ElementsAre("-a", "-o", "show", "job", "17"));
    EXPECT_THAT(kShowPartitionArguments, ElementsAre("-a", "-o", "show", "partition"));
    EXPECT_THAT(sinfo_node_arguments(), Contains("-a"));
}

// With -a, of a federation, the job that another cluster has taken over is shown as well.
TEST(Squeue, AJobThatAnotherClusterHasIsNotHiddenByItsRevokedRow) {
    const auto line = [](const std::string& id, const std::string& state) {
        std::string out = "abcd1234";
        for (const std::string& field :
             {id, std::string{"0"}, std::string{"root"}, state, std::string{"None"}, std::string{},
              std::string{"main"}, std::string{"N/A"}, std::string{"1000"}, std::string{"N/A"},
              std::string{"x"}}) {
            out += "\x1f" + field;
        }
        return out + "\x1f" + "abcd1234\n";
    };
    const std::string text = line("17", "REVOKED") + line("17", "RUNNING") + line("18", "REVOKED");
    const auto table = parse_squeue(said(text), "abcd1234");
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->malformed, 0U);
    ASSERT_EQ(table->jobs.size(), 2U);
    EXPECT_EQ(find_job(table->jobs, 17)->verdict().phase, SlurmPhase::running);
    EXPECT_EQ(find_job(table->jobs, 18)->verdict().end, SlurmEnd::revoked);
}

TEST(Squeue, ReadsWhatARealSlurmPrinted) {
    const std::string text = slurm_fixture("22.05/squeue.txt");
    const auto table = parse_squeue(said(text), kFixtureFence);
    ASSERT_TRUE(table) << table.error().message;
    // Two jobs have a newline in their name: each is two lines that are no row.
    EXPECT_EQ(table->jobs.size(), 17U);
    EXPECT_EQ(table->malformed, 4U);
    EXPECT_EQ(find_job(table->jobs, 4), nullptr);
    EXPECT_EQ(find_job(table->jobs, 64), nullptr);
    EXPECT_EQ(find_job(table->jobs, 77), nullptr);

    const SlurmJob* running = find_job(table->jobs, 56);
    ASSERT_NE(running, nullptr);
    EXPECT_EQ(running->name, "demo-01jd5m8x3qw9v7t2k4n6p8r0sz-a1");
    EXPECT_EQ(running->user, "root");
    EXPECT_EQ(running->uid, 0);
    EXPECT_EQ(running->nodes, "n[2-3]");
    EXPECT_EQ(running->partition, "main");
    EXPECT_EQ(running->reason, "");
    EXPECT_EQ(running->submitted_at, 1795237917);
    EXPECT_EQ(running->started_at, 1795237917);
    EXPECT_EQ(running->ended_at, 0) << "squeue prints the expected end";
    EXPECT_EQ(running->verdict().phase, SlurmPhase::running);

    const SlurmJob* waiting = find_job(table->jobs, 60);
    ASSERT_NE(waiting, nullptr);
    EXPECT_EQ(waiting->reason, "Resources");
    EXPECT_EQ(waiting->estimated_start, 1795238517);
    EXPECT_EQ(waiting->started_at, 0);
    EXPECT_EQ(waiting->verdict().phase, SlurmPhase::queued);

    const SlurmJob* failed = find_job(table->jobs, 57);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->verdict().end, SlurmEnd::failed);
    EXPECT_EQ(failed->exit_code, std::nullopt) << "squeue's text has none";
    const SlurmJob* cancelled = find_job(table->jobs, 59);
    ASSERT_NE(cancelled, nullptr);
    EXPECT_EQ(cancelled->started_at, 0) << "cancelled while it waited";
    EXPECT_EQ(cancelled->ended_at, 1795237919);
    EXPECT_EQ(find_job(table->jobs, 62)->verdict().phase, SlurmPhase::held);
    EXPECT_EQ(find_job(table->jobs, 63)->verdict().phase, SlurmPhase::blocked);
    EXPECT_EQ(find_job(table->jobs, 34)->reason,
              "Job's account not permitted to use this partition (low allows zz not root)");
}

std::string squeue_row(std::string_view name, std::string_view fence = kFixtureFence) {
    std::string row{fence};
    for (const std::string_view field : {"5", "1000", "demo", "RUNNING", "None", "n1", "main",
                                         "1795237917", "1795237917", "1795238517"}) {
        row.append("\x1f").append(field);
    }
    return row.append("\x1f").append(name).append("\x1f").append(fence).append("\n");
}

TEST(Squeue, ARowThatIsNotWholeIsCountedAndNotGuessed) {
    const std::string good = squeue_row("ok");
    ASSERT_EQ(parse_squeue(said(good), kFixtureFence)->jobs.size(), 1U);
    const std::string cut = good.substr(0, good.size() - 5);
    const std::string other = squeue_row("ok", "00000000");
    for (const std::string& text : {cut, other, std::string{"motd: maintenance tonight\n"},
                                    squeue_row("a\x1fz"), squeue_row(""), squeue_row("tab\there"),
                                    squeue_row(std::string_view{"nul\0x", 5}), " " + good}) {
        const auto table = parse_squeue(said(text), kFixtureFence);
        ASSERT_TRUE(table);
        EXPECT_THAT(table->jobs, IsEmpty()) << text;
        EXPECT_EQ(table->malformed, 1U) << text;
    }
    // Every field but the state's word is checked.
    const std::vector<std::pair<std::string, std::string>> wrong{{"\x1f"
                                                                  "5\x1f",
                                                                  "\x1f"
                                                                  "0\x1f"},
                                                                 {"\x1f"
                                                                  "5\x1f",
                                                                  "\x1f"
                                                                  "5_1\x1f"},
                                                                 {"\x1f"
                                                                  "5\x1f",
                                                                  "\x1f"
                                                                  "+5\x1f"},
                                                                 {"\x1f"
                                                                  "5\x1f",
                                                                  "\x1f"
                                                                  "99999999999999999999\x1f"},
                                                                 {"\x1f"
                                                                  "1000\x1f",
                                                                  "\x1f"
                                                                  "-1\x1f"},
                                                                 {"\x1f"
                                                                  "demo\x1f",
                                                                  "\x1f\x1f"},
                                                                 {"\x1fRUNNING\x1f", "\x1f\x1f"},
                                                                 {"\x1fn1\x1f", "\x1fn 1\x1f"},
                                                                 {"\x1f"
                                                                  "1795237917\x1f",
                                                                  "\x1f"
                                                                  "2026-11-21T05:10:09\x1f"}};
    for (const auto& [from, to] : wrong) {
        std::string row = good;
        row.replace(row.find(from), from.size(), to);
        const auto table = parse_squeue(said(row), kFixtureFence);
        EXPECT_THAT(table->jobs, IsEmpty()) << row;
        EXPECT_EQ(table->malformed, 1U) << row;
    }
}

TEST(Squeue, AForgedRowNeedsTheFence) {
    // A job name that ends its own row and prints a whole other one, as Slurm accepts it.
    const std::string forged =
        "x\x1f"
        "guess123\n" +
        squeue_row("victim", "guess123") + "y";
    const auto table = parse_squeue(said(squeue_row(forged)), kFixtureFence);
    ASSERT_TRUE(table);
    EXPECT_THAT(table->jobs, IsEmpty());
    EXPECT_EQ(table->malformed, 3U);
    // Without one nothing is a row.
    EXPECT_THAT(parse_squeue(said(squeue_row("a", "")), "")->jobs, IsEmpty());
}

TEST(Squeue, NoAnswerIsNotAnEmptyQueue) {
    // Seen on 22.05.8 with slurmctld stopped and killed.
    for (const std::string_view err :
         {"slurm_load_jobs error: Socket timed out on send/recv operation\n",
          "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}) {
        for (const int status : {0, 1}) {
            const auto table = parse_squeue(said("", err, status), kFixtureFence);
            ASSERT_FALSE(table) << err;
            EXPECT_EQ(table.error().code, Errc::unavailable);
            EXPECT_THAT(table.error().message, HasSubstr("squeue: slurm_load_jobs error"));
        }
    }
    ProgramOutput late = said("");
    late.timed_out = true;
    EXPECT_EQ(parse_squeue(late, kFixtureFence).error().code, Errc::timed_out);
    EXPECT_EQ(parse_squeue(ProgramOutput{}, kFixtureFence).error().code, Errc::unavailable);
    EXPECT_EQ(parse_squeue(said("", "slurm_load_jobs error: Invalid job id specified\n", 1),
                           kFixtureFence)
                  .error()
                  .code,
              Errc::not_found);
    const auto empty = parse_squeue(said(""), kFixtureFence);
    ASSERT_TRUE(empty);
    EXPECT_THAT(empty->jobs, IsEmpty());
}

TEST(Sacct, AsksForOneUsersAllocationsSinceATime) {
    EXPECT_THAT(
        sacct_arguments("demo", 1795237917, "x-1", true),
        ElementsAre("-X", "-P", "-n", "--delimiter=\x1f", "-u", "demo", "-S", "uts1795237917", "-o",
                    HasSubstr("JobIDRaw,UID,User,State,ExitCode"), "--name=x-1", "-D"));
}

TEST(Sacct, ReadsWhatARealSlurmPrinted) {
    const std::string text = slurm_fixture("22.05/sacct.txt");
    const auto table = parse_sacct(said(text), 0);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(table->jobs.size(), 11U);
    EXPECT_EQ(table->malformed, 0U);

    const SlurmJob* failed = find_job(table->jobs, 57);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->exit_code, 3);
    EXPECT_EQ(failed->signal, 0);
    EXPECT_EQ(failed->cluster, "test1");
    EXPECT_EQ(failed->name, "fail-01jd5m8x3qw9v7t2k4n6p8r0sz-a1");
    const SlurmJob* not_launched = find_job(table->jobs, 47);
    ASSERT_NE(not_launched, nullptr);
    EXPECT_EQ(not_launched->signal, 53);
    const SlurmJob* cancelled = find_job(table->jobs, 59);
    ASSERT_NE(cancelled, nullptr);
    EXPECT_EQ(cancelled->state.cancelled_by, 0);
    EXPECT_EQ(cancelled->nodes, "") << "None assigned";
    EXPECT_EQ(cancelled->started_at, 0);
    const SlurmJob* over = find_job(table->jobs, 55);
    ASSERT_NE(over, nullptr);
    EXPECT_EQ(over->verdict().end, SlurmEnd::time_limit);
    EXPECT_EQ(over->ended_at, 1795238003);
    const SlurmJob* running = find_job(table->jobs, 56);
    ASSERT_NE(running, nullptr);
    EXPECT_EQ(running->exit_code, std::nullopt) << "its row shows 0:0 already";
    EXPECT_EQ(running->ended_at, 0);
}

TEST(Sacct, RowsOfOthersAndStepsAreCountedOnly) {
    const std::string text = slurm_fixture("22.05/sacct.txt");
    const auto table = parse_sacct(said(text), 1000);
    ASSERT_TRUE(table);
    EXPECT_THAT(table->jobs, IsEmpty());
    EXPECT_EQ(table->malformed, 11U);
    std::string step = text.substr(0, text.find('\n') + 1);
    step.insert(step.find('\x1f'), ".batch");
    EXPECT_EQ(parse_sacct(said(step), 0)->malformed, 1U);
}

TEST(Sacct, EachRunOfARequeuedJobIsARow) {
    std::string text;
    for (const std::string_view state : {"NODE_FAIL", "PREEMPTED", "COMPLETED"}) {
        for (const std::string_view field : {"9", "0", "root"}) {
            text.append(field).append("\x1f");
        }
        text.append(state).append(
            "\x1f"
            "0:0\x1f"
            "0:0\x1f"
            "100\x1f"
            "200\x1f"
            "300\x1fNone\x1fn1\x1fmain\x1f"
            "c\x1fx\n");
    }
    const auto table = parse_sacct(said(text), 0);
    ASSERT_TRUE(table);
    ASSERT_EQ(table->jobs.size(), 3U);
    EXPECT_EQ(table->jobs[0].verdict().end, SlurmEnd::node_fail);
    EXPECT_EQ(table->jobs[2].verdict().end, SlurmEnd::ok);
}

TEST(Sacct, WithoutADatabaseThereIsNoAnswer) {
    // Seen on 22.05.8 without accounting, and with slurmdbd stopped and killed.
    for (const std::string_view err :
         {"Slurm accounting storage is disabled\n",
          "sacct: error: Sending PersistInit msg: Resource temporarily unavailable\nsacct: error: "
          "Problem talking to the database: Resource temporarily unavailable\n",
          "sacct: error: Problem talking to the database: Connection refused\n"}) {
        const auto table = parse_sacct(said("", err, 1), 0);
        ASSERT_FALSE(table);
        EXPECT_EQ(table.error().code, Errc::unavailable) << err;
    }
    EXPECT_FALSE(parse_sacct(said("", "sacct: error: Problem talking to the database: x\n"), 0));
}

TEST(ScontrolPing, TellsEachController) {
    const auto up = parse_ping(said("Slurmctld(primary) at ctl is UP\n"));
    ASSERT_TRUE(up);
    ASSERT_EQ(up->size(), 1U);
    EXPECT_EQ(up->front().host, "ctl");
    EXPECT_TRUE(up->front().up);
    // Seen on 22.05.8: status 1 and a banner of stars.
    const auto down = parse_ping(said(
        "Slurmctld(primary) at ctl is DOWN\n*****************************************\n** RESTORE "
        "SLURMCTLD DAEMON TO SERVICE **\n*****************************************\n",
        "", 1));
    ASSERT_TRUE(down);
    EXPECT_FALSE(down->front().up);
    const auto two = parse_ping(
        said("Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b.example is UP\n", "", 1));
    ASSERT_TRUE(two);
    ASSERT_EQ(two->size(), 2U);
    EXPECT_EQ(two->back().host, "b.example");
    EXPECT_TRUE(two->back().up);
    EXPECT_FALSE(parse_ping(said("", "scontrol: fatal: no configuration\n", 1)));
    EXPECT_FALSE(parse_ping(said("Slurmctld( is UP at \n")));
}

// As scontrol 22.05.8 printed it, without the fields behind these.
TEST(ShowJob, TellsOfOneJobWhatSqueueLeavesOut) {
    const std::string line =
        "JobId=17 JobName=first-01jd5m8x3qw9v7t2k4n6p8r0sz-a1 UserId=root(0) GroupId=root(0) "
        "MCS_label=N/A Priority=4294901758 Nice=0 Account=(null) QOS=(null) JobState=FAILED "
        "Reason=NonZeroExitCode Dependency=(null) Requeue=0 Restarts=1 BatchFlag=1 Reboot=0 "
        "ExitCode=2:0 RunTime=00:00:01 TimeLimit=00:05:00 PreemptEligibleTime=2026-11-22T00:29:34 "
        "PreemptTime=None\n";
    const std::string name = "first-01jd5m8x3qw9v7t2k4n6p8r0sz-a1";
    const auto detail = parse_show_job(said(line), name);
    ASSERT_TRUE(detail) << detail.error().message;
    EXPECT_EQ(detail->exit_code, 2);
    EXPECT_EQ(detail->signal, 0);
    EXPECT_EQ(detail->restarts, 1);
    EXPECT_FALSE(detail->preempted);
    std::string preempted = line;
    preempted.replace(preempted.rfind("None"), 4, "1795237990");
    EXPECT_TRUE(parse_show_job(said(preempted), name)->preempted);
    EXPECT_EQ(parse_show_job(said(line), "first").error().code, Errc::not_found)
        << "the number is another job's by now";
    EXPECT_EQ(parse_show_job(said(""), name).error().code, Errc::not_found);
    EXPECT_EQ(parse_show_job(said("", "slurm_load_jobs error: Invalid job id specified\n", 1), name)
                  .error()
                  .code,
              Errc::not_found);
    EXPECT_EQ(parse_show_job(said("",
                                  "slurm_load_jobs error: Unable to contact slurm controller "
                                  "(connect failure)\n",
                                  1),
                             name)
                  .error()
                  .code,
              Errc::unavailable);
}

TEST(SlurmVersion, IsReadFromEveryPackagersText) {
    const std::vector<std::pair<std::string_view, SlurmVersion>> table{
        {"slurm 22.05.8\n", {22, 5, 8}},
        {"slurm-wlm 22.05.8\n", {22, 5, 8}},
        {"slurm 24.11.0-0rc2", {24, 11, 0}},
        {"23.02.7", {23, 2, 7}},
        {"slurm 25.05.0-0pre1\n", {25, 5, 0}},
        {"Welcome to site 9.9\nslurm 20.11.9\n", {20, 11, 9}},
    };
    for (const auto& [text, version] : table) {
        const auto parsed = parse_slurm_version(text);
        ASSERT_TRUE(parsed) << text;
        EXPECT_EQ(*parsed, version) << text;
    }
    EXPECT_EQ(to_string(SlurmVersion{22, 5, 8}), "22.05.8");
    for (const std::string_view text : {"", "slurm", "slurm x.y", "bash: sbatch: not found", "7"}) {
        EXPECT_FALSE(parse_slurm_version(text)) << text;
    }
}

TEST(SlurmVersion, WarnsOfKnownDefects) {
    EXPECT_THAT(known_defects({22, 5, 8}),
                testing::AllOf(HasSubstr("Slurm 22.05.8: "), HasSubstr("15857"),
                               HasSubstr("CVE-2023-41914, "), Not(HasSubstr("\n"))));
    EXPECT_THAT(known_defects({22, 5, 4}), Not(HasSubstr("15857")));
    EXPECT_THAT(known_defects({22, 5, 11}),
                testing::AllOf(HasSubstr("CVE-2025-43904"), Not(HasSubstr("2023"))));
    EXPECT_THAT(known_defects({21, 8, 8}), HasSubstr("older than 22.05"));
    EXPECT_THAT(known_defects({24, 11, 5}), IsEmpty());
    EXPECT_THAT(known_defects({25, 5, 3}), IsEmpty());
}

}  // namespace
}  // namespace lockstep
