// What it costs to look at every rank of a large job once a step: the aggregates with the straggler
// scores, and the watch over them, as machine/anomaly_run.cpp does once a second. In this process,
// on one core. Prints "name value unit" lines for tests/bench/run.
//
//   bench_stragglers [RANKS [STEPS]]
//
// One rank is slow; the exit status is 1 unless that one and nobody else was told.
#include "daemon/telemetry/series/anomalies.hpp"
#include "daemon/telemetry/series/job_stats.hpp"
#include "daemon/telemetry/series/series.hpp"
#include "tests/bench/telemetry/load_values.hpp"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::telemetry;

constexpr std::uint32_t kRanksPerNode = 8;
constexpr std::size_t kMetrics = 9;  // those with a meaning
constexpr double kStart = 1'000'000;
constexpr double kSlow = 1.6;

// CPU time and not wall time: what one core needs, also when the others are busy.
double cpu_ms() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

void report_step(JobSeries& job, std::uint32_t ranks, std::uint32_t slow, std::uint64_t step,
                 double now) {
    for (std::uint32_t node = 0; node * kRanksPerNode < ranks; ++node) {
        Batch batch;
        batch.seq = step + 1;
        batch.generation = 1;
        batch.node_rank = node;
        const std::uint32_t first = node * kRanksPerNode;
        for (std::uint32_t rank = first; rank < std::min(first + kRanksPerNode, ranks); ++rank) {
            batch.add_row(rank, static_cast<std::int64_t>(step), now);
            for (std::size_t k = 0; k < kMetrics; ++k) {
                const double factor = rank == slow && k == 2 ? kSlow : 1;
                batch.set(bench::kMetricNames[k], factor * bench::load_value(rank, k, step));
            }
        }
        job.ingest(batch, 1, now);
    }
}

void print(const char* name, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::printf("%s_p50 %.3f ms\n", name, values[values.size() / 2]);
    std::printf("%s_p99 %.3f ms\n", name, values[values.size() * 99 / 100]);
}

}  // namespace

int main(int argc, char** argv) {
    const auto ranks = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 10'000);
    const int steps = argc > 2 ? std::atoi(argv[2]) : 200;
    const std::uint32_t slow = ranks / 3;
    JobSeries job{ranks};
    AnomalyWatch watch;
    std::vector<double> stats_ms;
    std::vector<double> watch_ms;
    std::vector<double> both_ms;
    int told = 0;
    int others = 0;
    for (int step = 0; step < steps; ++step) {
        const double now = kStart + step;
        report_step(job, ranks, slow, static_cast<std::uint64_t>(step), now);
        AnomalyWatch::Facts facts;
        facts.now = now;
        facts.since = kStart;
        facts.ranks_per_node = kRanksPerNode;
        const double began = cpu_ms();
        const JobStats stats = compute_job_stats(job, now);
        const double between = cpu_ms();
        const std::vector<Anomaly> found = watch.look(job, stats, facts);
        const double ended = cpu_ms();
        stats_ms.push_back(between - began);
        watch_ms.push_back(ended - between);
        both_ms.push_back(ended - began);
        for (const Anomaly& one : found) {
            const bool is_it =
                one.kind == AnomalyKind::straggler && one.rank == static_cast<std::int32_t>(slow);
            (is_it ? told : others) += 1;
        }
    }
    print("stragglers_of_which_aggregates", stats_ms);
    print("stragglers_of_which_watch", watch_ms);
    print("stragglers_10k_ranks", both_ms);
    std::printf("stragglers_told %d ranks\n", told);
    if (told != 1 || others != 0) {
        std::fprintf(stderr, "rank %u is slow: told %d times, and %d of others\n", slow, told,
                     others);
        return 1;
    }
    return 0;
}
