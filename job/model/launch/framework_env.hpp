// What each framework reads beside the variables of torchrun: TF_CONFIG, PADDLE_*, JAX_*, … Part of
// rank_env.cpp; the frameworks' own files (frameworks/) say at each where it is read. Pure; any
// thread.
#pragma once

#include "job/model/launch/rank_env.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

// For a rank (launch rank and task).
void add_framework(std::map<std::string, std::string>& out, const JobSpec& spec,
                   const RankPlace& place);
// For the one process of a node, which starts the node's ranks itself (launch node).
void add_node_launch(std::map<std::string, std::string>& out, const JobSpec& spec,
                     const RankPlace& place);

// What the evidence of a hang needs of NCCL and torch (job/agent/diagnostics/nccl_ras.hpp,
// flight_dump.hpp), where neither the job nor its site has said otherwise.
void add_evidence_defaults(std::map<std::string, std::string>& out, const JobSpec& spec,
                           const RankPlace& place);

// The Inspector plugin of the place, unless somebody uses the profiler, the Inspector or OTLP for
// something else: the variables of OTLP are everybody's in a process.
void add_nccl_inspector(std::map<std::string, std::string>& out, const RankPlace& place);

// "10.0.0.1:4242", "[fe80::1]:4242".
std::string host_and_port(const std::string& host, std::int32_t port);

}  // namespace lockstep
