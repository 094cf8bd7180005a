// `lockstep top`: what is known of a job and its ranks, and how it is drawn. Pure: no clock, no
// I/O; time comes in. The main thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/enum_table.hpp"
#include "job/base/json.hpp"
#include "job/cli/terminal.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// What the ranks are sorted by, the one to look at first: longest busy, highest loss, lowest step,
// least used GPU.
enum class TopSort : std::uint8_t { busy, loss, step, gpu, rank };
inline constexpr std::array<std::string_view, 5> kTopSorts{"busy", "loss", "step", "gpu", "rank"};
static_assert(names_all_of<TopSort>(kTopSorts));
std::optional<TopSort> parse_top_sort(std::string_view word);

// What the person in front of it has chosen, and what has to be said.
struct TopChoice {
    TopSort sort = TopSort::busy;
    bool reversed = false;
    std::size_t first = 0;  // place of the first rank shown
    bool paused = false;
    bool help = false;
    std::string note;  // "" = none
    double age = 0;    // of the data, seconds
};
// "sort=-busy_seconds", for GET …/ranks.
std::string sort_query(const TopChoice& choice);

struct TopRow {
    std::int32_t rank = 0;
    std::string node, state, end;  // end: "exit 1", "signal 9", "" while it runs
    std::optional<std::int64_t> step;
    std::optional<double> loss, step_seconds, busy, wait, data_wait, age;
    // Of all its GPUs: mean use 0..1, sums of the rest.
    std::optional<double> use, memory_bytes, power_watts;
    bool has_gpus = false;
};

struct TopAnomaly {
    std::string time, kind, node, message;
    std::optional<std::int64_t> rank, step;
    std::int64_t attempt = 0;
    std::int64_t generation = 0;
    UnixMillis at = 0;
    bool over = false;  // it is the end of one
};

class TopView {
  public:
    void take_job(const Json& job, UnixMillis now);
    // An answer of GET …/ranks that begins at the place `offset`.
    void take_ranks(const Json& ranks, std::size_t offset);
    // Anomalies are kept, other kinds are not looked at. Oldest first.
    void take_event(const Json& event);

    const std::string& state() const { return state_; }
    std::size_t ranks() const { return total_; }
    // What they are sorted by if nobody says: by step where steps are all that their script tells.
    TopSort usual_sort() const;
    // The place nearest to `first` from which the screen is full.
    std::size_t clamp(std::size_t first, const Terminal& terminal, const TopChoice& choice) const;
    // How many ranks are on the screen.
    std::size_t page(const Terminal& terminal, const TopChoice& choice) const;

    // The whole screen: exactly terminal.height lines of at most terminal.width columns.
    std::vector<std::string> frame(const Terminal& terminal, const TopChoice& choice) const;
    // All of it once, for a pipe.
    std::vector<std::string> table(const Terminal& terminal) const;

  private:
    struct Column;
    std::vector<Column> columns(const Terminal& terminal, const TopChoice& choice) const;
    std::vector<std::string> head(const Terminal& terminal, const TopChoice& choice) const;
    std::vector<std::string> last_anomalies(const Terminal& terminal) const;
    std::string row_line(const Terminal& terminal, const std::vector<Column>& columns,
                         const TopRow& row) const;
    std::string foot(const Terminal& terminal, const TopChoice& choice, std::size_t shown) const;
    std::string anomaly_line(const Terminal& terminal, const TopAnomaly& anomaly) const;
    // The kind of a recent anomaly of the rank; "" if there is none.
    std::string trouble(const TopRow& row) const;
    std::string note_of(const TopRow& row) const;

    std::string id_, name_, state_, pending_, smaller_, cause_, hang_, desync_;
    std::int64_t attempt_ = 0;
    std::int64_t generation_ = 0;
    std::int64_t restarts_ = 0;
    std::int64_t anomalies_total_ = 0;
    std::optional<std::int64_t> step_, total_steps_, reporting_;
    std::optional<double> ettr_, samples_per_second_, run_seconds_;
    UnixMillis now_ = 0;  // of the job's answer; its end if it is over
    std::vector<TopRow> rows_;
    std::size_t offset_ = 0;  // place of rows_[0]
    std::size_t total_ = 0;
    bool lacks_loss_ = false;
    bool gpus_ = false;  // some rank has had one: columns do not come and go
    std::deque<TopAnomaly> anomalies_;
};

}  // namespace lockstep::cli
