// Whose fault the end of a rank is. A rank that fails takes its peers with it, and they may be gone
// before it is; what they say then speaks only of somebody who is not there any more. Pure; any
// thread.
#pragma once

#include "job/base/clock.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// In the order in which they are believed: a later kind never wins against an earlier one of
// another rank. Words are part of the API.
enum class FailureKind : std::uint8_t {
    own,      // it failed by itself, as far as anybody can tell
    network,  // a connection or a wait failed: a peer's end, mostly, but it may be its own
    echo,     // its framework says that a peer is gone
};
std::string_view to_string(FailureKind kind);
std::optional<FailureKind> parse_failure_kind(std::string_view text);

// What a Python process of a rank has told of an exception (job/rank/python/hooks).
struct ExceptionNote {
    std::int64_t pid = 0;
    bool final = false;  // it ended its process
    UnixMillis at = 0;   // when it was first seen, the node's clock
    std::string type;    // "ValueError", "torch.cuda.OutOfMemoryError"
    std::string message;
    std::string traceback;
    std::string thread;  // "" = the main one
    // [type, message] of what it came from, the oldest first, itself the last.
    std::vector<std::pair<std::string, std::string>> chain{};
    std::int32_t rank = -1;  // the one that the process calls itself; -1: it does not say
};

FailureKind failure_kind(std::string_view type, std::string_view message);
// By the oldest exception that it came from: an error of its own stays one although the clean-up
// after it met peers that were gone, and what was made of a peer's end is its echo.
FailureKind failure_kind(const ExceptionNote& note);
// Of a program that tells nothing but what it prints last.
FailureKind failure_kind_of_output(std::string_view tail);

// The last traceback of Python in what a rank has printed, with "[rank1]: " and the like taken off;
// exceptions that it came from belong to it.
struct PrintedTraceback {
    std::string type;
    std::string message;
    std::string text;
};
std::optional<PrintedTraceback> last_traceback(std::string_view output);

// What is known of a rank that has ended badly.
struct FailureFacts {
    std::int64_t pid = 0;  // of the rank's own process
    std::int32_t exit_code = -1;
    std::int32_t signal = 0;
    UnixMillis ended_at = 0;             // the node's clock, as all times here
    UnixMillis stopped_at = 0;           // when it was told to end; 0: it was not
    std::vector<ExceptionNote> notes{};  // in the order in which they came
    std::string output{};                // the end of it
    UnixMillis printed_at = 0;  // when its last traceback, or word of a crash, began; 0: none
};
struct Failure {
    FailureKind kind = FailureKind::own;
    UnixMillis at = 0;     // the moment it failed, which may be long before it ended
    bool stopped = false;  // it ended because it was told to, not by a fault of its own
    std::string type{};    // of the exception; "" = none is known
    std::string message{};
    std::string traceback{};
};
Failure judge_failure(const FailureFacts& facts);

}  // namespace lockstep
