// What this Slurm is: its release, configuration, partitions and nodes, as last asked for. Control
// thread; lives as long as the scheduler, and what it is made of must outlive it.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"
#include "scheduler-integration/cluster.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/scheduler/link.hpp"
#include "scheduler-integration/slurm/scheduler/options.hpp"
#include "scheduler-integration/slurm/scheduler/pace.hpp"
#include "scheduler-integration/slurm/slurm_attempt.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <optional>
#include <vector>

namespace lockstep {

class SlurmSite {
  public:
    SlurmSite(const Clock& clock, SlurmBackend& backend, const SlurmSchedulerOptions& options,
              SlurmPace& pace, const SlurmLink& link);

    // The first question. Fails as SlurmBackend::probe(): nothing is known then.
    Task<Status> begin();
    // Asks again for what is old, or wanted, if Slurm answers.
    Task<void> look_around();
    Task<void> ask_nodes();  // what was known stays where Slurm does not say

    const SlurmFacts* facts() const { return facts_ ? &*facts_ : nullptr; }  // nullptr: not yet
    bool has_accounting() const { return facts_ && facts_->config.has_accounting(); }
    SlurmPatience patience() const;
    slurm::BatchSite batch_site(const SlurmSpec& spec) const;  // where a script is to run

    // Somebody reads the cluster: for some minutes its nodes are asked for often. False: Slurm has
    // not said yet which there are.
    bool want_nodes();
    bool nodes_are_wanted() const;
    const std::vector<ClusterNode>& nodes() const { return nodes_; }
    SteadyTime nodes_at() const { return nodes_at_; }  // when they were asked for
    Cluster cluster() const;

  private:
    bool facts_are_old() const;

    const Clock& clock_;
    SlurmBackend& backend_;
    const SlurmSchedulerOptions& options_;
    SlurmPace& pace_;
    const SlurmLink& link_;
    std::optional<SlurmFacts> facts_;
    SteadyTime facts_at_;
    std::vector<ClusterNode> nodes_;  // asked for more often while somebody reads them
    UnixMillis nodes_seen_ = 0;       // 0 = not yet
    SteadyTime nodes_at_;
    std::optional<SteadyTime> cluster_asked_;
};

}  // namespace lockstep
