// What this machine has: cores, memory, GPUs. Reads /proc, /sys and /dev; blocking, but only of the
// kernel's own files. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

struct Machine {
    std::int32_t cores = 1;      // this process may run on (affinity)
    std::int64_t memory_mb = 0;  // MiB: physical or the control group's limit, the smaller
    std::int32_t gpus = 0;       // NVIDIA device nodes
};

// `root` is put in front of /proc, /sys and /dev; tests give a made-up tree.
Machine read_machine(const std::filesystem::path& root = "/");

// This machine's name as gethostname(2) says it; "localhost" if it says nothing.
std::string host_name();

// How many processes the out-of-memory killer has ended in this process's control group so far;
// -1 if the kernel does not say (control groups version 1 without the counter, no /sys).
std::int64_t oom_kills(const std::filesystem::path& root = "/");

}  // namespace lockstep
