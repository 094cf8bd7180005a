// Moments and ages as people read them. Pure but for the time zone, which TZ or the system sets.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/cli/terminal.hpp"

#include <string>
#include <string_view>

namespace lockstep::cli {

// 2026-11-22 23:28:04 CET: local time with its zone.
std::string local_time(UnixMillis time);
// The field of an answer: local_time() on a terminal; in a pipe whole, in UTC, as it came. "" when
// absent.
std::string shown_time(const Terminal& terminal, const Json& object, std::string_view key);
// 23:28:04, local time.
std::string local_clock(UnixMillis time);
// 23:28:04.184, local time.
std::string local_clock_millis(UnixMillis time);
// A moment as people give it: so long ago (90s, 30m, 2h, 1d), or a time in UTC
// (2026-11-22T08:30:00Z). invalid: neither.
Result<UnixMillis> parse_moment(const std::string& text, UnixMillis now);
// How long, in one or two units: 45s, 12m, 3h12m, 5d3h. "0s" for what lies ahead.
std::string age_text(UnixMillis from, UnixMillis now);

}  // namespace lockstep::cli
