// The part of rest_text.hpp that is about accounting: what slurmdbd knows of finished jobs.
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/rest_text.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <algorithm>

namespace lockstep::rest {
namespace {

using json_fields::at;
using json_fields::member;
using json_fields::number_of;
using json_fields::text_of;

// A record of slurmdbd, which has other members than slurmctld's.
std::optional<SlurmJob> history_job(const Json& record, bool& ours, std::string_view user) {
    SlurmJob job;
    const auto id = number_of(member(record, "job_id"));
    auto state = json_fields::state_of(at(record, {"state", "current"}));
    job.name = text_of(member(record, "name"));
    job.user = text_of(member(record, "user"));
    if (job.user.empty()) {
        job.user = text_of(at(record, {"association", "user"}));
    }
    const std::string_view nodes = text_of(member(record, "nodes"));
    job.nodes = nodes == "None assigned" ? "" : nodes;
    if (!id || *id < 1 || *id > 0xffff'ffff || !state || job.name.empty() ||
        !rows::printable_bytes(job.name) || job.user.empty() || !rows::printable_bytes(job.user) ||
        !rows::is_hostlist_text(job.nodes)) {
        return std::nullopt;
    }
    ours = job.user == user;
    const auto time = [&](const char* key) {
        return std::max<std::int64_t>(0, number_of(at(record, {"time", key})).value_or(0));
    };
    job.id = *id;
    job.state = std::move(*state);
    job.cluster = printable(text_of(member(record, "cluster")));
    job.partition = printable(text_of(member(record, "partition")));
    const std::string_view reason = text_of(at(record, {"state", "reason"}));
    job.reason = reason == "None" ? "" : printable(reason);
    job.submitted_at = time("submission");
    job.restarts = static_cast<int>(std::clamp<std::int64_t>(
        number_of(member(record, "restart_cnt")).value_or(0), 0, 1'000'000));
    const SlurmVerdict verdict = job.verdict();
    job.ended_at = verdict.end == SlurmEnd::none ? 0 : time("end");
    if (job.state.base == SlurmBase::pending) {
        job.estimated_start = time("start");
    } else {
        job.started_at = job.nodes.empty() ? 0 : time("start");
    }
    if (verdict.terminal) {
        const auto exit = json_fields::exit_of(member(record, "exit_code"));
        const auto derived = json_fields::exit_of(member(record, "derived_exit_code"));
        // v0.0.38 says SUCCESS and 0 of every job that was not killed (seen live: a bug of 22.05).
        const bool contradicts =
            job.state.base == SlurmBase::failed && exit.code == 0 && exit.signal.value_or(0) == 0;
        job.exit_code = contradicts ? std::nullopt : exit.code;
        job.signal = contradicts ? std::nullopt : exit.signal;
        job.derived_exit_code = derived.code;
        job.derived_signal = derived.signal;
    }
    return job;
}

}  // namespace

Result<JobTable> parse_history(const ClientResponse& response, std::string_view user,
                               std::int64_t since) {
    const auto records = elements_of("jobs", response, user);
    LOCKSTEP_TRY(records);
    JobTable table;
    for (const Json& record : *records) {
        bool ours = false;
        auto job = history_job(record, ours, user);
        if (!job) {
            ++table.malformed;
        } else if (ours && job->submitted_at >= since) {
            table.jobs.push_back(std::move(*job));
        }
    }
    return table;
}

}  // namespace lockstep::rest
