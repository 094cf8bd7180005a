// The files of an attempt under the runs directory: <runs>/<job>/a<k>/ with agent.json (0600), the
// ranks' logs, claims and results. Blocking, short; control thread.
#pragma once

#include "daemon/control/machine/left_behind.hpp"
#include "daemon/store/identity.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"
#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// Where the agents find the daemon.
struct AgentsListener {
    std::string url;
    std::string fingerprint{};  // of its certificate; "" = plain HTTP
    std::string socket{};  // path of lockstepd's Unix socket, for agents on its machine; "" = none

    bool operator==(const AgentsListener& other) const = default;
};
struct PreparedAttempt {
    std::string directory;
    std::string ticket_hash;
};

std::filesystem::path attempt_directory(const std::filesystem::path& runs, const JobId& job,
                                        std::int32_t attempt);
// Where the folders of a job's attempts lie now that the runs have moved (CopiedJobs).
void find_moved_folders(Job& job, const CopiedJobs& copied);
// Of a job's events so many have its first attempt among them.
inline constexpr std::size_t kFirstEvents = 64;
// The folder that a job has had since its first attempt, also if the runs directory is another one
// since; "" = it has none yet, its attempts are in a folder of its user's, who has signed it, or
// the store is, or was, a copy: then that folder may be another lockstepd's.
std::filesystem::path first_folder(const Job& job, const CopiedJobs& copied);
// The runs directory that `first_folder` lies in, if that is still there: else, as after a move by
// hand, `runs`. Blocking.
std::filesystem::path runs_with(const std::filesystem::path& first_folder,
                                const std::filesystem::path& runs);
std::filesystem::path default_checkpoint_directory(const std::filesystem::path& runs,
                                                   const JobId& job);

// Makes the directory and agent.json with a fresh ticket; one that is there already (a crash came
// between it and its event) is kept, so the ticket stays good. `runs_as`: the Unix user whom the
// agents run as, who is given what they need and no more; "" = lockstepd's own.
Result<PreparedAttempt> prepare_attempt(const std::filesystem::path& runs, const JobId& job,
                                        std::int32_t attempt, std::int32_t nodes,
                                        const AgentsListener& listener,
                                        const std::string& runs_as = "");
// Tells the agents of an attempt where the daemon listens now.
Status refresh_attempt(const std::filesystem::path& directory, const AgentsListener& listener);
// The same for several. What cannot be rewritten is left, aloud.
void refresh_attempts(const std::vector<std::filesystem::path>& directories,
                      const AgentsListener& listener);
// The same for every attempt of a job that is over: agents that have not heard of its end come, are
// told, and go. What cannot be rewritten is left.
void refresh_attempts_of(const std::filesystem::path& job_directory,
                         const AgentsListener& listener);
// What the agent of a node left behind; nothing if it left none that reads back. timed_out,
// unavailable: it cannot be opened now (open_foreign()).
Result<std::optional<wire::ResultFile>> read_result(const std::filesystem::path& directory,
                                                    std::int32_t node_rank);
// Why the agent of a node left without a result, in its own words; nothing if it did not say. What
// another agent than `incarnation` said does not count, unless that is "" (none has claimed it).
std::optional<wire::GaveUpFile> read_gave_up(const std::filesystem::path& directory,
                                             std::int32_t node_rank,
                                             const std::string& incarnation);

}  // namespace lockstep
