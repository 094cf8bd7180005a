// Answers of the API as text for people. Pure: JSON in, lines out. The main thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/json.hpp"
#include "job/cli/plot.hpp"
#include "job/cli/terminal.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

using Lines = std::vector<std::string>;

// Columns of the names on the left of `show`.
inline constexpr std::size_t kFactName = 12;

// One line a job, newest first as given. `now` for "how long". `numbered`: they are all there are
// from the newest on, and a person reads them: each line has its number, which is a name (@3). On a
// terminal ids are shortened.
Lines jobs_table(const Terminal& terminal, const std::vector<Json>& jobs, UnixMillis now,
                 bool numbered);
// Everything about one job.
Lines job_view(const Terminal& terminal, const Json& job, UnixMillis now);
// The cause with the tail of the failing rank's log; empty when there is none.
Lines cause_view(const Terminal& terminal, const Json& cause);
// "rank_exit: rank 1 on n1 exited with code 1"; "" when there is none.
std::string cause_text(const Json& cause);
// One line of an event list.
std::string event_line(const Terminal& terminal, const Json& event);
// The ranks' table of GET …/ranks.
Lines ranks_table(const Terminal& terminal, const Json& ranks);
// An item of GET …/evidence: what was had, and the first `most` of its ranks.
Lines evidence_view(const Terminal& terminal, const Json& item, std::size_t most);
// Findings of a pre-flight; nothing if there are none.
Lines preflight_table(const Terminal& terminal, const Json& findings);
// The nodes of GET /v1/nodes.
Lines nodes_table(const Terminal& terminal, const Json& nodes);
// GET /v1/nodes/{name}: the node, then what it was blamed for.
Lines node_view(const Terminal& terminal, const Json& node);
// The answer of GET /v1/cluster.
Lines cluster_view(const Terminal& terminal, const Json& cluster);
// The tokens of GET /v1/tokens.
Lines tokens_table(const Terminal& terminal, const std::vector<Json>& tokens, UnixMillis now);
// "exited 0", "signal 9", or "".
std::string rank_end(const Json& rank);

// The lines of GET …/series.
std::vector<PlotLine> plot_lines(const Json& series);

// How long the job has been running (or ran), in seconds.
std::optional<double> running_seconds(const Json& job, UnixMillis now);
// Whether its ranks have run, to the end (but for plain commands) or for a minute, without a step
// that is known.
bool lacks_loss(const Json& job, UnixMillis now);
// What is said then.
inline constexpr std::string_view kLossHint =
    "No loss was found in what the ranks print: lockstep explain capture says how to name it; or "
    "call lockstep.report() in the script.";
// "3 of 4 nodes" while the job runs on fewer than it is to (resources.min_nodes); else "".
std::string smaller_text(const Json& job);
bool is_final_state(std::string_view state);

}  // namespace lockstep::cli
