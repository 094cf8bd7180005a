// What each rank of one generation on this node is started with: command, environment, folder, log,
// CPUs. A view, made for a call or two: all that it refers to outlives it. Agent thread only.
#pragma once

#include "job/agent/nccl/inspector_watch.hpp"
#include "job/agent/node/job_environment.hpp"
#include "job/agent/node/node_config.hpp"
#include "job/agent/ranks/rank_group.hpp"
#include "job/agent/ranks/socket_directory.hpp"
#include "job/base/result.hpp"
#include "job/model/launch/rank_env.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct RankPlanner {
    const NodeConfig& config;
    const JobSpec& spec;
    const wire::Welcome& welcome;
    const wire::World& world;
    const SocketDirectory& sockets;
    const JobEnvironment& environment;
    std::string address;  // this node's
    std::int32_t ras_port = 0;
    const InspectorWatch* inspector = nullptr;  // null: none is used

    RankPlace place_of(std::int32_t local_rank) const;
    // Makes the folders and files the ranks count on; their working directory. not_found, denied:
    // in words for the job's user.
    Result<std::string> prepare_folders() const;
    // `inherited`: what the rank's environment is made from.
    Result<RankGroup::RankPlan> plan_of(std::int32_t local_rank, const std::string& directory,
                                        std::map<std::string, std::string> inherited) const;
    // resources.binding: which CPUs and whose memory each of them gets (rank_planner_binding.cpp).
    // What the job's user should know of it.
    std::vector<std::string> bind(std::vector<RankGroup::RankPlan>& plans) const;
};

}  // namespace lockstep
