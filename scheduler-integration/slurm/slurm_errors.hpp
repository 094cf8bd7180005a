// What Slurm says when it does not do what it was asked: the only place that knows its sentences
// and numbers. slurmrestd sends the number of an error (slurm_errno.h); the commands print nothing
// but slurm_strerror()'s sentence, so that theirs are searched for. Sentences and numbers are those
// of Slurm 22.05.8 (src/common/slurm_errno.c, sbatch(1)), the numbers unchanged up to 26.05. Pure;
// any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

enum class SlurmError : std::uint8_t {
    other,
    no_such_job,   // or user
    already_over,  // the job to be cancelled has ended, or ends
    denied,
    unauthenticated,   // the token, or munge
    nothing_found,     // of a query: no error, but an empty list
    unspecified,       // Slurm's "Unspecified error": a number below 0, or none
    argument_unknown,  // a command does not take an option of ours; has no number
};
// By a number of slurm_errno.h.
SlurmError slurm_error_of(std::int64_t number);
// By the sentence in what a command printed, or in an error that came without a number.
SlurmError slurm_error_in(std::string_view text);

// Whether a query that ended with status 0 has failed all the same (seen: squeue).
bool admits_failure(std::string_view printed);

// --- submissions ---------------------------------------------------------------------------------

// Errors after which a submission may have arrived; looked for first, whatever else is printed.
extern const std::vector<std::string_view> kAmbiguousTexts;
// Slurm's answers to a submission that say that nothing was queued: it never reached a controller
// that could take it, or it could not at the moment.
extern const std::vector<std::string_view> kNotSubmittedTexts;
// A limit of submitted jobs: AssocMaxSubmitJobLimit, QOSGrpSubmitJobsLimit, … are printed before
// the sentence that all share.
extern const std::vector<std::string_view> kSubmitLimitTexts;
// Definite refusals, of sbatch itself or of slurmctld.
extern const std::vector<std::string_view> kRejectedTexts;
// How sbatch begins what it says itself, which a wrapper around it would not.
extern const std::vector<std::string_view> kSbatchsOwnTexts;

// Which field of a specification a refusal is about, as a JSON pointer; "" = unknown.
std::string_view field_of_refusal(std::string_view text);

}  // namespace lockstep
