// What is asked of the scheduler's machines: what it says of them, which jobs are there, and what
// is remembered of each; and whether store, runs folder and scheduler can take jobs. Control thread
// only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/cluster_view.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"

#include <string>

namespace lockstep {

class ClusterQueries {
  public:
    ClusterQueries(ControlContext& context, const JobRegistry& registry)
        : context_(context), registry_(registry) {}

    // As Control has them.
    Json cluster();
    Task<Result<std::string>> nodes(Caller caller, NodeQuery query);
    Task<Result<std::string>> node(Caller caller, std::string name);
    Task<Status> ready();

  private:
    ControlContext& context_;
    const JobRegistry& registry_;
};

}  // namespace lockstep
