// What a submission, or a command with an Idempotency-Key, comes to. Plain values; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep {

// Why a submission was refused, where its Errc does not say it all.
enum class SubmitFailure : std::uint8_t {
    other,           // as its Errc says: exhausted is the disk
    key_in_flight,   // conflict: a submission with this Idempotency-Key is being stored
    key_reused,      // conflict: the key belongs to another submission, or command of the job
    job_removed,     // conflict: the job of the submission with this key was removed
    render_changed,  // conflict: it would run something else than was rendered
    user_quota,      // exhausted: the user has, submits or stores too much; retry_after_s says when
    too_many_jobs,   // exhausted: all users together have
};
struct SubmitError : Error {
    SubmitFailure why = SubmitFailure::other;

    // NOLINTNEXTLINE(google-explicit-constructor): fail(error) of what submit() calls
    SubmitError(Error error) : Error(std::move(error)) {}
    SubmitError(SubmitFailure failure, Errc errc, std::string text)
        : Error(errc, std::move(text)), why(failure) {}
    SubmitError(SubmitFailure failure, Error error) : Error(std::move(error)), why(failure) {}
};
template <class T>
using SubmitResult = tl::expected<T, SubmitError>;
inline tl::unexpected<SubmitError> refuse(SubmitError error) {
    return tl::unexpected<SubmitError>(std::move(error));
}

}  // namespace lockstep
