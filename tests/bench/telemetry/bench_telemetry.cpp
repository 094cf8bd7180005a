// How much CPU time telemetry takes, one core: taking in batches of agents, and rendering 200,000
// rank series. Prints medians of five rounds as `name value unit`. Beside it the floor for the same
// bytes, a memcpy of the body, and the peer: prometheus-cpp's registry and TextSerializer with as
// many series of the same names and labels.
#include "daemon/telemetry/exposition/exposition.hpp"

#include <malloc.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
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

double status_mib(std::string_view key) {
    std::ifstream file{"/proc/self/status"};
    std::string line;
    while (std::getline(file, line)) {
        if (line.starts_with(key)) {
            return std::strtod(line.c_str() + key.size(), nullptr) / 1024;
        }
    }
    return 0;
}

// By how much the process grows at most while it works, less what is there afterwards and is to be
// (bytes). What the heap has free is given back first, or it would be used unseen.
double extra_mib(const std::function<std::size_t()>& work) {
    ::malloc_trim(0);
    std::ofstream{"/proc/self/clear_refs"} << 5;  // VmHWM begins anew
    const double before = status_mib("VmRSS:");
    const auto kept = static_cast<double>(work());
    return status_mib("VmHWM:") - before - kept / (1U << 20U);
}

void measure_peer(const std::string& job) {
    prometheus::Registry registry;
    for (const std::string_view name :
         {"step", "loss", "step_time_seconds", "busy_seconds", "comm_wait_seconds",
          "data_wait_seconds", "straggler_score", "report_age_seconds"}) {
        auto& family = prometheus::BuildGauge()
                           .Name("lockstep_rank_" + std::string{name})
                           .Help("Of the newest step.")
                           .Register(registry);
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            family.Add({{"job_id", job}, {"rank", std::to_string(rank)}})
                .Set(0.71 + static_cast<double>(rank % 970) / 970);
        }
    }
    std::string body;
    const auto scrape = [&] { return prometheus::TextSerializer{}.Serialize(registry.Collect()); };
    const double extra = extra_mib([&] {
        body = scrape();
        return body.size();
    });
    const double collect = median_ms([&] { registry.Collect(); });
    const double all = median_ms([&] {
        body.clear();
        body.shrink_to_fit();
        body = scrape();
    });
    std::printf("peer_metrics_200k_series %.1f ms\n", all);
    std::printf("peer_metrics_of_which_collect %.1f ms\n", collect);
    std::printf("peer_metrics_body %.1f MiB\n", static_cast<double>(body.size()) / (1U << 20U));
    std::printf("peer_metrics_extra_memory %.1f MiB\n", extra);
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
    // As lockstepd does it: a socket takes each piece, and its memory serves the next.
    std::size_t size = 0;
    const PieceSink sink = [&size](std::string piece) {
        size += piece.size();
        return piece;
    };
    const auto scrape = [&] {
        size = 0;
        render_metrics(TextFormat::prometheus, daemon, view, sink);
    };
    const double extra = extra_mib([&] {
        scrape();
        return 0;
    });
    const double render = median_ms(scrape);
    const std::string body = render_metrics(TextFormat::prometheus, daemon, view);
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
    std::printf("metrics_extra_memory %.1f MiB\n", extra);
    std::printf("metrics_memcpy_floor %.1f ms\n", floor);
    std::printf("series_memory %.0f MiB\n", static_cast<double>(job.bytes()) / (1U << 20U));
    const std::string id{jobs[0].job_id};
    measure_peer(id);
    return samples > 0 ? 0 : 1;
}
