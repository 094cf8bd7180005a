#include "daemon/control/base/age_limit.hpp"

#include "job/base/log.hpp"

namespace lockstep {

UnixMillis age_limit(UnixMillis now, UnixMillis keep, const std::vector<ClockGap>& gaps) {
    UnixMillis at = now;
    for (auto gap = gaps.rbegin(); gap != gaps.rend() && at - gap->ended < keep; ++gap) {
        keep -= at - gap->ended;
        at = gap->began;
    }
    return at - keep;
}

Task<Result<UnixMillis>> older_than(ControlContext& context, std::int64_t days) {
    const UnixMillis now = context.clock.wall();
    const auto gaps = co_await context.store.look_at_clock(now, kClockGap);
    LOCKSTEP_CO_TRY(gaps);
    if (!gaps->empty() && gaps->back().ended == now) {
        log::warn(
            "time has passed that lockstepd did not see: it was away, or the clock was set; it "
            "makes nothing older",
            {{"days", (now - gaps->back().began) / kClockGap}});
    }
    co_return age_limit(now, days * kClockGap, *gaps);
}

}  // namespace lockstep
