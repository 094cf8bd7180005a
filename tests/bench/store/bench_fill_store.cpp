// bench_fill_store FILE JOBS: a store with so many finished jobs, each with the events of a run on
// two nodes with two ranks each, written through the store's own code. For measuring start-up.
#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/job_view.hpp"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace lockstep;

constexpr std::int64_t kJobsPerTransaction = 1000;
constexpr UnixMillis kFirst = 1'700'000'000'000;

// The events of one successful run.
std::vector<EventData> story(const Json& spec, std::int64_t number) {
    std::vector<EventData> out;
    out.emplace_back(event::Submitted{"bench", spec, {}});
    out.emplace_back(
        event::AttemptCreated{1, std::string(64, 'a'), "/runs/" + std::to_string(number)});
    out.emplace_back(event::AttemptPlaced{1, "local-" + std::to_string(number)});
    for (std::int32_t node = 0; node < 2; ++node) {
        out.emplace_back(
            event::AgentClaimed{1, node, "n" + std::to_string(node), "incarnation", 100});
    }
    out.emplace_back(
        event::GenerationStarted{1, 1, "127.0.0.1", 29500, {"127.0.0.1", "127.0.0.1"}, -1});
    out.emplace_back(event::RanksStarted{1, 1});
    for (std::int32_t rank = 0; rank < 4; ++rank) {
        event::RankExited exit;
        exit.attempt = 1;
        exit.generation = 1;
        exit.rank = rank;
        exit.node = "n" + std::to_string(rank / 2);
        exit.exit_code = 0;
        out.emplace_back(exit);
    }
    out.emplace_back(event::GenerationEnded{1, 1, {}});
    out.emplace_back(event::AttemptEnded{1, {}});
    out.emplace_back(event::Finished{JobState::succeeded, {}, 400});
    return out;
}

Status add_job(Database& database, const Json& spec, std::int64_t number, Seq& seq) {
    const UnixMillis submitted = kFirst + number * 1000;
    const JobId id = make_job_id(submitted);
    Job job;
    Append append;
    for (EventData& data : story(spec, number)) {
        Event event{++seq, id, submitted + 10 * static_cast<UnixMillis>(append.events.size()),
                    std::move(data)};
        if (append.events.empty()) {
            auto started = start_job(event);
            if (!started) {
                return fail(started.error());
            }
            job = std::move(*started);
        } else if (const auto applied = apply(job, event); !applied) {
            return fail(applied.error().in("event " + std::to_string(append.events.size())));
        }
        append.events.push_back(std::move(event));
    }
    append.row.id = id;
    append.row.user = job.user;
    append.row.name = job.spec.name;
    append.row.state = job.state;
    append.row.submitted_at = job.submitted_at;
    append.row.finished_at = job.finished_at;
    append.row.last_seq = job.last_seq;
    append.row.view = dump_json(job_json(job, {}));
    append.row.labels.assign(job.spec.labels.begin(), job.spec.labels.end());
    return JobRecords{database}.append(append);
}

Status fill(const std::string& file, std::int64_t jobs) {
    auto database = Database::open(file);
    if (!database) {
        return fail(database.error());
    }
    const auto parsed =
        parse_json(R"({"name": "bench", "framework": "native", "labels": {"team": "vision"},)"
                   R"( "resources": {"nodes": 2, "ranks_per_node": 2}})");
    const auto spec = parse_spec(parsed.value());
    if (!spec) {
        return fail(spec.error());
    }
    const Json canonical = to_json(*spec);
    const auto last = EventRecords{**database}.last_seq();
    if (!last) {
        return fail(last.error());
    }
    Seq seq = *last;
    for (std::int64_t number = 0; number < jobs;) {
        if (const auto begun = (*database)->begin(); !begun) {
            return begun;
        }
        for (std::int64_t i = 0; i < kJobsPerTransaction && number < jobs; ++i, ++number) {
            if (const auto added = add_job(**database, canonical, number, seq); !added) {
                return added;
            }
        }
        if (const auto committed = (*database)->commit(); !committed) {
            return committed;
        }
    }
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    const auto jobs = argc == 3 ? to_int(argv[2]) : std::nullopt;
    if (!jobs || *jobs < 0) {
        std::fprintf(stderr, "usage: bench_fill_store FILE JOBS\n");
        return 2;
    }
    log::start("bench_fill_store", log::Level::warn, false);
    if (const auto filled = fill(argv[1], *jobs); !filled) {
        std::fprintf(stderr, "bench_fill_store: %s\n", filled.error().text().c_str());
        return 1;
    }
    return 0;
}
