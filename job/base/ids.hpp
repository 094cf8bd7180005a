// Identifiers. A job is `ls-` + ULID (26 characters of Crockford base 32: 48 bits of milliseconds,
// 80 random bits; https://github.com/ulid/spec), so ids sort by submission time.
#pragma once

#include "job/base/clock.hpp"

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

struct JobId {
    std::string value;
    auto operator<=>(const JobId&) const = default;
    bool operator==(const JobId&) const = default;
};

// Position in the daemon's event log, from 1; 0 = before the first.
using Seq = std::int64_t;

// A new id for a job submitted at `now`. Uses the kernel's random numbers; ids made within the
// same millisecond by one process still ascend. Control thread only (keeps the last id).
JobId make_job_id(UnixMillis now);
// Whether the text is a well-formed job id: all that may ever become part of a path.
bool is_job_id(std::string_view text);

// 256 random bits as 64 lower-case hexadecimal characters; for tickets and tokens.
std::string random_secret();

}  // namespace lockstep

template <>
struct std::hash<lockstep::JobId> {
    std::size_t operator()(const lockstep::JobId& id) const noexcept {
        return std::hash<std::string>{}(id.value);
    }
};
