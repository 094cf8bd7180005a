// What a followed job looks like: the state gathered from answers, and how it is drawn. Pure: no
// clock, no I/O; time comes in. The main thread.
#pragma once

#include "job/base/json.hpp"
#include "job/cli/terminal.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

struct RankView {
    std::int32_t rank = 0;
    std::string node;
    std::string state;
    std::string end;  // "exit 0", "signal 9", "" while it runs
    std::optional<std::int64_t> step;
    std::optional<double> loss;
    std::optional<double> step_seconds;
};

class FollowView {
  public:
    // More ranks than this are summed up instead of listed.
    static constexpr std::size_t kListed = 16;

    // `seconds` is any clock that never goes back; for the speed and the time left.
    void take_job(const Json& job, double seconds);
    void take_ranks(const Json& ranks);
    // GET …/series of the loss: the line of each rank's history.
    void take_history(const Json& series);
    void set_total_steps(std::int64_t steps) { total_steps_ = steps; }
    std::optional<std::int64_t> total_steps() const { return total_steps_; }
    // Text under the view, such as "reconnecting"; "" for none.
    void set_note(std::string note) { note_ = std::move(note); }
    // See lacks_loss().
    void set_lacks_loss(bool lacks) { lacks_loss_ = lacks; }

    const std::string& state() const { return state_; }
    const std::vector<RankView>& ranks() const { return ranks_; }
    // The step all reporting ranks have reached.
    std::optional<std::int64_t> step() const;
    std::optional<double> seconds_left() const;

    // The block for a terminal, at most terminal.width columns.
    std::vector<std::string> lines(const Terminal& terminal, double run_seconds) const;
    // One line for a pipe: step, losses, step time, time left.
    std::string plain() const;

  private:
    std::string progress_line(const Terminal& terminal) const;
    void list_ranks(const Terminal& terminal, std::vector<std::string>& out) const;
    void summarise_ranks(const Terminal& terminal, std::vector<std::string>& out) const;

    std::string id_, name_, state_, pending_, note_, hang_, desync_, smaller_;
    std::int64_t attempt_ = 0;
    std::int64_t generation_ = 0;
    bool lacks_loss_ = false;
    std::optional<std::int64_t> total_steps_;
    std::vector<RankView> ranks_;
    std::map<std::int32_t, std::vector<double>> history_;
    std::deque<std::pair<double, std::int64_t>> pace_;  // (seconds, step) of the last half minute
    double now_ = 0;
};

}  // namespace lockstep::cli
