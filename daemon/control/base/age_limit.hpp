// How old something is, by a clock that may be wrong: only time that lockstepd has seen pass
// counts, so neither a clock that jumps ahead nor a year in a drawer makes everything old at once.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/store/clock_records.hpp"

#include <vector>

namespace lockstep {

// More than this between two looks at the clock, an hour apart as a rule, was not seen to pass.
inline constexpr UnixMillis kClockGap = 86'400'000;

// What ended before this time is older than `keep` milliseconds, gaps not counted. `gaps`: oldest
// first, apart from each other.
UnixMillis age_limit(UnixMillis now, UnixMillis keep, const std::vector<ClockGap>& gaps);

// Looks at the clock and says what is older than `days`. Control thread; errors are the store's.
Task<Result<UnixMillis>> older_than(ControlContext& context, std::int64_t days);

}  // namespace lockstep
