#include "scheduler-integration/slurm/slurm_json.hpp"

#include "job/base/text.hpp"
#include "scheduler-integration/slurm/json_fields.hpp"
#include "scheduler-integration/slurm/json_parts.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <array>
#include <limits>

namespace lockstep {
namespace {

// Members of a record that grow with the job (16,384 nodes × their cores) and that are not used.
constexpr std::array<std::string_view, 4> kUnreadOfSqueue{"job_resources", "gres_detail",
                                                          "environment", "script"};

using json_fields::exit_of;
using json_fields::ExitStatus;
using json_fields::member;
using json_fields::messages;
using json_fields::number_of;
using json_fields::state_of;
using json_fields::text_of;

std::int64_t time_of(const Json& record, const char* key) {
    const auto time = number_of(member(record, key));
    return time && *time > 0 ? *time : 0;
}

void fill_times(SlurmJob& job, const Json& record) {
    const SlurmVerdict verdict = job.verdict();
    const std::int64_t start = time_of(record, "start_time");
    job.submitted_at = time_of(record, "submit_time");
    job.ended_at = verdict.end == SlurmEnd::none ? 0 : time_of(record, "end_time");
    if (job.state.base == SlurmBase::pending) {
        job.estimated_start = start;
    } else {
        job.started_at = job.nodes.empty() ? 0 : start;
    }
    if (verdict.terminal) {
        const ExitStatus exit = exit_of(member(record, "exit_code"));
        const ExitStatus derived = exit_of(member(record, "derived_exit_code"));
        job.exit_code = exit.code;
        job.signal = exit.signal;
        job.derived_exit_code = derived.code;
        job.derived_signal = derived.signal;
    }
}

}  // namespace

Result<SlurmJob> slurm_job_from_json(const Json& record) {
    SlurmJob job;
    const auto id = number_of(member(record, "job_id"));
    const auto uid = number_of(member(record, "user_id"));
    auto state = state_of(member(record, "job_state"));
    job.name = text_of(member(record, "name"));
    job.user = text_of(member(record, "user_name"));
    job.nodes = text_of(member(record, "nodes"));
    if (job.user.empty() && uid) {
        job.user = std::to_string(*uid);  // a uid without a name on Slurm's host
    }
    if (!id || *id < 1 || *id > std::numeric_limits<std::uint32_t>::max()) {
        return fail(Errc::invalid, "job_id: not a job's number");
    }
    if (job.name.empty() || !rows::printable_bytes(job.name) || job.user.empty() ||
        !rows::printable_bytes(job.user) || !rows::is_hostlist_text(job.nodes)) {
        return fail(Errc::invalid, "name, user_name or nodes: not usable");
    }
    if (!state) {
        return fail(Errc::invalid, "job_state: neither a string nor a list of strings");
    }
    job.id = *id;
    job.uid = uid;
    job.state = std::move(*state);
    job.cluster = printable(text_of(member(record, "cluster")));
    job.partition = printable(text_of(member(record, "partition")));
    // The sentence says more where there is one; squeue prints it in the place of the code.
    const std::string_view sentence = text_of(member(record, "state_description"));
    const std::string_view code = text_of(member(record, "state_reason"));
    job.reason = printable(sentence.empty() ? (code == "None" ? "" : code) : sentence);
    const auto restarts = number_of(member(record, "restart_cnt"));
    job.restarts =
        restarts && *restarts > 0 && *restarts <= 1'000'000 ? static_cast<int>(*restarts) : 0;
    fill_times(job, record);
    return job;
}

Result<SlurmJsonJobs> parse_slurm_jobs_json(std::string_view text) {
    auto parts = json_parts::take_apart(text, "jobs", kUnreadOfSqueue);
    if (!parts) {
        return fail(std::move(parts).error().in("Slurm's JSON"));
    }
    auto frame = parse_json(parts->frame);
    if (!frame) {
        return fail(std::move(frame).error().in("Slurm's JSON"));
    }
    SlurmJsonJobs out;
    json_fields::Meta meta = json_fields::meta_of(*frame);
    out.data_parser = std::move(meta.data_parser);
    out.slurm_release = std::move(meta.slurm_release);
    out.warnings = messages(member(*frame, "warnings"));
    const Json* const said = member(*frame, "errors");
    if (const auto errors = messages(said); !errors.empty()) {
        const bool unknown = json_fields::errors_of(said).front() == SlurmError::no_such_job;
        return fail(unknown ? Errc::not_found : Errc::unavailable, "Slurm: " + errors.front());
    }
    if (!parts->found) {
        return fail(Errc::invalid, "Slurm's JSON: no jobs");
    }
    for (const std::string& element : parts->elements) {
        auto record = parse_json(element);
        if (!record) {
            return fail(std::move(record).error().in("Slurm's JSON: a job"));
        }
        if (auto job = slurm_job_from_json(*record)) {
            out.jobs.push_back(std::move(*job));
        } else {
            ++out.malformed;
        }
    }
    return out;
}

}  // namespace lockstep
