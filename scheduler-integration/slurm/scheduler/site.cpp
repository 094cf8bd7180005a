#include "scheduler-integration/slurm/scheduler/site.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kReleasesPage = "scheduler-integration/README.md, Releases of Slurm";

constexpr auto kFactsAge = std::chrono::minutes{10};
constexpr auto kNodesAge = std::chrono::seconds{30};
constexpr auto kNodesWanted = std::chrono::minutes{5};  // after the last reader

constexpr std::int64_t kDefaultTimeLimit = 24L * 3600;

ClusterNode as_cluster_node(SlurmNode node) {
    ClusterNode out;
    out.usable = node.usable();
    out.idle = out.usable && node.state == "idle";
    out.state = node.state + node.flags;
    out.cpus = node.cpus;
    out.cpus_used = node.cpus_allocated;
    out.memory_mb = node.memory_mb;
    out.gpus = node.gpus();
    out.gpus_used = node.gpus_used();
    out.gpu_types = gpu_types_of(node.gres);
    out.name = std::move(node.name);
    out.reason = std::move(node.reason);
    out.partitions = std::move(node.partitions);
    return out;
}

// No longer than the longest of any partition, where Slurm's default one may be any of them.
std::int64_t default_of_any(const std::vector<SlurmPartition>& partitions) {
    std::int64_t longest = 0;
    for (const SlurmPartition& one : partitions) {
        longest = std::max(longest, one.max_time.value_or(kDefaultTimeLimit));
    }
    return std::min(longest, kDefaultTimeLimit);
}

std::string first_partition(const SlurmSpec& spec) {
    return split(spec.partition, ',').empty() ? "" : split(spec.partition, ',').front();
}

}  // namespace

SlurmSite::SlurmSite(const Clock& clock, SlurmBackend& backend,
                     const SlurmSchedulerOptions& options, SlurmPace& pace, const SlurmLink& link)
    : clock_(clock), backend_(backend), options_(options), pace_(pace), link_(link) {}

Task<Status> SlurmSite::begin() {
    auto facts = co_await backend_.probe();
    if (!facts) {
        co_return fail(facts.error());
    }
    facts_ = std::move(*facts);
    facts_at_ = clock_.steady();
    if (const std::string defects = known_defects(facts_->version); !defects.empty()) {
        log::warn("this release of Slurm has known defects",
                  {{"what", defects}, {"see", kReleasesPage}});
    }
    log::info("Slurm answers", {{"version", to_string(facts_->version)},
                                {"cluster", facts_->config.cluster},
                                {"partitions", facts_->partitions.size()},
                                {"accounting", facts_->config.has_accounting()},
                                {"min_job_age", facts_->config.min_job_age}});
    co_await ask_nodes();
    co_return Status{};
}

// Partitions and limits change without anybody telling us.
bool SlurmSite::facts_are_old() const {
    return !facts_ || clock_.steady() - facts_at_ >= kFactsAge;
}

bool SlurmSite::nodes_are_wanted() const {
    const auto now = clock_.steady();
    return cluster_asked_ && now - *cluster_asked_ < kNodesWanted &&
           (nodes_seen_ == 0 || now - nodes_at_ >= kNodesAge);
}

Task<void> SlurmSite::look_around() {
    if (facts_are_old() && link_.reachable) {
        pace_.spend();
        auto facts = co_await backend_.probe();
        if (facts) {
            if (!facts_) {
                log::info("Slurm answers", {{"version", to_string(facts->version)}});
            }
            facts_ = std::move(*facts);
            facts_at_ = clock_.steady();
        }
    }
    if ((nodes_are_wanted() || clock_.steady() - nodes_at_ >= kFactsAge) && link_.reachable) {
        pace_.spend();
        co_await ask_nodes();
    }
}

Task<void> SlurmSite::ask_nodes() {
    nodes_at_ = clock_.steady();
    auto table = co_await backend_.nodes();
    if (!table) {
        log::warn("Slurm does not report its nodes", {{"what", table.error().message}});
        co_return;
    }
    nodes_.clear();
    for (SlurmNode& node : table->nodes) {
        nodes_.push_back(as_cluster_node(std::move(node)));
    }
    nodes_seen_ = clock_.wall();
}

SlurmPatience SlurmSite::patience() const {
    SlurmPatience out;
    out.unclaimed = options_.unclaimed;
    out.doubt_ends = options_.doubt_ends;
    if (facts_) {
        out.min_job_age = std::chrono::seconds{facts_->config.min_job_age};
        out.accounting = facts_->config.has_accounting();
    }
    out.between_empty = options_.between_empty;
    if (options_.quarantine.count() > 0) {
        out.quarantine = options_.quarantine;
    } else {
        out.quarantine = std::chrono::seconds{facts_ ? facts_->config.credential_lifetime() : 300} +
                         limits::kSlurmClockSkew;
    }
    return out;
}

slurm::BatchSite SlurmSite::batch_site(const SlurmSpec& spec) const {
    slurm::BatchSite out;
    out.agent_path = options_.agent_path;
    out.slurm_bin = options_.slurm_bin;
    out.gpus_as_gres = options_.gpus_as_gres;
    out.default_time_limit_seconds = kDefaultTimeLimit;
    if (facts_) {
        out.release = {facts_->version.major, facts_->version.minor};
        const SlurmPartition* partition = spec.partition.empty()
                                              ? facts_->default_partition()
                                              : facts_->partition(first_partition(spec));
        if (partition != nullptr && (partition->default_time || partition->max_time)) {
            out.default_time_limit_seconds =
                partition->default_time ? *partition->default_time : *partition->max_time;
        } else if (spec.partition.empty() && facts_->default_untold) {
            out.default_time_limit_seconds = default_of_any(facts_->partitions);
        }
    }
    return out;
}

bool SlurmSite::want_nodes() {
    cluster_asked_ = clock_.steady();
    return nodes_seen_ != 0;
}

Cluster SlurmSite::cluster() const {
    Cluster out;
    out.reachable = link_.reachable;
    out.problem = link_.reachable ? "" : link_.why;
    if (facts_) {
        out.name = facts_->config.cluster;
        out.version = to_string(facts_->version);
        for (const SlurmPartition& partition : facts_->partitions) {
            if (!partition.hidden) {
                out.partitions.push_back({partition.name, partition.state, partition.is_default,
                                          partition.total_nodes, partition.max_time,
                                          partition.default_time, partition.max_nodes});
            }
        }
    }
    out.nodes = nodes_;
    out.seen_at = nodes_seen_;
    return out;
}

}  // namespace lockstep
