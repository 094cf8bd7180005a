// The nodes of a job, each with its ranks together: what a screen of 1,250 nodes can show of 10,000
// ranks.
#include "daemon/control/actor/job_actor.hpp"
#include "daemon/control/base/json_page.hpp"
#include "daemon/control/queries/job_queries.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

struct RanksOfNode {
    std::int32_t running = 0, succeeded = 0, failed = 0, stopped = 0;
};

RanksOfNode count_ranks(const Job& job, std::int32_t first, std::int32_t count) {
    RanksOfNode out;
    const Generation* generation = job.generation();
    if (generation == nullptr) {
        return out;
    }
    for (std::int32_t rank = first; rank < first + count; ++rank) {
        const auto failed = generation->failed.find(rank);
        if (failed != generation->failed.end()) {
            ++(failed->second.stopped ? out.stopped : out.failed);
        } else if (generation->exited[static_cast<std::size_t>(rank)]) {
            ++(generation->stopped.contains(rank) ? out.stopped : out.succeeded);
        } else if (generation->open() && generation->running_at != 0) {
            ++out.running;
        }
    }
    return out;
}

const char* state_of(const Job& job, const RanksOfNode& ranks, std::int32_t per_node, bool claimed,
                     bool heard, bool lost) {
    if (lost) {
        return "lost";
    }
    if (ranks.failed > 0) {
        return "failed";
    }
    if (is_final(job.state)) {
        return ranks.succeeded == per_node ? "succeeded"
               : ranks.stopped > 0         ? "stopped"
               : claimed                   ? "ended"
                                           : "never_started";
    }
    if (!claimed) {
        return "waiting";
    }
    return !heard ? "silent" : ranks.running > 0 ? "running" : "waiting";
}

void put_gpu_look(Json& item, const telemetry::GpuTable::Look& look) {
    const std::pair<const char*, GpuMetric> means[] = {
        {"gpu_utilization_ratio", GpuMetric::utilization}};
    item["gpus"] = look.batch.gpus.size();
    for (const auto& [name, metric] : means) {
        double sum = 0;
        int count = 0;
        for (const GpuSample& gpu : look.batch.gpus) {
            const double value = gpu[metric];
            sum += std::isnan(value) ? 0 : value;
            count += std::isnan(value) ? 0 : 1;
        }
        if (count > 0) {
            item[name] = sum / count;
        }
    }
}

}  // namespace

Task<Result<std::string>> JobQueries::job_nodes(Caller caller, std::string id) {
    const auto loaded = co_await registry_.load(caller, id);
    LOCKSTEP_CO_TRY(loaded);
    const Job& job = **loaded;
    const double now = context_.now_seconds();
    const auto steady = context_.clock.steady();
    const JobRegistry::ActorPtr actor = registry_.find(id);
    const telemetry::JobSeries* series = context_.series.find(id);
    std::map<std::int32_t, const telemetry::GpuTable::Look*> looks;  // by slot
    context_.gpus.each_fresh(now, [&](const auto& source, const auto& look) {
        if (source.job == id) {
            looks[source.slot] = &look;
        }
    });
    const std::int32_t per_node = job.spec.ranks_per_node();
    const std::int32_t nodes = job.nodes();
    const Generation* generation = job.generation();
    std::vector<std::string> texts;
    for (std::int32_t node = 0; node < nodes; ++node) {
        const std::int32_t first = node * per_node;
        const std::int32_t slot = generation == nullptr ? node : generation->slot_of(node);
        Json item = Json::object();
        item["node_rank"] = node;
        const NodeClaim* claim = job.claim_of_node(node);
        if (claim != nullptr) {
            item["node"] = claim->node;
        }
        if (generation != nullptr &&
            static_cast<std::size_t>(node) < generation->addresses.size()) {
            item["address"] = generation->addresses[static_cast<std::size_t>(node)];
        }
        item["ranks"] = std::to_string(first) +
                        (per_node > 1 ? "-" + std::to_string(first + per_node - 1) : "");
        const RanksOfNode ranks = count_ranks(job, first, per_node);
        const Agent* link = nullptr;
        if (actor) {
            const auto at = actor->links().find(slot);
            link = at == actor->links().end() ? nullptr : at->second.get();
        }
        const bool lost = job.attempt() != nullptr && job.attempt()->lost.contains(slot);
        item["state"] = state_of(job, ranks, per_node, claim != nullptr, link != nullptr, lost);
        item["ranks_running"] = ranks.running;
        item["ranks_failed"] = ranks.failed;
        if (link != nullptr) {
            item["agent_age_seconds"] =
                std::chrono::duration<double>(steady - link->last_heard).count();
            if (link->clock_offset) {
                item["clock_offset_seconds"] =
                    static_cast<double>(link->clock_offset->offset_us) / 1e6;
            }
        }
        std::optional<double> oldest;
        std::optional<std::int64_t> step;
        for (std::int32_t rank = first; series != nullptr && rank < first + per_node; ++rank) {
            const auto at = static_cast<std::size_t>(rank);
            if (at >= series->world_size() || series->rank(at).empty()) {
                continue;
            }
            const auto age = series->report_age(at, now);
            oldest = age ? std::max(oldest.value_or(0), *age) : oldest;
            const std::int64_t last = series->rank(at).last_step();
            step = last >= 0 ? std::min(step.value_or(last), last) : step;
        }
        if (step) {
            item["step"] = *step;
        }
        if (oldest && !is_final(job.state)) {
            item["report_age_seconds"] = *oldest;
        }
        if (const auto look = looks.find(slot); look != looks.end()) {
            put_gpu_look(item, *look->second);
        }
        texts.push_back(dump_json(item));
    }
    co_return json_page({texts.begin(), texts.end()}, "");
}

}  // namespace lockstep
