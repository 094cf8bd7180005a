// Where a job's time went, from its events and what its ranks reported: every second since it was
// submitted is in exactly one span. Pure functions of values; any thread.
//
//   queue       submitted → placed; again between the end of an attempt and the next one's place
//   launch      placed → the last agent that the first generation waited for has called in
//   rendezvous  → every rank has been started; again between two generations of an allocation
//   init        → the generation's first step was reported
//   productive  → its last one, without what is below; and what a generation that goes on, or that
//               ended well, did after it
//   checkpoint  of that, what the rank that spent most on checkpoints reported (checkpoint_seconds)
//   stalled     of a generation that hung, or was told to when it ended: from its last step to its
//               end. Of one that runs: since its last step, once it is told to hang, or that is
//               kHangLeast (limits.hpp) and ten steps' time ago
//   suspended   the scheduler had stopped all of the allocation, as far as it was asked, whatever
//               the job was doing
//   lost        steps that a later generation did again, and of a generation that ended badly what
//               came after its last step
//
// Seconds are wall time. Reports have the ranks' clocks: a time before what it must follow, or
// after what it must precede, counts as that. Spans can shrink: what was productive is lost once a
// later generation starts from an earlier step.
#pragma once

#include "job/base/enum_table.hpp"
#include "job/model/job.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Span : std::uint8_t {
    queue,
    launch,
    rendezvous,
    init,
    productive,
    checkpoint,
    stalled,
    lost,
    suspended,
};
inline constexpr std::size_t kSpans = 9;
inline constexpr std::array<std::string_view, kSpans> kSpanNames{
    "queue",      "launch",  "rendezvous", "init",     "productive",
    "checkpoint", "stalled", "lost",       "suspended"};
static_assert(names_all_of<Span>(kSpanNames));

// What telemetry knows of one generation's steps. The newest step is reported first by some rank
// and then by others: its time is that of the first.
struct GenerationReport {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int64_t first_step = -1;  // -1: none was reported, and the times are 0
    std::int64_t last_step = -1;   // the highest
    UnixMillis first_at = 0;       // the ranks' clock
    UnixMillis last_at = 0;
    double checkpoint_seconds = 0;  // of the rank that spent most on them
};

struct GenerationTime {
    std::int32_t attempt = 0;
    std::int32_t generation = 0;
    std::int64_t step = -1;  // the highest reported; -1 = none
    // Of its steps, how many a later generation started before; nothing: none has started yet, or
    // it is not known where.
    std::optional<std::int64_t> lost_steps;
};

struct JobTime {
    std::array<double, kSpans> seconds{};
    // Effective training time ratio: productive / wall time since job.started_at, the start of the
    // first ranks (the queue before it does not count, every later wait does, but for what was
    // suspended). Nothing: no rank has been started, or none has reported a step.
    std::optional<double> ettr;
    std::optional<std::int64_t> lost_steps;   // of all generations; nothing: known of none
    std::vector<GenerationTime> generations;  // in order, over all attempts

    double of(Span span) const { return seconds[static_cast<std::size_t>(span)]; }
    const GenerationTime* find(std::int32_t attempt, std::int32_t generation) const;
};

// Until `now`, or until the job was final. `reports` in any order; of a generation without one
// nothing is known. The seconds add up to that minus job.submitted_at; none is negative.
//
// A generation says where it starts by resumed_from_step; the first step that it reports is
// believed more (a script may ignore the checkpoint), and stands for it where no checkpoint was
// known. Lost steps: 52 reported, the next generation resumed from 40 → 12.
JobTime job_time(const Job& job, std::span<const GenerationReport> reports, UnixMillis now);

}  // namespace lockstep
