// Result<T>: what every fallible function returns. Errc says what the caller can do about it;
// the message says what happened, each layer adding its context in front with in().
// Values only: any thread.
#pragma once

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class Errc {
    invalid,      // the input is wrong; the same call will fail again
    not_found,    // it does not exist
    conflict,     // the thing is in another state, or the key was used for something else
    denied,       // not allowed
    exhausted,    // a limit, a quota or a disk is full; may work later
    unavailable,  // a peer or a resource does not answer; may work later
    timed_out,    // the deadline passed; whether it happened is unknown
    cancelled,    // somebody asked to stop
    corrupt,      // stored data does not read back
    internal,     // a defect, or an unexpected error of the operating system
};

// The stable lower-case word for an Errc, as used in logs and problem documents.
std::string_view to_string(Errc code);

// One field of a document that is wrong. `pointer` is an RFC 6901 JSON pointer.
struct FieldError {
    std::string pointer;
    std::string message;
    // Of an unknown field: what its object may have instead, sorted.
    std::vector<std::string> known{};
    bool operator==(const FieldError& other) const {
        return pointer == other.pointer && message == other.message;
    }
};

struct Error {
    Errc code = Errc::internal;
    std::string message;
    std::vector<FieldError> fields{};
    // Of exhausted: in how many seconds a retry may work; 0 = unknown.
    std::int32_t retry_after_s = 0;

    Error(Errc c, std::string text) : code(c), message(std::move(text)) {}
    Error(Errc c, std::string text, std::vector<FieldError> f)
        : code(c), message(std::move(text)), fields(std::move(f)) {}

    // Puts "context: " in front of the message.
    Error in(std::string_view context) const&;
    Error in(std::string_view context) &&;
    // "invalid: message", for a log line or a terminal.
    std::string text() const;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// return fail(Errc::invalid, "…") from a function that returns Result<T>.
inline tl::unexpected<Error> fail(Errc code, std::string message) {
    return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> fail(Error error) {
    return tl::unexpected<Error>(std::move(error));
}

// LOCKSTEP_TRY(result): leaves the function with the error of `result`, if it is one; otherwise
// nothing happens, and the result is there to be read:
//   const auto text = read_file(path);
//   LOCKSTEP_TRY(text);             // *text from here on
//   LOCKSTEP_TRY(write(fd, *text)); // of a Status nothing else is wanted
// For functions that return Result<U> or what else fail() converts to. LOCKSTEP_CO_TRY is for
// coroutines; what it is given was awaited before: `co_await` does not belong in it
// (tests/lint/co_await.py). An error that needs context is returned by hand: fail(….error().in(…)).
#define LOCKSTEP_TRY_(leave, ...)                                                \
    do {                                                                         \
        if (auto&& lockstep_tried = (__VA_ARGS__); !lockstep_tried) {            \
            leave ::lockstep::fail(                                              \
                std::forward<decltype(lockstep_tried)>(lockstep_tried).error()); \
        }                                                                        \
    } while (false)
#define LOCKSTEP_TRY(...) LOCKSTEP_TRY_(return, __VA_ARGS__)
#define LOCKSTEP_CO_TRY(...) LOCKSTEP_TRY_(co_return, __VA_ARGS__)

// An Error from errno: `what: strerror`. ENOSPC, EDQUOT and EMFILE are exhausted, ENOENT not_found,
// EACCES and EPERM denied, everything else internal.
Error errno_error(std::string_view what, int error_number);

}  // namespace lockstep
