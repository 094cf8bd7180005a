// How much CPU time telemetry takes, one core: taking in batches of agents, and rendering 200,000
// rank series. Prints medians of five rounds as `name value unit`. Beside it the floor for the same
// bytes: a memcpy of the body.
#include "daemon/telemetry/exposition.hpp"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::telemetry;

constexpr std::uint32_t kRanks = 25'000;  // × 8 core series = 200,000
constexpr std::uint32_t kRanksPerNode = 8;
constexpr double kNow = 1'000'000;
constexpr int kRounds = 5;

// CPU time and not wall time: what one core needs, also when the others are busy.
double cpu_ms() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double median_ms(const std::function<void()>& work) {
    std::vector<double> rounds;
    for (int i = 0; i < kRounds; ++i) {
        const double began = cpu_ms();
        work();
        rounds.push_back(cpu_ms() - began);
    }
    std::sort(rounds.begin(), rounds.end());
    return rounds[kRounds / 2];
}

// One node's report of one step, as bytes off the wire.
std::string node_batch(std::uint32_t node, std::uint64_t seq) {
    Batch batch;
    batch.seq = seq;
    batch.generation = 1;
    batch.node_rank = node;
    for (std::uint32_t i = 0; i < kRanksPerNode; ++i) {
        const double noise = static_cast<double>((node * 31 + i * 17 + seq) % 97) / 970;
        batch.add_row(node * kRanksPerNode + i, static_cast<std::int64_t>(seq), kNow);
        batch.set("loss", 2.302585 - noise);
        batch.set("step_seconds", 0.9123 + noise);
        batch.set("busy_seconds", 0.71 + noise);
        batch.set("comm_wait_seconds", 0.19876);
        batch.set("data_wait_seconds", 0.00123 + noise);
        batch.set("samples", 64);
    }
    return encode_batch(batch);
}

double resident_mib() {
    long pages = 0;
    std::ifstream{"/proc/self/statm"}.ignore(64, ' ') >> pages;
    return static_cast<double>(pages) * 4096 / (1U << 20U);
}

}  // namespace

int main() {
    JobSeries job{kRanks};
    std::uint64_t seq = 0;
    std::size_t samples = 0;
    const double ingest = median_ms([&] {
        samples = 0;
        ++seq;
        for (std::uint32_t node = 0; node < kRanks / kRanksPerNode; ++node) {
            const auto batch = decode_batch(node_batch(node, seq));
            samples += job.ingest(batch.value(), 1, kNow).samples;
        }
    });
    const double encode = median_ms([&] {
        for (std::uint32_t node = 0; node < kRanks / kRanksPerNode; ++node) {
            samples += node_batch(node, 1).empty() ? 1 : 0;
        }
    });
    std::printf("ingest %.0f samples/s\n",
                static_cast<double>(samples) / std::max(ingest - encode, 0.001) * 1000);

    std::vector<JobMetricsView> jobs(1);
    jobs[0].job_id = "ls-01J00000000000000000000000";
    jobs[0].name = "bench";
    jobs[0].state = JobState::running;
    jobs[0].ranks_expected = static_cast<std::int32_t>(kRanks);
    jobs[0].series = &job;
    MetricsView view;
    view.now = kNow + 1;
    view.active = jobs;
    DaemonMetrics daemon;
    const double before = resident_mib();
    std::string body;
    const double render = median_ms([&] {
        body.clear();
        body.shrink_to_fit();  // `body = {}` would keep the memory
        body = render_metrics(TextFormat::prometheus, daemon, view);
    });
    const double after = resident_mib();
    const double stats =
        median_ms([&] { samples += compute_job_stats(job, view.now).ranks_reporting; });
    std::string copy;
    const double floor = median_ms([&] {
        copy.clear();
        copy.shrink_to_fit();
        copy = body;
    });
    std::printf("metrics_200k_series %.1f ms\n", render);
    std::printf("metrics_of_which_aggregates %.1f ms\n", stats);
    std::printf("metrics_body %.1f MiB\n", static_cast<double>(body.size()) / (1U << 20U));
    std::printf("metrics_extra_memory %.1f MiB\n",
                after - before - static_cast<double>(body.capacity()) / (1U << 20U));
    std::printf("metrics_memcpy_floor %.1f ms\n", floor);
    std::printf("series_memory %.0f MiB\n", static_cast<double>(job.bytes()) / (1U << 20U));
    return samples > 0 ? 0 : 1;
}
