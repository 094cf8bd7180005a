#include "scheduler-integration/slurm/slurm_logs.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/step_daemon_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace lockstep::slurm {
namespace {

constexpr std::size_t kLineBytes = 1024;
constexpr std::size_t kLogTailBytes = 8U << 10U;

// Of jobacct_gather's limit and of the kernel's, through cgroups.
constexpr std::array kMemoryWords{
    "exceeded memory limit", "Exceeded job memory limit", "oom_kill", "oom-kill", "OUT_OF_MEMORY",
    "Out Of Memory"};

// The program's own lines may say anything.
std::string memory_line(const std::filesystem::path& log) {
    const std::string tail = read_plain_tail(log, kLogTailBytes).value_or("");
    for (const std::string& line : split(tail, '\n')) {
        if (line.find("slurm") == std::string::npos && !is_step_daemon_line(line)) {
            continue;
        }
        for (const char* words : kMemoryWords) {
            if (line.find(words) != std::string::npos) {
                return printable(std::string_view{line}.substr(0, kLineBytes));
            }
        }
    }
    return "";
}

std::filesystem::path agent_log(const std::filesystem::path& directory, std::int32_t node) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "agent-%05d.log", node);
    return directory / name.data();
}

}  // namespace

std::optional<MemoryEvidence> find_memory_evidence(const std::filesystem::path& directory,
                                                   std::int32_t nodes) {
    MemoryEvidence out;
    out.by = "Slurm";
    out.line = memory_line(directory / "batch.log");
    for (std::int32_t node = 0; node < std::min(nodes, limits::kAgentLogsRead); ++node) {
        if (std::string line = memory_line(agent_log(directory, node)); !line.empty()) {
            out.node_rank = node;
            out.line = std::move(line);
            return out;
        }
    }
    return out.line.empty() ? std::nullopt : std::optional{std::move(out)};
}

std::string find_launch_words(const std::filesystem::path& directory, std::int32_t node_rank) {
    const auto lines = [](const std::filesystem::path& log) {
        return split(trim(read_plain_tail(log, kLogTailBytes).value_or("")), '\n');
    };
    const auto said = [](const std::string& line) {
        return printable(std::string_view{line}.substr(0, kLineBytes));
    };
    const auto own = lines(agent_log(directory, node_rank));
    if (!own.empty() && is_step_daemon_line(own.back())) {
        return said(own.back());
    }
    const std::string task = "task " + std::to_string(node_rank);
    const auto batch = lines(directory / "batch.log");
    for (auto line = batch.rbegin(); line != batch.rend(); ++line) {
        const bool of_task = line->find(task + " launch failed") != std::string::npos ||
                             line->find(task + ": Exited") != std::string::npos;
        if (line->starts_with("srun: error: ") && of_task) {
            return said(*line);
        }
    }
    return "";
}

}  // namespace lockstep::slurm
