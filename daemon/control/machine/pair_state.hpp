// How far the test in pairs of an attempt is: two rounds over the nodes that have passed the rest
// of the pre-flight, once. No I/O, no messages: as PreflightState. Control thread only.
#pragma once

#include "job/model/preflight/pair_outcome.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class PairState {
  public:
    using Time = std::chrono::steady_clock::time_point;
    using Groups = std::vector<std::vector<std::int32_t>>;

    bool begun() const { return round_ > 0; }
    bool done() const { return done_; }
    // 1 or 2 while it runs.
    std::int32_t round() const { return round_; }
    // Who is to test with whom in the first round. `names`: by slot.
    const Groups& begin(std::map<std::int32_t, std::string> names, Time now);
    // An answer of another round than the one that runs does not count, nor does a second one.
    void tested(std::int32_t slot, std::int32_t round, PairOutcome outcome);
    // Its connection is gone: it will not say more.
    void gone(std::int32_t slot);
    // The second round, once the first is over.
    const Groups* next(Time now);
    // Once both are over.
    std::optional<std::vector<PreflightFinding>> judge(Time now);
    const std::map<std::int32_t, std::string>& names() const { return names_; }

  private:
    PairRound& current() { return rounds_.at(static_cast<std::size_t>(round_ - 1)); }
    bool over(Time now) const;
    const Groups& start(Groups groups, Time now);

    std::map<std::int32_t, std::string> names_;
    std::vector<PairRound> rounds_;
    std::set<std::int32_t> awaited_;
    std::int32_t round_ = 0;
    Time began_{};
    bool done_ = false;
};

}  // namespace lockstep
