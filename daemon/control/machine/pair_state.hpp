// How far a test in pairs of an attempt is, that on CPUs or that with NCCL: two rounds over the
// nodes that have passed the rest of the pre-flight, once. No I/O, no messages: as PreflightState.
// Control thread only.
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

    enum class Kind : std::uint8_t { cpus, nccl };
    explicit PairState(Kind kind = Kind::cpus) : kind_(kind) {}

    Kind kind() const { return kind_; }
    bool begun() const { return round_ > 0; }
    bool done() const { return done_; }
    // While it runs: 1 or 2, of the test with NCCL 3 or 4, so that no answer is taken for the
    // other test's.
    std::int32_t round() const { return offset() + round_; }
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
    std::int32_t offset() const { return kind_ == Kind::nccl ? 2 : 0; }
    PairRound& current() { return rounds_.at(static_cast<std::size_t>(round_ - 1)); }
    bool over(Time now) const;
    const Groups& start(Groups groups, Time now);

    Kind kind_;
    std::map<std::int32_t, std::string> names_;
    std::vector<PairRound> rounds_;
    std::set<std::int32_t> awaited_;
    std::int32_t round_ = 0;
    Time began_{};
    bool done_ = false;
};

}  // namespace lockstep
