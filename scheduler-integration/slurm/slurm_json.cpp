#include "scheduler-integration/slurm/slurm_json.hpp"

#include "job/base/text.hpp"
#include "scheduler-integration/slurm/json_parts.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <array>
#include <limits>

namespace lockstep {
namespace {

// Members of a record that grow with the job (16,384 nodes × their cores) and that nobody reads.
constexpr std::array<std::string_view, 4> kUnread{"job_resources", "gres_detail", "environment",
                                                  "script"};

const Json* member(const Json& object, const char* key) {
    if (!object.is_object()) {
        return nullptr;
    }
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string_view text_of(const Json* value) {
    return value != nullptr && value->is_string() ? value->get_ref<const std::string&>()
                                                  : std::string_view{};
}

// A plain integer (22.05), or {"set", "infinite", "number"} (from 23.02).
std::optional<std::int64_t> number_of(const Json* value) {
    if (value == nullptr) {
        return std::nullopt;
    }
    if (value->is_number_integer()) {
        return value->get<std::int64_t>();
    }
    const Json* number = member(*value, "number");
    const Json* set = member(*value, "set");
    const Json* infinite = member(*value, "infinite");
    const bool known = (set == nullptr || (set->is_boolean() && set->get<bool>())) &&
                       (infinite == nullptr || (infinite->is_boolean() && !infinite->get<bool>()));
    return number != nullptr && number->is_number_integer() && known
               ? std::optional{number->get<std::int64_t>()}
               : std::nullopt;
}

std::int64_t time_of(const Json& record, const char* key) {
    const auto time = number_of(member(record, key));
    return time && *time > 0 ? *time : 0;
}

struct ExitStatus {
    std::optional<int> code;
    std::optional<int> signal;
};

// The raw wait status (to v0.0.39), or {"status", "return_code", "signal": {"id"}} (v0.0.40 on).
ExitStatus exit_of(const Json* value) {
    ExitStatus out;
    if (value == nullptr) {
        return out;
    }
    if (const auto status = number_of(value)) {
        // wait(2): the low seven bits are the signal, the next byte above them the status.
        if (*status >= 0 && *status <= 0xffff) {
            out.code = static_cast<int>((*status >> 8) & 0xff);
            out.signal = static_cast<int>(*status & 0x7f);
        }
        return out;
    }
    if (const auto code = number_of(member(*value, "return_code")); code && *code <= 255) {
        out.code = static_cast<int>(*code);
        out.signal = 0;
    }
    if (const Json* signal = member(*value, "signal")) {
        auto id = number_of(member(*signal, "id"));
        id = id ? id : number_of(member(*signal, "signal_id"));
        if (id && *id >= 0 && *id <= 255) {
            out.signal = static_cast<int>(*id);
            out.code = out.code.value_or(0);
        }
    }
    return out;
}

std::optional<SlurmState> state_of(const Json* value) {
    if (value == nullptr || !(value->is_string() || value->is_array())) {
        return std::nullopt;
    }
    if (value->is_string()) {
        return parse_slurm_state(text_of(value));
    }
    std::vector<std::string_view> words;
    for (const Json& word : *value) {
        if (!word.is_string() || words.size() == 64) {
            return std::nullopt;
        }
        words.push_back(text_of(&word));
    }
    return parse_slurm_states(words);
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

// Slurm's own words: an array of objects or of strings.
std::vector<std::string> messages(const Json* value) {
    std::vector<std::string> out;
    if (value == nullptr || !value->is_array()) {
        return out;
    }
    for (const Json& entry : *value) {
        std::string text{text_of(&entry)};
        for (const char* key : {"description", "error"}) {
            const std::string_view part = text_of(member(entry, key));
            if (!part.empty() && text.find(part) == std::string::npos) {
                text += text.empty() ? "" : ": ";
                text += part;
            }
        }
        out.push_back(text.empty() ? dump_json(entry).substr(0, 256)
                                   : printable(text.substr(0, 1024)));
        if (out.size() == 16) {
            break;
        }
    }
    return out;
}

void fill_meta(SlurmJsonJobs& out, const Json& document) {
    const Json* meta = member(document, "meta");
    if (meta == nullptr) {
        return;
    }
    if (const Json* plugin = member(*meta, "plugin")) {
        // "openapi/v0.0.38" (type, 22.05), "data_parser/v0.0.40" (data_parser, 23.11 on).
        std::string_view version = text_of(member(*plugin, "data_parser"));
        version = version.empty() ? text_of(member(*plugin, "type")) : version;
        const auto at = version.find("v0.");
        out.data_parser = at == std::string_view::npos ? "" : printable(version.substr(at, 32));
    }
    const Json* slurm = member(*meta, "Slurm");  // to 23.02; in lower case after
    slurm = slurm != nullptr ? slurm : member(*meta, "slurm");
    if (slurm != nullptr) {
        out.slurm_release = printable(text_of(member(*slurm, "release")).substr(0, 64));
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
        return fail(Errc::invalid, "job_state: neither a word nor words");
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
    auto parts = json_parts::take_apart(text, "jobs", kUnread);
    if (!parts) {
        return fail(std::move(parts).error().in("Slurm's JSON"));
    }
    auto frame = parse_json(parts->frame);
    if (!frame) {
        return fail(std::move(frame).error().in("Slurm's JSON"));
    }
    SlurmJsonJobs out;
    fill_meta(out, *frame);
    out.warnings = messages(member(*frame, "warnings"));
    if (const auto errors = messages(member(*frame, "errors")); !errors.empty()) {
        const bool unknown = errors.front().find("Invalid job id") != std::string::npos;
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
