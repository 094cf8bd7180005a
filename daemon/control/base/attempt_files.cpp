#include "daemon/control/base/attempt_files.hpp"

#include "daemon/control/base/shared_folder.hpp"
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace lockstep {
namespace {

// Whose agents run as another user reads it through the folder's access control list, which the
// mode's group bits bound.
Status write_attempt_file(const std::filesystem::path& path, const wire::AttemptFile& file) {
    return write_file_atomic(path, wire::encode_attempt_file(file), file.shared ? 0640 : 0600);
}

// Only the attempt's folder and the checkpoints' are the user's to write: one that could rename
// the attempt's folder could lead lockstepd elsewhere.
Status share_with(const std::filesystem::path& runs, const JobId& job,
                  const std::filesystem::path& directory, const std::string& user) {
    const auto uid = unix_user(user);
    LOCKSTEP_TRY(uid);
    const auto checkpoints = default_checkpoint_directory(runs, job);
    if (const Status made = make_private_directories(checkpoints); !made) {
        return made;
    }
    if (const Status passes = let_pass(runs / job.value, *uid); !passes) {
        return passes;
    }
    for (const auto& folder : {directory, checkpoints}) {
        if (const Status shared = share_folder(folder, *uid); !shared) {
            return shared;
        }
    }
    return {};
}

}  // namespace

std::filesystem::path attempt_directory(const std::filesystem::path& runs, const JobId& job,
                                        std::int32_t attempt) {
    return runs / job.value / ("a" + std::to_string(attempt));
}

void find_moved_folders(Job& job, const CopiedJobs& copied) {
    if (copied.stay.contains(job.id.value)) {
        return;
    }
    for (Attempt& attempt : job.attempts) {
        for (const auto& [before, now] : copied.moves) {
            if (attempt.directory.starts_with(before + "/")) {
                attempt.directory.replace(0, before.size(), now);
            }
        }
    }
}

std::filesystem::path first_folder(const Job& job, const CopiedJobs& copied) {
    if (!job.signature.empty() || job.attempts.empty() || !copied.empty()) {
        return {};
    }
    const auto folder = std::filesystem::path{job.attempts.front().directory}.parent_path();
    return folder.filename() == job.id.value ? folder : std::filesystem::path{};
}

std::filesystem::path runs_with(const std::filesystem::path& first_folder,
                                const std::filesystem::path& runs) {
    std::error_code ec;
    return !first_folder.empty() && std::filesystem::is_directory(first_folder, ec)
               ? first_folder.parent_path()
               : runs;
}

std::filesystem::path default_checkpoint_directory(const std::filesystem::path& runs,
                                                   const JobId& job) {
    return runs / job.value / "checkpoints";
}

Result<PreparedAttempt> prepare_attempt(const std::filesystem::path& runs, const JobId& job,
                                        std::int32_t attempt, std::int32_t nodes,
                                        const AgentsListener& listener,
                                        const std::string& runs_as) {
    const auto directory = attempt_directory(runs, job, attempt);
    LOCKSTEP_TRY(make_private_directories(directory));
    if (!runs_as.empty()) {
        LOCKSTEP_TRY(share_with(runs, job, directory, runs_as));
    }
    wire::AttemptFile file;
    file.shared = !runs_as.empty();
    const auto path = directory / wire::kAttemptFileName;
    if (const auto old = read_plain_file(path, limits::kAttemptFileBytes)) {
        if (auto known = wire::decode_attempt_file(*old)) {
            file.ticket = known->ticket;
        }
    }
    if (file.ticket.empty()) {
        file.ticket = random_secret();
    }
    file.url = listener.url;
    file.fingerprint = listener.fingerprint;
    file.socket = listener.socket;
    file.job_id = job.value;
    file.attempt = attempt;
    file.nodes = nodes;
    LOCKSTEP_TRY(write_attempt_file(path, file));
    return PreparedAttempt{directory.string(), sha256_hex(file.ticket)};
}

Status refresh_attempt(const std::filesystem::path& directory, const AgentsListener& listener) {
    const auto path = directory / wire::kAttemptFileName;
    const auto text = read_plain_file(path, limits::kAttemptFileBytes);
    LOCKSTEP_TRY(text);
    auto file = wire::decode_attempt_file(*text);
    LOCKSTEP_TRY(file);
    if (file->url == listener.url && file->fingerprint == listener.fingerprint &&
        file->socket == listener.socket) {
        return {};
    }
    file->url = listener.url;
    file->fingerprint = listener.fingerprint;
    file->socket = listener.socket;
    return write_attempt_file(path, *file);
}

void refresh_attempts(const std::vector<std::filesystem::path>& directories,
                      const AgentsListener& listener) {
    for (const auto& directory : directories) {
        if (const Status told = refresh_attempt(directory, listener); !told) {
            log::warn("cannot tell the agents of an attempt where the daemon is",
                      {{"attempt", directory.string()}, {"what", told.error().message}});
        }
    }
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

Result<std::optional<wire::ResultFile>> read_result(const std::filesystem::path& directory,
                                                    std::int32_t node_rank) {
    const auto text = read_plain_file(directory / wire::result_file_name(node_rank), 64U << 20U);
    if (!text) {
        const Errc code = text.error().code;
        if (code == Errc::timed_out || code == Errc::unavailable) {
            return fail(text.error());
        }
        return std::optional<wire::ResultFile>{};
    }
    auto file = wire::decode_result_file(*text);
    if (!file) {
        log::warn("a node's result does not read back", {{"directory", directory.string()},
                                                         {"node_rank", node_rank},
                                                         {"what", file.error().message}});
        return std::optional<wire::ResultFile>{};
    }
    return std::optional<wire::ResultFile>{std::move(*file)};
}

std::optional<wire::GaveUpFile> read_gave_up(const std::filesystem::path& directory,
                                             std::int32_t node_rank,
                                             const std::string& incarnation) {
    const auto text =
        read_plain_file(directory / wire::gave_up_file_name(node_rank), limits::kAttemptFileBytes);
    auto file = text ? wire::decode_gave_up_file(*text) : fail(text.error());
    if (!file || (!incarnation.empty() && file->incarnation != incarnation)) {
        return std::nullopt;
    }
    file->node = printable(std::string_view{file->node}.substr(0, limits::kTextBytes));
    file->reason = printable(std::string_view{file->reason}.substr(0, limits::kGaveUpBytes));
    return std::move(*file);
}

}  // namespace lockstep
