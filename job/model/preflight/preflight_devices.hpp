// What the pre-flight makes of a node's GPUs and network ports: check_node() and compare_nodes() of
// preflight.hpp call these. A GPU fails its node only if the job asks for GPUs. Pure; any thread.
#pragma once

#include "job/model/preflight/preflight.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Memory errors, repairs that wait, what the driver asks for, who uses it, what slows it down.
void check_gpu_health(const PreflightNode& node, const JobSpec& spec,
                      std::vector<PreflightFinding>& out);
// Whether a fault that the kernel's log tells ("XID 79 of PCI:0000:3b:00 …") is of a GPU that is
// none of the job's `wanted`. false: not known, as where NVML does not show all of those.
bool is_of_other_gpu(const std::string& fault, const GpuFacts& gpus, std::int32_t wanted);
// Fewer active NVLinks than most GPUs of the same model have.
void compare_nvlinks(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                     std::vector<PreflightFinding>& out);

// GPUs of another model than most nodes have; not of a job that asks for several kinds of nodes,
// slurm.constraint "a100|h100".
void compare_gpu_models(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                        std::vector<PreflightFinding>& out);

// What preflight.gpu_test has found of the node's GPUs, each by itself.
void check_gpu_test(const PreflightNode& node, const JobSpec& spec,
                    std::vector<PreflightFinding>& out);
// A GPU that is slower than most of its model in the job.
void compare_gpu_tests(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                       std::vector<PreflightFinding>& out);

// Interfaces that are down; ports that NCCL_IB_HCA takes and that are not active.
void check_nics(const PreflightNode& node, const JobSpec& spec, std::vector<PreflightFinding>& out);
// An RDMA port that is active on other nodes and not on this one.
void compare_nics(const std::vector<PreflightNode>& nodes, const JobSpec& spec,
                  std::vector<PreflightFinding>& out);

// The RDMA ports, "mlx5_0:1", that each of these nodes' ranks should use: those that are active on
// every node, or, where the nodes name theirs differently, each node's own active ones. Nothing if
// one of them has none, or has not said: NCCL does not meet over RDMA with one that has none.
std::map<std::int32_t, std::vector<std::string>> active_ports(
    const std::map<std::int32_t, const NodeFacts*>& nodes);

// Whether NCCL takes port `port` of `device` with this NCCL_IB_HCA: "mlx5_0:1,mlx5_2" (prefixes of
// names), "=mlx5_1" (whole names), "^mlx5_3" (all but those), "" (all). NCCL's documentation of its
// environment variables.
bool nccl_takes_port(std::string_view setting, std::string_view device, std::int32_t port);

}  // namespace lockstep
