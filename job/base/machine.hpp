// What this machine has: cores, memory, GPUs. Reads /proc, /sys and /dev; blocking, but only of the
// kernel's own files. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct Machine {
    std::int32_t cores = 1;      // this process may run on (affinity)
    std::int64_t memory_mb = 0;  // MiB: physical or the control group's limit, the smaller
    std::int32_t gpus = 0;       // NVIDIA device nodes
    // Their names as CUDA_VISIBLE_DEVICES takes them, if they are known (see gpu_names()).
    std::vector<std::string> gpu_names{};
};

// `root` is put in front of /proc, /sys and /dev; tests give a made-up tree.
Machine read_machine(const std::filesystem::path& root = "/");

// MiB that may still be used: of the machine's and of each control group's around this process, the
// least. What is cached counts as used where the control group counts it.
std::int64_t free_memory_mib(const std::filesystem::path& root = "/");

// The GPUs that may be handed out, as CUDA_VISIBLE_DEVICES names them: what `visible` (the
// variable's own value; nullptr if it is not set) leaves, also MIG devices; else the UUIDs that the
// driver shows in /proc/driver/nvidia, by PCI address; else numbers. CUDA ignores what follows a
// name that is no device, and so does this.
std::vector<std::string> gpu_names(const char* visible, const std::filesystem::path& root = "/");

// This machine's name as gethostname(2) says it; "localhost" if it says nothing.
std::string host_name();

// How many processes the out-of-memory killer has ended in this process's control group so far;
// -1 if the kernel does not say (control groups version 1 without the counter, no /sys).
std::int64_t oom_kills(const std::filesystem::path& root = "/");

// What the kernel shows for whoever has no number in this user namespace (user_namespaces(7);
// /proc/sys/kernel/overflowuid, as no system changes it).
inline constexpr std::uint32_t kOverflowUser = 65'534;
// Whether every user of the machine has a number here; not so in a user namespace.
bool maps_all_users();

}  // namespace lockstep
