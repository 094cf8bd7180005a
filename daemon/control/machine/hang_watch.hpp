// Whether a job hangs: no rank has made a step for too long. Asked at every tick and whatever an
// agent says, looks at most four times a second (it is a walk over all ranks), remembers when it
// last saw a step. Before the first step of a generation nobody knows how long imports, downloads
// and compilations take: then it only says when the ranks' stacks are worth a look. A generation is
// watched no more once a rank has ended: the last ones may be saving for minutes. Control thread
// only.
#pragma once

#include "daemon/telemetry/series/series.hpp"
#include "job/base/limits.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class HangWatch {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;
    struct Verdict {
        std::chrono::seconds silence{0};
        std::int64_t step = -1;            // the highest that a rank has reached
        std::vector<std::int32_t> behind;  // ranks that have reported, but not that step; ascending
        // No step of this generation yet, `silence` since it was first looked at. `step` and
        // `behind` are empty.
        bool starting = false;
    };

    // How long without a step is a hang. `grows`: at least 3 × the time between two reports of the
    // rank that reports most often, for many scripts print every 500th step; until one has reported
    // twice, 3 × `first`, the time from the start of the ranks to their first report. `spares`: it
    // does not run while a rank says that it evaluates or saves (op "phase"), which makes no steps;
    // not beyond ten times as long without a step, for such a rank may be stuck as well.
    struct Limit {
        Limit(std::chrono::seconds least) : seconds(least) {}
        std::chrono::seconds seconds;
        bool grows = false;
        bool spares = false;
        std::chrono::milliseconds first{0};
    };

    // Who is behind now, hang or not.
    static Verdict standing(const telemetry::JobSeries& series);

    // Another generation, or nobody could be heard: the next step counts as the first.
    void reset() { *this = HangWatch{}; }
    // `series`: null as long as nobody has reported anything, below too.
    // `stepped`: whether a rank has reported a step in this generation; the series also have those
    // of the ones before. Ranks that never report are not called behind. Nothing: it does not hang,
    // or was looked at a moment ago. Before the first step it answers `starting`
    // limits::kStartLooks times: after max(limit, limits::kStartLeast), and each time after twice
    // as long; and once more when confirmed() asks for it.
    std::optional<Verdict> look(const telemetry::JobSeries* series, TimePoint now, Limit limit,
                                bool stepped);

    // What the look that `starting` asked for has shown; "" = nothing that hangs. True if the one
    // before showed the same; otherwise another is asked for, limits::kStartAgain from now.
    bool confirmed(const std::string& shown, TimePoint now);

    // Whether steps have been made since the last look; not before the first.
    bool moved(const telemetry::JobSeries* series) const { return looked_at_ && !still(series); }
    // Whether no rank has made a step since the last look that was not spared.
    bool still(const telemetry::JobSeries* series) const;

  private:
    std::optional<Verdict> look_at_start(TimePoint now, std::chrono::seconds limit);

    std::optional<TimePoint> looked_at_;
    std::optional<TimePoint> moved_at_;   // nothing: no step in this generation yet
    std::optional<TimePoint> spared_at_;  // since then: a rank said that it evaluates or saves
    TimePoint began_at_;                  // the first look at this generation, once there was one
    std::optional<TimePoint> soon_;       // the look that confirmed() asked for
    std::string shown_;                   // by the look before
    std::int32_t starts_ = 0;             // how often it has answered `starting` by itself
    std::uint64_t steps_ = 0;             // sum of the ranks' steps when it was last looked at
};

// max(60 s, 10 × the 99th percentile of the step times), growing and sparing, unless the job says
// otherwise. `step_seconds`: that percentile; 0 = not known. `first`: as in Limit.
HangWatch::Limit hang_limit(std::int32_t hang_seconds, double step_seconds,
                            std::chrono::milliseconds first = {});

}  // namespace lockstep
