// Whatever the programs print, the parsers neither crash nor attribute to a job what is another's:
// the id, the user and the name of every job returned stand together in one record of the input.
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/hostlist.hpp"
#include "scheduler-integration/slurm/slurm_info.hpp"
#include "scheduler-integration/slurm/slurm_json.hpp"
#include "scheduler-integration/slurm/slurm_reason.hpp"
#include "tests/unit/slurm/fixtures.hpp"

#include <random>

namespace lockstep {
namespace {

class Mutator {
  public:
    explicit Mutator(unsigned seed) : random_(seed) {}

    std::size_t below(std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>{0, limit - 1}(random_);
    }

    // One to four changes: a byte, a piece repeated, moved or dropped, a hostile piece put in.
    std::string operator()(std::string text) {
        for (std::size_t n = 1 + below(4); n > 0 && !text.empty(); --n) {
            const std::size_t at = below(text.size());
            const std::size_t size = 1 + below(std::min<std::size_t>(text.size() - at, 40));
            switch (below(6)) {
                case 0:
                    text[at] = static_cast<char>(below(256));
                    break;
                case 1:
                    text.erase(at, size);
                    break;
                case 2:
                    text.insert(below(text.size()), text.substr(at, size));
                    break;
                case 3:
                    text.resize(at);
                    break;
                case 4:
                    text.insert(at, kPieces[below(kPieces.size())]);
                    break;
                default:
                    std::swap(text[at], text[below(text.size())]);
                    break;
            }
        }
        return text;
    }

  private:
    const std::vector<std::string> kPieces{"\n",
                                           "\x1f",
                                           "\r\n",
                                           std::string(1, '\0'),
                                           "\xff\xfe",
                                           "999999999999999999999999",
                                           "-1",
                                           "18446744073709551616",
                                           "\"",
                                           "\\",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           "\\u0000",
                                           "1e999",
                                           "null",
                                           std::string{kFixtureFence},
                                           "\x1f"
                                           "1\x1f",
                                           "CANCELLED by 7",
                                           "{\"jobs\":["};
    std::mt19937 random_;
};

// Where a program's rows have the id, the user and the name.
struct Columns {
    std::size_t id, user, name;
};

// Whether one line of the text has all three in their places.
bool stands_in_a_line(std::string_view text, const SlurmJob& job, const Columns& at) {
    for (const std::string& line : split(text, '\n')) {
        const std::vector<std::string> fields = split(line, '\x1f');
        if (fields.size() > at.name && to_int(fields[at.id]) == job.id &&
            fields[at.user] == job.user && fields[at.name] == job.name) {
            return true;
        }
    }
    return false;
}

TEST(HostileInput, MutatedRowsAreNeverAttributedToAnotherJob) {
    const std::string squeue = slurm_fixture("22.05/squeue.txt");
    const std::string sacct = slurm_fixture("22.05/sacct.txt");
    Mutator mutate{1};
    std::size_t jobs = 0;
    std::size_t malformed = 0;
    for (int i = 0; i < 20'000; ++i) {
        const std::string rows = mutate(squeue);
        const auto queue = parse_squeue(said(rows), kFixtureFence);
        ASSERT_TRUE(queue);
        const std::string history = mutate(sacct);
        const auto accounted = parse_sacct(said(history), 0);
        ASSERT_TRUE(accounted);
        for (const SlurmJob& job : queue->jobs) {
            ASSERT_TRUE(stands_in_a_line(rows, job, {1, 3, 11})) << rows;
        }
        for (const SlurmJob& job : accounted->jobs) {
            ASSERT_TRUE(stands_in_a_line(history, job, {0, 2, 13})) << history;
            ASSERT_EQ(job.uid, 0);
        }
        jobs += queue->jobs.size() + accounted->jobs.size();
        malformed += queue->malformed + accounted->malformed;
    }
    EXPECT_GT(jobs, 200'000U);
    EXPECT_GT(malformed, 80'000U);
}

bool same(const Json& record, const SlurmJob& job) {
    return record.is_object() && record.value("job_id", Json{}) == Json(job.id) &&
           record.value("name", Json{}) == Json(job.name) &&
           (record.value("user_name", Json{}) == Json(job.user) ||
            record.value("user_id", Json{}) == Json(job.uid.value_or(-1)));
}

TEST(HostileInput, MutatedJsonIsNeverAttributedToAnotherJob) {
    const std::string text = slurm_fixture("24.11/jobs_v0.0.42.json");
    Mutator mutate{2};
    std::size_t good = 0;
    std::size_t both = 0;
    std::size_t refused = 0;
    for (int i = 0; i < 4'000; ++i) {
        const std::string document = mutate(text);
        const auto parsed = parse_slurm_jobs_json(document);
        if (!parsed) {
            ++refused;
            continue;
        }
        ++good;
        // The whole document by the ordinary parser: the same records, in the same order. It may
        // be refused for what stands in members that nobody reads.
        const auto whole = parse_json(document);
        std::size_t at = 0;
        for (const SlurmJob& job : parsed->jobs) {
            ASSERT_NE(document.find(job.name.substr(0, 1)), std::string::npos);
            if (!whole) {
                continue;
            }
            const Json& records = (*whole)["jobs"];
            while (at < records.size() && !same(records[at], job)) {
                ++at;
            }
            ASSERT_LT(at, records.size()) << job.id << " " << job.name;
        }
        both += whole ? 1 : 0;
    }
    EXPECT_GT(good, 100U);
    EXPECT_GT(both, good / 2);
    EXPECT_GT(refused, 1'000U);
}

TEST(HostileInput, EveryParserSurvivesEveryMutation) {
    const std::vector<std::string> texts{
        slurm_fixture("22.05/config.txt"),
        slurm_fixture("22.05/partitions.txt"),
        slurm_fixture("22.05/nodes.txt"),
        "rack[0-1]_blade[00-03],a-[1,3-4],b7",
        "sbatch: Job 1 to start at 1795237809 using 2 processors on nodes n[1-2] in partition "
        "main\nslurm-wlm 22.05.8\nSlurmctld(primary) at ctl is UP\n12345;alps\n",
        "gpu:h200:8(S:0-1),gpu:a100:2(IDX:0,1)",
        "(ReqNodeNotAvail, UnavailableNodes:n[1-2])"};
    Mutator mutate{3};
    std::size_t names = 0;
    for (int i = 0; i < 40'000; ++i) {
        const std::string text = mutate(texts[mutate.below(texts.size())]);
        const ProgramOutput output = said(text, text, static_cast<int>(mutate.below(2)));
        if (const auto list = expand_hostlist(text)) {
            ASSERT_LE(list->size(), limits::kHostlistNames);
            ASSERT_EQ(*expand_hostlist(compress_hostlist(*list)), *list) << text;
            names += list->size();
        }
        const SubmitReply reply = parse_sbatch(output);
        ASSERT_EQ(reply.kind == SubmitReply::Kind::accepted, reply.id > 0) << text;
        ASSERT_LE(reply.message.size(), 4096U);
        ASSERT_GE(gpus_of(text), 0);
        ASSERT_FALSE(explain_reason(text, {}).text.empty() && !text.empty() &&
                     text.find_first_not_of(" \n\t\r()") != std::string::npos && text.front() > ' ')
            << text;
        static_cast<void>(parse_show_config(output));
        static_cast<void>(parse_show_partitions(output));
        static_cast<void>(parse_sinfo_nodes(output));
        static_cast<void>(parse_test_only(output));
        static_cast<void>(parse_ping(output));
        static_cast<void>(parse_slurm_version(text));
        const bool a_state = text.starts_with("CANCELLED by ") && text.size() < 32;
        ASSERT_TRUE(a_state || !judge(parse_slurm_state(text)).terminal) << text;
    }
    EXPECT_GT(names, 1'000U);
}

TEST(HostileInput, LongLinesCostTheirLength) {
    const std::string line(1 << 20, 'x');
    const std::string separators(1 << 20, '\x1f');
    const std::string newlines(1 << 20, '\n');
    const std::string commas(1 << 20, ',');
    for (const std::string& text :
         {line, separators, newlines, commas, std::string(1 << 20, '[')}) {
        EXPECT_TRUE(parse_squeue(said(text), kFixtureFence)->jobs.empty());
        EXPECT_TRUE(parse_sacct(said(text), 0)->jobs.empty());
        EXPECT_TRUE(parse_sinfo_nodes(said(text))->nodes.empty());
        EXPECT_TRUE(parse_show_partitions(said(text))->empty());
        EXPECT_FALSE(parse_show_config(said(text)));
        EXPECT_FALSE(parse_slurm_jobs_json(text));
        EXPECT_FALSE(is_slurm_job_name(text));
        EXPECT_EQ(parse_sbatch(said(text)).kind, SubmitReply::Kind::ambiguous);
        EXPECT_LE(parse_sbatch(said("", text, 1)).message.size(), 4096U);
        EXPECT_TRUE(judge(parse_slurm_state(text)).phase == SlurmPhase::unknown);
        EXPECT_EQ(gpus_of(text), 0);
    }
    EXPECT_FALSE(expand_hostlist(line));
}

}  // namespace
}  // namespace lockstep
