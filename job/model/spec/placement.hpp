// What a scheduler is asked to place. Plain values; any thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/ids.hpp"
#include "job/model/spec/spec.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// The job id that stands in what is rendered before there is a job.
inline constexpr std::string_view kTemplateJob = "ls-00000000000000000000000000";

// One attempt of one job: everything a scheduler may know about it.
struct AttemptRequest {
    JobId job;
    std::int32_t attempt = 1;
    std::string name;  // the job's
    std::string user;  // whose it is, in Lockstep's words
    Resources resources;
    SlurmSpec slurm{};
    ContainerSpec container{};  // pyxis alone: others are the agent's affair
    Submission submission = Submission::automatic;
    std::int32_t signal_seconds = 0;  // warn the ranks so long before the time limit; 0 = never
    std::string directory;            // attempt directory, absolute; holds agent.json
    // When the last intent to hand it over was made durable; 0 = never. Fresh: in this daemon's
    // life, and not used for a try yet.
    UnixMillis intent_at = 0;
    bool intent_is_fresh = false;
    std::string scheduler_id{};          // as recorded; "" = none
    std::string allocation{};            // the one its agents run in; "" = not claimed
    std::vector<std::string> exclude{};  // names of nodes that earlier attempts have lost
    // What the scheduler has of it is taken up; it is never handed in. Why, in words; "" = it may
    // be.
    std::string follow_only{};
    // Of a job that its user has signed (signed_statement.hpp): what the signature is called, and
    // which of its jobs this is; "" = it was not. `directory` is then its user's and closed to
    // lockstepd, whose own folder of the attempt, with agent.json, is the other.
    std::string signature{};
    std::int64_t signed_point = 0;
    std::string own_directory{};
    bool outlives_nodes = false;  // the allocation is to go on when one of its nodes is lost

    // Where lockstepd keeps files of its own about the attempt.
    const std::string& kept_in() const { return own_directory.empty() ? directory : own_directory; }
};

// What of the spec a scheduler may know: nothing in which a user could put a command, a variable
// or a path. The caller adds what the job's history says.
inline AttemptRequest attempt_request(const JobId& job, std::int32_t attempt, const JobSpec& spec,
                                      std::string directory) {
    AttemptRequest out;
    out.job = job;
    out.attempt = attempt;
    out.name = spec.name;
    out.resources = spec.resources;
    out.slurm = spec.slurm;
    if (spec.container.runtime == ContainerRuntime::pyxis) {
        out.container = spec.container;
        for (const std::string& path : {spec.working_directory, spec.checkpoint.directory}) {
            if (!path.empty()) {
                std::string mount = path;
                mount.append(":").append(path);
                out.container.mounts.push_back(std::move(mount));
            }
        }
    }
    out.submission = spec.submission;
    out.signal_seconds = spec.checkpoint.seconds_before_timeout;
    out.outlives_nodes = spec.recovery.has(RecoveryTrigger::node_failure);
    out.directory = std::move(directory);
    return out;
}

}  // namespace lockstep
