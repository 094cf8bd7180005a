#include "daemon/control/actor/ranks_text.hpp"

#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/base/json_page.hpp"
#include "daemon/telemetry/series/job_stats.hpp"

#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

void put_number(Json& out, std::string_view name, std::optional<double> value) {
    if (!value) {
        return;
    }
    const std::string key{name};
    if (std::isfinite(*value)) {
        out[key] = *value;
    } else {
        // JSON has no NaN; a loss that is one is news and must not look like "unknown".
        out[key] = std::isnan(*value) ? "nan" : *value > 0 ? "inf" : "-inf";
    }
}

// `gpu` is the rank's first; most have one.
void put_gpus(Json& item, std::span<const telemetry::RankGpu> gpus) {
    for (const telemetry::RankGpu& one : gpus) {
        Json gpu = Json::object();
        const auto put = [&gpu](const char* key, double value) {
            if (!std::isnan(value)) {
                gpu[key] = value;
            }
        };
        gpu["gpu"] = one.gpu->gpu;
        put("utilization_ratio", (*one.gpu)[GpuMetric::utilization]);
        put("memory_bytes", one.memory_bytes);
        put("memory_used_bytes", (*one.gpu)[GpuMetric::memory_used]);
        put("memory_total_bytes", (*one.gpu)[GpuMetric::memory_total]);
        put("power_watts", (*one.gpu)[GpuMetric::power]);
        put("temperature_celsius", (*one.gpu)[GpuMetric::temperature_core]);
        item["gpus"].push_back(std::move(gpu));
    }
    if (!gpus.empty()) {
        item["gpu"] = gpus.front().gpu->gpu;
    }
}

// What the rank is sorted by; nothing if there is none.
std::optional<double> sort_value(const RankKey& key, std::size_t rank,
                                 const telemetry::JobSeries* series,
                                 const std::vector<telemetry::RankGpu>& gpus, double now) {
    if (key.kind == RankKeyKind::rank) {
        return static_cast<double>(rank);
    }
    if (key.kind == RankKeyKind::gpu_use || key.kind == RankKeyKind::gpu_power) {
        const bool use = key.kind == RankKeyKind::gpu_use;
        double sum = 0;
        int count = 0;
        for (const telemetry::RankGpu& one :
             telemetry::gpus_of(gpus, static_cast<std::int32_t>(rank))) {
            const double value = (*one.gpu)[use ? GpuMetric::utilization : GpuMetric::power];
            sum += std::isnan(value) ? 0 : value;
            count += std::isnan(value) ? 0 : 1;
        }
        return count == 0 ? std::nullopt : std::optional{use ? sum / count : sum};
    }
    if (series == nullptr || rank >= series->world_size() || series->rank(rank).empty()) {
        return std::nullopt;
    }
    const telemetry::RankSeries& one = series->rank(rank);
    switch (key.kind) {
        case RankKeyKind::step:
            return one.last_step() < 0 ? std::nullopt
                                       : std::optional{static_cast<double>(one.last_step())};
        case RankKeyKind::metric:
            return one.latest(key.metric);
        case RankKeyKind::report_age:
            return series->report_age(rank, now);
        case RankKeyKind::rank:
        case RankKeyKind::gpu_use:
        case RankKeyKind::gpu_power:
            break;
    }
    return std::nullopt;
}

// A launcher's rank may end long before the launcher, whose end is the one that is stored.
void put_process(Json& item, const wire::StartedRank& process) {
    item["pid"] = process.pid;
    if (!process.ended || item["state"] != "running") {
        return;
    }
    const bool good = process.end_known && process.exit_code == 0 && process.signal == 0;
    item["state"] = good ? "succeeded" : process.end_known ? "failed" : "ended";
    if (process.signal != 0) {
        item["signal"] = process.signal;
    } else if (process.end_known) {
        item["exit_code"] = process.exit_code;
    }
}

}  // namespace

std::string ranks_text(const ControlContext& context, const Job& job,
                       const telemetry::JobSeries* series, const JobActor* actor,
                       const RanksQuery& query) {
    const auto world = static_cast<std::size_t>(job.world_size());
    const double now = context.now_seconds();
    const auto gpus = context.gpus.ranks(job.id.value, now);
    std::vector<std::optional<double>> values(world);
    for (std::size_t rank = 0; rank < world; ++rank) {
        values[rank] = sort_value(query.key, rank, series, gpus, now);
    }
    std::vector<std::string> texts;
    for (const std::int32_t number : ranks_in_order(values, query)) {
        const auto rank = static_cast<std::size_t>(number);
        Json item = rank_json(job, number);
        if (const auto* process = actor == nullptr ? nullptr : actor->process(number)) {
            put_process(item, *process);
        }
        if (series != nullptr && rank < series->world_size() && !series->rank(rank).empty()) {
            const auto& one = series->rank(rank);
            if (one.last_step() >= 0) {
                item["step"] = one.last_step();
            }
            for (const telemetry::RankMetric& row : telemetry::kRankMetrics) {
                if (row.answered != telemetry::Answered::no) {
                    put_number(item, row.name, one.latest(row.metric));
                }
            }
            if (const auto age = series->report_age(rank, now); age && !is_final(job.state)) {
                item["report_age_seconds"] = *age;
            }
        }
        put_gpus(item, telemetry::gpus_of(gpus, number));
        texts.push_back(dump_json(item));
    }
    return json_page({texts.begin(), texts.end()}, "");
}

std::string ranks_answer(const ControlContext& context, const Job& job,
                         const telemetry::JobSeries* series, JobActor* actor,
                         const RanksQuery& query) {
    std::string text = ranks_text(context, job, series, actor, query);
    Json rest = Json::object();
    rest["total"] = job.world_size();
    std::optional<telemetry::JobStats> computed;
    const telemetry::JobStats* stats = actor != nullptr ? actor->stats() : nullptr;
    if (stats == nullptr && series != nullptr) {
        stats = &computed.emplace(telemetry::compute_job_stats(*series, context.now_seconds()));
    }
    if (stats != nullptr) {
        rest["ranks_reporting"] = stats->ranks_reporting;
        put_number(rest, "samples_per_second", stats->samples_per_second);
    }
    text.back() = ',';  // one object of the two
    text += dump_json(rest).substr(1);
    return text;
}

}  // namespace lockstep
