// How long a job's steps took (step_times.hpp), in its stored state. It is stored with the chunks
// that it is about and not made from their rows, which are there rank by rank: of what ranks say of
// their evaluations, that of the first alone would be heard at its time.
//   steptimes ATTEMPT GENERATION STEP AT SECONDS COUNTS PAUSED BUCKET …
// BUCKET …: of at most StepTimes::kWindow durations, the oldest first. A job without a step has no
// line. Pure; control thread only.
#pragma once

#include "daemon/telemetry/series/series.hpp"
#include "job/base/result.hpp"

#include <string>
#include <string_view>

namespace lockstep {

bool is_step_times_line(std::string_view line);
// The line, with its end; 4 KB at most.
std::string encode_step_times(const telemetry::JobSeries& series);
// Puts those of `state` in place of what the rows of chunks have made; before any row of the log. A
// state of before there was such a line leaves what the rows have made, and so does corrupt: a line
// that does not read back.
Status restore_step_times(std::string_view state, telemetry::JobSeries& series);

}  // namespace lockstep
