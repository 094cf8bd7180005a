#include "daemon/control/attempt_files.hpp"

#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

namespace lockstep {
namespace {
constexpr std::size_t kAttemptFileBytes = 64U << 10U;
constexpr std::size_t kReasonBytes = 1024;
constexpr std::size_t kLogTailBytes = 8U << 10U;
constexpr std::int32_t kLogsRead = 512;

std::string read_tail(const std::filesystem::path& path, std::size_t bytes) {
    std::ifstream file{path, std::ios::binary | std::ios::ate};
    if (!file) {
        return "";
    }
    const auto size = static_cast<std::size_t>(file.tellg());
    std::string out(std::min(size, bytes), '\0');
    file.seekg(static_cast<std::streamoff>(size - out.size()));
    file.read(out.data(), static_cast<std::streamsize>(out.size()));
    out.resize(static_cast<std::size_t>(file.gcount()));
    return out;
}

// slurmd's and slurmstepd's words: jobacct_gather's limit, the kernel's killer through cgroups.
std::string memory_line(const std::filesystem::path& log) {
    const std::string tail = read_tail(log, kLogTailBytes);
    for (const std::string& line : split(tail, '\n')) {
        for (const char* words : {"exceeded memory limit", "Exceeded job memory limit", "oom_kill",
                                  "oom-kill", "OUT_OF_MEMORY", "Out Of Memory"}) {
            if (line.find(words) != std::string::npos && line.find("slurm") != std::string::npos) {
                return printable(std::string_view{line}.substr(0, kReasonBytes));
            }
        }
    }
    return "";
}

}  // namespace

std::filesystem::path attempt_directory(const std::filesystem::path& runs, const JobId& job,
                                        std::int32_t attempt) {
    return runs / job.value / ("a" + std::to_string(attempt));
}

std::filesystem::path default_checkpoint_directory(const std::filesystem::path& runs,
                                                   const JobId& job) {
    return runs / job.value / "checkpoints";
}

Result<PreparedAttempt> prepare_attempt(const std::filesystem::path& runs, const JobId& job,
                                        std::int32_t attempt, std::int32_t nodes,
                                        const AgentsListener& listener) {
    const auto directory = attempt_directory(runs, job, attempt);
    if (auto made = make_private_directories(directory); !made) {
        return fail(made.error());
    }
    wire::AttemptFile file;
    const auto path = directory / wire::kAttemptFileName;
    if (const auto old = read_file(path, kAttemptFileBytes)) {
        if (auto known = wire::decode_attempt_file(*old)) {
            file.ticket = known->ticket;
        }
    }
    if (file.ticket.empty()) {
        file.ticket = random_secret();
    }
    file.url = listener.url;
    file.fingerprint = listener.fingerprint;
    file.job_id = job.value;
    file.attempt = attempt;
    file.nodes = nodes;
    if (auto written = write_file_atomic(path, wire::encode_attempt_file(file), 0600); !written) {
        return fail(written.error());
    }
    return PreparedAttempt{directory.string(), sha256_hex(file.ticket)};
}

Status refresh_attempt(const std::filesystem::path& directory, const AgentsListener& listener) {
    const auto path = directory / wire::kAttemptFileName;
    const auto text = read_file(path, kAttemptFileBytes);
    if (!text) {
        return fail(text.error());
    }
    auto file = wire::decode_attempt_file(*text);
    if (!file) {
        return fail(file.error());
    }
    if (file->url == listener.url && file->fingerprint == listener.fingerprint) {
        return {};
    }
    file->url = listener.url;
    file->fingerprint = listener.fingerprint;
    return write_file_atomic(path, wire::encode_attempt_file(*file), 0600);
}

void refresh_attempts_of(const std::filesystem::path& job_directory,
                         const AgentsListener& listener) {
    for (std::int32_t attempt = 1;; ++attempt) {
        const auto directory = job_directory / ("a" + std::to_string(attempt));
        std::error_code ec;
        if (!std::filesystem::exists(directory / wire::kAttemptFileName, ec)) {
            return;
        }
        if (const Status told = refresh_attempt(directory, listener); !told) {
            log::debug("cannot tell agents of an end", {{"what", told.error().message}});
        }
    }
}

std::optional<wire::ResultFile> read_result(const std::filesystem::path& directory,
                                            std::int32_t node_rank) {
    const auto text = read_file(directory / wire::result_file_name(node_rank), 64U << 20U);
    if (!text) {
        return std::nullopt;
    }
    auto file = wire::decode_result_file(*text);
    if (!file) {
        log::warn("a node's result does not read back", {{"directory", directory.string()},
                                                         {"node_rank", node_rank},
                                                         {"what", file.error().message}});
        return std::nullopt;
    }
    return std::move(*file);
}

std::optional<MemoryEvidence> find_memory_evidence(const std::filesystem::path& directory,
                                                   std::int32_t nodes) {
    MemoryEvidence out;
    out.line = memory_line(directory / "batch.log");
    for (std::int32_t node = 0; node < std::min(nodes, kLogsRead); ++node) {
        std::array<char, 32> name{};
        std::snprintf(name.data(), name.size(), "agent-%05d.log", node);
        if (std::string line = memory_line(directory / name.data()); !line.empty()) {
            out.node_rank = node;
            out.line = std::move(line);
            return out;
        }
    }
    return out.line.empty() ? std::nullopt : std::optional{std::move(out)};
}

std::optional<wire::GaveUpFile> read_gave_up(const std::filesystem::path& directory,
                                             std::int32_t node_rank,
                                             const std::string& incarnation) {
    const auto text = read_file(directory / wire::gave_up_file_name(node_rank), kAttemptFileBytes);
    auto file = text ? wire::decode_gave_up_file(*text) : fail(text.error());
    if (!file || (!incarnation.empty() && file->incarnation != incarnation)) {
        return std::nullopt;
    }
    file->node = printable(std::string_view{file->node}.substr(0, limits::kTextBytes));
    file->reason = printable(std::string_view{file->reason}.substr(0, kReasonBytes));
    return std::move(*file);
}

}  // namespace lockstep
