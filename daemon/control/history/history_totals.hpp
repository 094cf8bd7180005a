// The counters of a job in its stored state. They are stored with the chunks that they are about
// and not made from rows: a restart reads a part of the rows only, old ones expire, and a counter
// that comes back smaller is a new one to Prometheus, which adds all of it again.
//
// Each of the first limits::kFullTierRanks ranks has a line: of no others does /metrics ever show
// them. It does of a job with more ranks while that is elastic and runs on few nodes, which are the
// first. What its further ranks have counted is in the job's line (of CHECKPOINT-SECONDS, where a
// job has the most of any rank, what they are ahead of the first), and theirs begin anew: 10,000
// ranks have 60 KB of state, not 600, for each transaction that adds chunks.
//   counted rank RANK NONFINITE NONFINITE-LOSS NONFINITE-GRAD-NORM SAMPLES TOKENS …
//   counted job NONFINITE-LOSS NONFINITE-GRAD-NORM NONFINITE-OTHER SAMPLES TOKENS
//   CHECKPOINT-SECONDS
// SAMPLES TOKENS … are the metrics that are Aggregate::total in the order of kRankMetrics; nan:
// none was ever reported. Who has counted nothing has no line. Pure; control thread only.
#pragma once

#include "daemon/telemetry/series/series.hpp"
#include "job/base/result.hpp"

#include <string>
#include <string_view>

namespace lockstep {

bool is_totals_line(std::string_view line);
// The lines, each with its end.
std::string encode_totals(const telemetry::JobSeries& series);
// Puts the totals of `state` in place of what the rows of chunks have counted; before any row of
// the log. A state of before there were such lines: what the rows have counted stays if they are
// `complete`, or else everything begins anew. As it does with corrupt: a line that does not read
// back.
Status restore_totals(std::string_view state, bool complete, telemetry::JobSeries& series);

}  // namespace lockstep
