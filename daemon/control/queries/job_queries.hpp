// What is asked of jobs, of one or of many: their specifications, events, logs, evidence and nodes,
// and where they lie on disk. The job's own JSON is the registry's. Changes nothing. Control thread
// only.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"
#include "daemon/store/job_records.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

class JobQueries {
  public:
    JobQueries(ControlContext& context, JobRegistry& registry)
        : context_(context), registry_(registry) {}

    // As Control has them.
    Task<Result<std::string>> list(Caller caller, JobQuery query);
    Task<Result<std::string>> spec(Caller caller, std::string id);
    Task<Result<std::string>> script(Caller caller, std::string id);
    Task<Result<std::string>> events(Caller caller, std::string id, EventsQuery query);
    Task<Result<LogPlace>> log_place(Caller caller, std::string id, std::int32_t rank,
                                     std::int32_t attempt);
    Task<Result<DiskPlace>> disk(Caller caller, std::string id);
    // evidence_queries.cpp
    Task<Result<std::string>> evidence(Caller caller, std::string id, CapturesQuery query);
    Task<Result<EvidencePlace>> evidence_place(Caller caller, std::string id, EvidenceQuery query);
    Task<Result<std::string>> profiles(Caller caller, std::string id, CapturesQuery query);
    Task<Result<EvidencePlace>> profile_place(Caller caller, std::string id, EvidenceQuery query);
    // job_nodes.cpp
    Task<Result<std::string>> job_nodes(Caller caller, std::string id);

  private:
    struct Found;
    Task<Result<Found>> find(RowQuery query, std::vector<std::string> words);

    ControlContext& context_;
    JobRegistry& registry_;
};

}  // namespace lockstep
