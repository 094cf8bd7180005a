// What a node says of itself before the ranks meet, from the kernel's files and the job's folders.
// `root` is put in front of /proc, /sys, /dev and of what an administrator installs; tests give a
// made-up tree. read_*: of this process or the kernel's own files, at once. look_at_*: may wait for
// a file server, a resolver or a driver for ever, so they run as errands (errands.hpp) and answer
// in JSON. Any thread.
#pragma once

#include "job/model/preflight/preflight.hpp"
#include "job/model/spec/spec.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

// Limits, somaxconn, RDMA devices.
void read_limits(const std::filesystem::path& root, NodeFacts& out);
// Addresses of this machine that others may reach, of the family of `first`, which comes first.
// Bridges and tunnels of containers and of virtual machines are none.
std::vector<AddressFact> read_addresses(const std::string& first);
// Mount points that go over a network or a user's program, at most 16.
std::vector<std::string> network_mounts(const std::filesystem::path& root);

// GPUs of the NVIDIA driver by its files; XIDs from the kernel's log, where it may be read. NVML is
// not asked: that is look_at_health().
GpuFacts read_gpus(const std::filesystem::path& root);
using GpuReader = std::function<GpuFacts(const std::filesystem::path& root)>;

std::string look_at_path(const PathFact& path);
void take_path(const std::string& answer, PathFact& out);
std::string look_at_hostname();
void take_hostname(const std::string& answer, NodeFacts& out);
// driver cuda nccl torch container code lockstep. `environment`: the agent's, for PATH and
// LD_LIBRARY_PATH. torch is read from its installation's own description, never imported. Of
// framework native torch and nccl are those that `train_program`, lockstep-train, is linked with.
std::string look_at_versions(const std::filesystem::path& root, const JobSpec& spec,
                             const std::map<std::string, std::string>& environment,
                             const std::filesystem::path& train_program);
void take_versions(const std::string& answer, NodeFacts& out);
std::string look_at_gpus(const GpuReader& reader, const std::filesystem::path& root);
void take_gpus(const std::string& answer, GpuFacts& out);
// What NVML says of the GPUs that the job may use. It opens the library, so not on a thread that
// forks (errands.hpp). `environment`: the agent's, for CUDA_VISIBLE_DEVICES.
std::string look_at_health(const std::filesystem::path& root,
                           const std::map<std::string, std::string>& environment);
void take_health(const std::string& answer, GpuFacts& out);
// The states of `interfaces`, of what they are made of, and of the RDMA ports that NCCL takes with
// this NCCL_IB_HCA.
std::string look_at_nics(const std::filesystem::path& root,
                         const std::vector<std::string>& interfaces,
                         const std::string& nccl_ib_hca);
void take_nics(const std::string& answer, std::vector<NicFact>& out);

}  // namespace lockstep
