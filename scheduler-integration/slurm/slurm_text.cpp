// size: parsers for the output of squeue, sacct and sbatch
#include "scheduler-integration/slurm/slurm_text.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/slurm_errors.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <algorithm>
#include <set>

namespace lockstep {
namespace {

constexpr std::string_view kUlidCharacters = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr std::size_t kUlidLength = 26;

// Of query_words.cpp's columns.
constexpr std::size_t kSqueueFields = 11;
constexpr std::size_t kSacctFields = 14;

// A time column: Unix seconds (SLURM_TIME_FORMAT=%s), or one of the words for "not known". Local
// time as text is refused: it has no zone and an hour of it happens twice a year.
std::optional<std::int64_t> time_field(std::string_view text) {
    if (text.empty() || text == "N/A" || text == "Unknown" || text == "None" || text == "NONE") {
        return 0;
    }
    return rows::number(text);
}

std::string_view word_or_empty(std::string_view text, std::string_view none) {
    return text == none ? std::string_view{} : text;
}

// "3:0": exit status and signal.
struct ExitPair {
    int status = 0;
    int signal = 0;
};
std::optional<ExitPair> exit_field(std::string_view text) {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos) {
        return std::nullopt;
    }
    const auto status = rows::number(text.substr(0, colon));
    const auto signal = rows::number(text.substr(colon + 1));
    if (!status || !signal || *status > 255 || *signal > 255) {
        return std::nullopt;
    }
    return ExitPair{static_cast<int>(*status), static_cast<int>(*signal)};
}

bool is_word(std::string_view text, std::size_t cap) {
    return !text.empty() && text.size() <= cap && rows::printable_bytes(text);
}

// What the two programs have in common; false: not a whole row.
struct CommonFields {
    std::string_view id, uid, user, state, reason, nodes, partition, submit, start, end, name;
};
bool fill(SlurmJob& job, const CommonFields& in) {
    const auto id = rows::number(in.id);
    const auto uid = rows::number(in.uid);
    const auto submit = time_field(in.submit);
    const auto start = time_field(in.start);
    const auto end = time_field(in.end);
    if (!id || *id < 1 || !uid || !submit || !start || !end || !is_word(in.user, 256) ||
        !is_word(in.state, 128) || !is_word(in.name, 4096) || !rows::printable_bytes(in.reason) ||
        !rows::printable_bytes(in.partition) || !rows::is_hostlist_text(in.nodes)) {
        return false;
    }
    job.id = *id;
    job.uid = *uid;
    job.user = in.user;
    job.name = in.name;
    job.state = parse_slurm_state(in.state);
    job.reason = word_or_empty(in.reason, "None");
    job.nodes = in.nodes;
    job.partition = in.partition;
    job.submitted_at = *submit;
    const SlurmVerdict verdict = job.verdict();
    // Before the end squeue's end is the expected one, and a job without nodes never started.
    job.ended_at = verdict.end == SlurmEnd::none ? 0 : *end;
    if (job.state.base == SlurmBase::pending) {
        job.estimated_start = *start;
    } else {
        job.started_at = in.nodes.empty() ? 0 : *start;
    }
    return true;
}

std::optional<SlurmJob> squeue_row(std::string_view line, std::string_view fence) {
    const auto parts = rows::fields<kSqueueFields + 2>(line);
    if (!parts || parts->front() != fence || parts->back() != fence) {
        return std::nullopt;
    }
    const auto& p = *parts;
    SlurmJob job;
    const CommonFields in{p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[9], p[8], p[10], p[11]};
    if (!fill(job, in)) {
        return std::nullopt;
    }
    return job;
}

std::optional<SlurmJob> sacct_row(std::string_view line, std::int64_t uid) {
    const auto parts = rows::fields<kSacctFields>(line);
    if (!parts) {
        return std::nullopt;
    }
    const auto& p = *parts;
    SlurmJob job;
    const CommonFields in{p[0],  p[1], p[2], p[3], p[9], word_or_empty(p[10], "None assigned"),
                          p[11], p[6], p[7], p[8], p[13]};
    const auto code = exit_field(p[4]);
    const auto derived = exit_field(p[5]);
    if (!fill(job, in) || job.uid != uid || !code || !derived || !rows::printable_bytes(p[12])) {
        return std::nullopt;
    }
    job.cluster = p[12];
    // RUNNING rows already show 0:0, so only an end has an exit code.
    if (job.verdict().terminal) {
        job.exit_code = code->status;
        job.signal = code->signal;
        job.derived_exit_code = derived->status;
        job.derived_signal = derived->signal;
    }
    return job;
}

// One line that is a job id as --parsable prints it, or the sentence without that option.
struct IdLine {
    std::int64_t id = 0;
    std::string_view cluster;
};
std::optional<IdLine> id_line(std::string_view line) {
    constexpr std::string_view kSentence = "Submitted batch job ";
    constexpr std::string_view kOn = " on cluster ";
    line = trim(line);
    const bool sentence = line.starts_with(kSentence);
    if (sentence) {
        line.remove_prefix(kSentence.size());
    }
    const auto end = line.find_first_not_of("0123456789");
    const auto id = rows::number(line.substr(0, end));
    if (!id || *id < 1) {
        return std::nullopt;
    }
    if (end == std::string_view::npos) {
        return IdLine{*id, {}};
    }
    std::string_view rest = line.substr(end);
    if (sentence && rest.starts_with(kOn)) {
        rest.remove_prefix(kOn.size());
    } else if (!sentence && (rest.front() == ';' || rest.front() == ',')) {
        rest.remove_prefix(1);
    } else {
        return std::nullopt;
    }
    const bool name = !rest.empty() && rest.size() <= 64 &&
                      std::all_of(rest.begin(), rest.end(), rows::is_name_character);
    return name ? std::optional{IdLine{*id, rest}} : std::nullopt;
}

}  // namespace

bool is_slurm_job_name(std::string_view text) {
    const auto last = text.rfind("-a");
    if (text.size() > limits::kSlurmNameBytes || last == std::string_view::npos ||
        last < kUlidLength + 2) {
        return false;
    }
    const std::string_view attempt = text.substr(last + 2);
    const std::string_view ulid = text.substr(last - kUlidLength, kUlidLength);
    const std::string_view name = text.substr(0, last - kUlidLength - 1);
    const auto lower = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    };
    return !attempt.empty() && attempt.size() <= 9 &&
           attempt.find_first_not_of("0123456789") == std::string_view::npos &&
           ulid.find_first_not_of(kUlidCharacters) == std::string_view::npos &&
           text[last - kUlidLength - 1] == '-' && std::all_of(name.begin(), name.end(), lower);
}

std::string attempt_part(const std::string& name) {
    constexpr std::size_t kUlid = 26;
    return is_slurm_job_name(name) ? name.substr(name.rfind("-a") - kUlid) : "";
}

SubmitReply parse_sbatch(const ProgramOutput& output) {
    SubmitReply reply;
    const std::string text = rows::message(output.err, output.out);
    if (!output.exit_status && !output.signal && !output.timed_out) {
        reply.kind = SubmitReply::Kind::not_submitted;
        reply.message = text.empty() ? "sbatch could not be started" : text;
        return reply;
    }
    if (!output.succeeded()) {
        const bool ended = output.exit_status.has_value() && !output.timed_out;
        std::string both{output.err};
        both.append("\n").append(output.out);
        reply.kind = ended ? classify_submit_error(both) : SubmitReply::Kind::ambiguous;
        if (reply.kind == SubmitReply::Kind::denied &&
            !rows::contains_any(both, kSbatchsOwnTexts)) {
            reply.kind = SubmitReply::Kind::ambiguous;
        }
        reply.ended_badly = ended;
        reply.message = !text.empty()      ? text
                        : output.timed_out ? "sbatch did not answer in time"
                                           : "sbatch was killed, or failed without a message";
        return reply;
    }
    std::set<std::int64_t> ids;
    for (const std::string_view line : rows::lines(output.out)) {
        if (const auto found = id_line(line)) {
            ids.insert(found->id);
            reply.id = found->id;
            reply.cluster = found->cluster;
        }
    }
    if (ids.size() == 1) {
        reply.kind = SubmitReply::Kind::accepted;
        return reply;
    }
    // A wrapper that prints a number of its own, or none: the name will tell.
    return {SubmitReply::Kind::ambiguous, 0, "",
            ids.empty() ? "sbatch succeeded but printed no job id"
                        : "sbatch printed several numbers that may be the job id"};
}

SubmitReply::Kind classify_submit_error(std::string_view text) {
    if (rows::contains_any(text, kAmbiguousTexts)) {
        return SubmitReply::Kind::ambiguous;
    }
    if (rows::contains_any(text, kSubmitLimitTexts)) {
        return SubmitReply::Kind::later;
    }
    if (rows::contains_any(text, kNotSubmittedTexts)) {
        return SubmitReply::Kind::not_submitted;
    }
    if (rows::contains_any(text, kRejectedTexts)) {
        return SubmitReply::Kind::rejected;
    }
    return SubmitReply::Kind::denied;
}

Result<TestOnlyReply> parse_test_only(const ProgramOutput& output) {
    constexpr std::string_view kStart = " to start at ";
    constexpr std::string_view kUsing = " using ";
    constexpr std::string_view kNodes = " processors on ";
    constexpr std::string_view kPartition = " in partition ";
    TestOnlyReply reply;
    reply.message = rows::message(output.err, output.out);
    if (!output.succeeded()) {
        const bool refused = output.exit_status && !output.timed_out &&
                             classify_submit_error(output.err) == SubmitReply::Kind::rejected;
        return refused ? Result<TestOnlyReply>{std::move(reply)}
                       : fail(slurm_failure("sbatch --test-only", output));
    }
    for (std::string_view line : rows::lines(output.err)) {
        const auto start = line.find(kStart);
        const auto use = line.find(kUsing, start == std::string_view::npos ? 0 : start);
        const auto nodes = line.find(kNodes, use == std::string_view::npos ? 0 : use);
        if (start == std::string_view::npos || use == std::string_view::npos ||
            nodes == std::string_view::npos) {
            continue;
        }
        const auto partition = line.find(kPartition, nodes);
        std::string_view list = line.substr(nodes + kNodes.size());
        if (partition != std::string_view::npos) {
            list = line.substr(nodes + kNodes.size(), partition - nodes - kNodes.size());
            reply.partition = trim(line.substr(partition + kPartition.size()));
        }
        list.remove_prefix(list.starts_with("nodes ") ? 6 : 0);
        reply.start_text = line.substr(start + kStart.size(), use - start - kStart.size());
        // Since 25.05 "TIME on cluster NAME a" or "TIME a" is before "using".
        reply.start_text.resize(std::min(reply.start_text.find(' '), reply.start_text.size()));
        reply.start = rows::number(reply.start_text).value_or(0);
        const auto cpus =
            rows::number(line.substr(use + kUsing.size(), nodes - use - kUsing.size()));
        reply.processors = cpus.value_or(0);
        reply.nodes = trim(list);
        reply.accepted = rows::is_hostlist_text(reply.nodes) && rows::printable_bytes(line);
    }
    if (!reply.accepted) {
        return fail(Errc::unavailable, "sbatch --test-only: unknown answer");
    }
    return reply;
}

Result<JobTable> parse_squeue(const ProgramOutput& output, std::string_view fence) {
    if (!output.succeeded() || admits_failure(output.err)) {
        return fail(slurm_failure("squeue", output));
    }
    JobTable table;
    std::set<std::int64_t> own;  // that no other cluster has taken over
    for (const std::string_view line : rows::lines(output.out)) {
        if (auto job = squeue_row(line, fence); job && !fence.empty()) {
            if (!job->state.has(SlurmFlag::revoked)) {
                own.insert(job->id);
            }
            table.jobs.push_back(std::move(*job));
        } else {
            ++table.malformed;
        }
    }
    // Where squeue tells of a whole federation, -a shows a job once for each of its clusters.
    std::erase_if(table.jobs, [&](const SlurmJob& job) {
        return job.state.has(SlurmFlag::revoked) && own.contains(job.id);
    });
    return table;
}

Result<SlurmJobDetail> parse_show_job(const ProgramOutput& output, std::string_view name) {
    if (!output.succeeded()) {
        return fail(slurm_failure("scontrol", output));
    }
    // Of fields that a user can fill only the name comes before the ones that are read here, and
    // ours has no spaces.
    const auto value_of = [&](std::string_view field) {
        const auto at = output.out.find(field);
        const std::string_view rest = at == std::string_view::npos
                                          ? std::string_view{}
                                          : output.out.substr(at + field.size());
        return rest.substr(0, rest.find_first_of(" \n"));
    };
    if (value_of(" JobName=") != name) {
        return fail(Errc::not_found, "scontrol: the number is another job's");
    }
    SlurmJobDetail out;
    const std::string_view preempted = value_of(" PreemptTime=");
    out.preempted = !preempted.empty() && preempted.front() >= '0' && preempted.front() <= '9';
    out.restarts = static_cast<int>(
        std::clamp<std::int64_t>(rows::number(value_of(" Restarts=")).value_or(0), 0, 1'000'000));
    if (const auto exit = exit_field(value_of(" ExitCode="))) {
        out.exit_code = exit->status;
        out.signal = exit->signal;
    }
    return out;
}

Result<JobTable> parse_sacct(const ProgramOutput& output, std::int64_t uid) {
    if (!output.succeeded() || admits_failure(output.err)) {
        return fail(slurm_failure("sacct", output));
    }
    JobTable table;
    for (const std::string_view line : rows::lines(output.out)) {
        if (auto job = sacct_row(line, uid)) {
            table.jobs.push_back(std::move(*job));
        } else {
            ++table.malformed;
        }
    }
    return table;
}

Error slurm_failure(std::string_view program, const ProgramOutput& output) {
    std::string text = rows::message(output.err, output.out);
    if (output.timed_out) {
        return Error{Errc::timed_out, "no answer in time"}.in(program);
    }
    if (output.overflowed) {
        return Error{Errc::unavailable, "it printed more than the limit"}.in(program);
    }
    if (!output.exit_status && !output.signal) {
        return Error{Errc::unavailable, text.empty() ? "could not be started" : text}.in(program);
    }
    if (text.empty()) {
        text = output.signal ? "killed by signal " + std::to_string(*output.signal)
                             : "status " + std::to_string(output.exit_status.value_or(0));
    }
    Errc code = Errc::unavailable;
    switch (slurm_error_in(text)) {
        case SlurmError::no_such_job:
            code = Errc::not_found;
            break;
        case SlurmError::already_over:
            code = Errc::conflict;
            break;
        case SlurmError::denied:
            code = Errc::denied;
            break;
        case SlurmError::argument_unknown:
            code = Errc::internal;
            break;
        case SlurmError::unauthenticated:  // munge may be back in a moment
        case SlurmError::nothing_found:
        case SlurmError::unspecified:
        case SlurmError::other:
            break;
    }
    return Error{code, std::move(text)}.in(program);
}

Result<std::vector<ControllerPing>> parse_ping(const ProgramOutput& output) {
    std::vector<ControllerPing> controllers;
    for (const std::string_view line : rows::lines(output.out)) {
        constexpr std::string_view kAt = " at ";
        constexpr std::string_view kIs = " is ";
        const auto at = line.find(kAt);
        const auto is = line.rfind(kIs);
        if (!line.starts_with("Slurmctld(") || at == std::string_view::npos ||
            is == std::string_view::npos || is < at + kAt.size()) {
            continue;
        }
        const std::string_view host = line.substr(at + kAt.size(), is - at - kAt.size());
        controllers.push_back({printable(host), trim(line.substr(is + kIs.size())) == "UP"});
    }
    // scontrol's status is 1 when the primary is down, which is an answer all the same.
    if (controllers.empty()) {
        return fail(slurm_failure("scontrol ping", output));
    }
    return controllers;
}

Status scancel_status(const ProgramOutput& output) {
    const SlurmError said = slurm_error_in(output.err);
    if (output.succeeded() || said == SlurmError::already_over || said == SlurmError::no_such_job) {
        return {};
    }
    return fail(slurm_failure("scancel", output));
}

}  // namespace lockstep
