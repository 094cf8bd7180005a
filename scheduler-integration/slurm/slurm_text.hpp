// What Slurm's programs print about jobs: sbatch, squeue, sacct, scontrol ping, --version.
// What they print about the cluster is in slurm_info.hpp. Nothing here is guessed: a row that does
// not parse whole is counted and dropped, a failure that may have submitted is `ambiguous`.
// Pure; any thread.
#pragma once

#include "job/base/result.hpp"
#include "scheduler-integration/slurm/query_words.hpp"
#include "scheduler-integration/slurm/slurm_job.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// How one program ended. Neither status nor signal: it was never started.
struct ProgramOutput {
    std::optional<int> exit_status;
    std::optional<int> signal;  // that killed it
    bool timed_out = false;     // we killed it at its deadline
    bool overflowed = false;    // … or because it printed more than is read
    std::string_view out;
    std::string_view err;

    bool succeeded() const { return !timed_out && exit_status == 0; }
};

// Whether the text has the form of the Slurm names we give: `<name>-<ulid>-a<attempt>` in lower
// case, ^[a-z0-9._-]+-[0-9a-hjkmnp-tv-z]{26}-a[0-9]+$, at most limits::kSlurmNameBytes.
bool is_slurm_job_name(std::string_view text);
// The part of such a name that no other attempt has: `<ulid>-a<attempt>`; "" of any other text.
std::string attempt_part(const std::string& name);

// --- sbatch ----------------------------------------------------------------------------------

struct SubmitReply {
    enum class Kind {
        accepted,       // `id` and maybe `cluster`
        rejected,       // Slurm read it and refused: the same request will be refused again
        later,          // at a limit of submitted jobs: taken when others have ended
        not_submitted,  // it never reached Slurm, or Slurm was not ready: safe to repeat
        // Slurm answered no, in words that are not in our list (a site's own job_submit plugin can
        // say anything). Nothing is on its way any more: believed once squeue does not show the
        // name.
        denied,
        ambiguous,  // it may be queued: look it up by name, never repeat blindly
    };
    Kind kind = Kind::ambiguous;
    std::int64_t id = 0;
    std::string cluster;
    std::string message;       // Slurm's own lines, cleaned for a person; empty when accepted
    bool ended_badly = false;  // sbatch ended by itself with a status other than 0
};

// `sbatch --parsable`: the last line of stdout that is `id`, `id;cluster` or `id,cluster`, whatever
// a site's wrapper prints around it. A status other than 0 is `rejected` only for messages that
// Slurm prints on a definite refusal, `denied` for others of sbatch's own ("sbatch: error: …"), and
// `ambiguous` for unknown messages, as of a wrapper, and for none.
SubmitReply parse_sbatch(const ProgramOutput& output);

// The meaning of one of Slurm's error texts in answer to a submission, also from slurmrestd.
SubmitReply::Kind classify_submit_error(std::string_view text);

// `sbatch --test-only`, which prints to stderr. `accepted` false: `message` says why not.
struct TestOnlyReply {
    bool accepted = false;
    std::int64_t start = 0;  // Unix seconds; 0 when the line gives local time (see below)
    std::string start_text;  // as printed
    std::int64_t processors = 0;
    std::string nodes;  // hostlist
    std::string partition;
    std::string message;
};
// unavailable: no answer, or one we do not understand.
Result<TestOnlyReply> parse_test_only(const ProgramOutput& output);

// --- squeue ----------------------------------------------------------------------------------

struct JobTable {
    std::vector<SlurmJob> jobs;
    std::size_t malformed = 0;  // lines that are no whole row: forged, torn or a banner
};

// Rows of squeue_arguments' format, any job name but those with control characters. unavailable:
// the program failed, or it printed slurm_load_jobs' error beside status 0.
Result<JobTable> parse_squeue(const ProgramOutput& output, std::string_view fence);

Result<SlurmJobDetail> parse_show_job(const ProgramOutput& output, std::string_view name);

// --- sacct -----------------------------------------------------------------------------------

// Rows of sacct_arguments' format that belong to `uid`; the others count as malformed. Exit codes
// only of terminal states. unavailable: the program failed or has no accounting to ask (message).
Result<JobTable> parse_sacct(const ProgramOutput& output, std::int64_t uid);

// --- the rest --------------------------------------------------------------------------------

// Which part of a failed query is whose fault: unavailable (no answer from the controller or the
// database), timed_out, denied, not_found (invalid job id) or internal, with Slurm's text.
Error slurm_failure(std::string_view program, const ProgramOutput& output);

// `scontrol ping`. One entry a controller, the primary first.
struct ControllerPing {
    std::string host;
    bool up = false;
};
Result<std::vector<ControllerPing>> parse_ping(const ProgramOutput& output);

struct SlurmVersion {
    int major = 0;  // 22 of 22.05.8
    int minor = 0;  // 5
    int micro = 0;  // 8
    auto operator<=>(const SlurmVersion&) const = default;
};
// "slurm 22.05.8", "slurm-wlm 24.11.0-0rc2", or the number alone.
Result<SlurmVersion> parse_slurm_version(std::string_view text);
std::string to_string(const SlurmVersion& version);
// What an operator should know about this version, in one line for the log at start; "" if nothing.
// scheduler-integration/README.md, "Releases of Slurm", has more.
std::string known_defects(const SlurmVersion& version);

// Success also if the job is over already: that is what was wanted. Not with -Q, which says
// nothing.
Status scancel_status(const ProgramOutput& output);

}  // namespace lockstep
