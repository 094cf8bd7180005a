// What is made of the two rounds of the test with NCCL (judge_nccl() of pair_outcome.hpp).
#include "job/model/preflight/pair_outcome.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <utility>

namespace lockstep {
namespace {

// Of the median of groups of the same shape. Between good pairs of one fabric lie some per cent, a
// tenth across its spines; a pair of links of which one is down, or has fallen back to a lower rate
// or to TCP, does half or less.
constexpr std::int64_t kSlowBusPercent = 50;
constexpr std::int64_t kDoubtfulBusPercent = 75;
// Only warned of: a switch more between two nodes is no fault of theirs.
constexpr std::int64_t kSlowLatencyFactor = 3;
constexpr std::int64_t kSlowLatencyNs = 20'000;  // and so much more than the median

// One node in one round.
struct NcclTurn {
    PairOutcome outcome;
    std::int32_t with = -1;  // slot; -1: it was alone
    std::string with_name;
    bool excused = false;         // the other one is to blame, by its own word
    std::int64_t median_mbs = 0;  // of all groups of its shape; 0: it was not measured
    std::size_t groups = 0;       // … and how many these are
    std::int64_t median_ns = 0;   // … and of their latencies

    bool failed() const { return !outcome.problem.empty() && !outcome.nccl.unloadable && !excused; }
    bool measured() const { return outcome.problem.empty() && !outcome.absent && median_mbs > 0; }
    bool below(std::int64_t percent) const {
        return measured() && outcome.nccl.bus_mbs * 100 < percent * median_mbs;
    }
    bool late() const {
        return measured() && outcome.nccl.latency_ns > kSlowLatencyFactor * median_ns &&
               outcome.nccl.latency_ns - median_ns > kSlowLatencyNs;
    }
};

std::string gigabytes(std::int64_t mbs) {
    std::array<char, 32> out{};
    const double value = static_cast<double>(mbs) / 1000;
    std::snprintf(out.data(), out.size(),
                  value < 10    ? "%.2f GB/s"
                  : value < 100 ? "%.1f GB/s"
                                : "%.0f GB/s",
                  value);
    return out.data();
}

std::string microseconds(std::int64_t ns) {
    return std::to_string((ns + 500) / 1000) + " µs";
}

std::string nccl_words(const NcclTurn& turn) {
    const NcclTestFact& fact = turn.outcome.nccl;
    const std::string with = turn.with < 0 ? "alone" : "with " + turn.with_name;
    if (!turn.outcome.problem.empty()) {
        return with + " it failed (" + turn.outcome.problem + ")";
    }
    return with + " " + gigabytes(fact.bus_mbs) + " and " + microseconds(fact.latency_ns) + " on " +
           std::to_string(fact.ranks) + " GPUs";
}

PairOutcome nccl_outcome_of(const PairRound& round, std::int32_t slot) {
    const auto found = round.outcomes.find(slot);
    if (found != round.outcomes.end()) {
        return found->second;
    }
    PairOutcome out{-1, "its agent has not answered", false};
    out.nccl.blames = NcclBlame::self;
    return out;
}

bool measured_well(const PairOutcome& one) {
    return one.problem.empty() && !one.absent && one.nccl.bus_mbs > 0;
}

// The middle one, of an even number the better: of one bad group and one good one that is the good
// one. `values`: not empty.
std::int64_t middle_of(std::vector<std::int64_t> values, bool more_is_better) {
    const std::size_t at = (values.size() - (more_is_better ? 0 : 1)) / 2;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(at);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

class NcclJudge {
  public:
    NcclJudge(const std::map<std::int32_t, std::string>& names, const PairRound& first,
              const PairRound& second)
        : names_(names), rounds_{&first, &second}, partners_{first.partners(), second.partners()} {
        for (const auto& [slot, name] : names_) {
            turns_[slot] = {turn_of(slot, 0), turn_of(slot, 1)};
        }
    }

    std::vector<PreflightFinding> judge() {
        std::size_t tried = 0;
        std::size_t unloadable = 0;
        for (const auto& [slot, turns] : turns_) {
            const bool absent = turns[0].outcome.absent || turns[1].outcome.absent;
            tried += absent ? 0 : 1;
            unloadable += !absent && no_library(turns) != nullptr ? 1 : 0;
        }
        for (const auto& [slot, turns] : turns_) {
            const PairOutcome* without = no_library(turns);
            if (turns[0].outcome.absent || turns[1].outcome.absent) {
                add(slot, "lockstep-nccl-test is not installed: NCCL was not tested",
                    "the program that preflight.nccl_test runs", false);
            } else if (without != nullptr) {
                // On fewer than half it may be a library that only training will find.
                const bool fails = unloadable * 2 <= tried;
                add(slot, "NCCL was not tested: " + without->problem,
                    fails ? "libraries that load, as on half of the nodes and more"
                          : "NCCL and the driver where the agent's LD_LIBRARY_PATH leads",
                    fails);
            } else if (judge_failures(slot, turns)) {
                failing_.insert(slot);
            }
        }
        for (const auto& [slot, turns] : turns_) {
            if (!failing_.contains(slot)) {
                judge_speed(slot, turns);
            }
            add_warnings(slot, turns);
        }
        return std::move(out_);
    }

  private:
    using Turns = std::array<NcclTurn, 2>;

    static const PairOutcome* no_library(const Turns& turns) {
        for (const NcclTurn& turn : turns) {
            if (turn.outcome.nccl.unloadable) {
                return &turn.outcome;
            }
        }
        return nullptr;
    }

    NcclTurn turn_of(std::int32_t slot, std::size_t round) const {
        NcclTurn out;
        out.outcome = nccl_outcome_of(*rounds_[round], slot);
        const auto partner = partners_[round].find(slot);
        out.with = partner == partners_[round].end() ? -1 : partner->second;
        if (out.with >= 0) {
            const auto name = names_.find(out.with);
            out.with_name = name == names_.end() ? "" : name->second;
            const PairOutcome other = nccl_outcome_of(*rounds_[round], out.with);
            out.excused = other.absent || other.nccl.unloadable ||
                          (other.nccl.blames == NcclBlame::self && !other.problem.empty() &&
                           out.outcome.nccl.blames != NcclBlame::self);
        }
        compare(out);
        return out;
    }

    // A group alone has nothing to be compared with.
    void compare(NcclTurn& turn) const {
        if (!measured_well(turn.outcome)) {
            return;
        }
        std::vector<std::int64_t> rates;
        std::vector<std::int64_t> latencies;
        for (const PairRound* round : rounds_) {
            for (const auto& group : round->groups) {
                bool counted = false;
                for (const std::int32_t slot : group) {
                    const PairOutcome one = nccl_outcome_of(*round, slot);
                    if (!counted && measured_well(one) && same_shape(one.nccl, turn.outcome.nccl)) {
                        rates.push_back(one.nccl.bus_mbs);
                        latencies.push_back(one.nccl.latency_ns);
                        counted = true;
                    }
                }
            }
        }
        turn.groups = rates.size();
        turn.median_mbs = middle_of(std::move(rates), true);
        turn.median_ns = middle_of(std::move(latencies), false);
    }

    // Somebody else did well with it: it is not the one.
    bool well_elsewhere(std::int32_t slot, std::int32_t with, std::int64_t percent) const {
        const auto found = turns_.find(slot);
        return found != turns_.end() &&
               std::any_of(found->second.begin(), found->second.end(), [&](const NcclTurn& turn) {
                   return turn.with >= 0 && turn.with != with && turn.outcome.problem.empty() &&
                          !turn.outcome.absent && !turn.below(percent);
               });
    }

    template <class Bad>
    bool in_each(const Turns& turns, Bad&& bad) const {
        std::size_t met = 0;
        for (const NcclTurn& turn : turns) {
            if (turn.with >= 0 && !turn.excused) {
                ++met;
                if (!bad(turn)) {
                    return false;
                }
            }
        }
        return met > 0;
    }

    // Whether it is this one and not the other: two others had the same with it, or the only one
    // that had did well elsewhere.
    bool told_apart(std::int32_t slot, const Turns& turns, std::int64_t percent) const {
        if (turns[0].with >= 0 && turns[1].with >= 0 && turns[0].with != turns[1].with &&
            !turns[0].excused && !turns[1].excused) {
            return true;
        }
        const std::int32_t other = turns[0].with >= 0 ? turns[0].with : turns[1].with;
        return well_elsewhere(other, slot, percent);
    }

    static std::string words_of_both(const Turns& turns) {
        return "NCCL's all-reduce: " + nccl_words(turns[0]) + ", then " + nccl_words(turns[1]);
    }

    bool judge_failures(std::int32_t slot, const Turns& turns) {
        for (const NcclTurn& turn : turns) {
            if (turn.with < 0 && turn.failed()) {
                add(slot, words_of_both(turns), "right sums over its own GPUs", true);
                return true;
            }
        }
        if (!in_each(turns, [](const NcclTurn& turn) { return turn.failed(); })) {
            return false;
        }
        const auto failed = [](const NcclTurn& turn) { return turn.failed(); };
        const bool certain = told_apart(slot, turns, 0);
        if (!certain && only_other_is(slot, turns, failed)) {
            return false;
        }
        add(slot,
            words_of_both(turns) +
                (certain ? "" : "; that it is not the other node, only a third one would show"),
            "right sums over the GPUs of both nodes, in time", true);
        return true;
    }

    // What it did with one that fails tells nothing of it.
    void judge_speed(std::int32_t slot, Turns turns) {
        const std::string words = words_of_both(turns);
        bool both = true;
        for (NcclTurn& turn : turns) {
            turn.excused = turn.excused || (turn.failed() && failing_.contains(turn.with));
            both = both && !turn.excused;
        }
        for (const std::int64_t percent : {kSlowBusPercent, kDoubtfulBusPercent}) {
            const auto slower = [&](const NcclTurn& turn) { return turn.below(percent); };
            // One measurement alone is a reason to look, if it is a clear one.
            if ((both || percent == kSlowBusPercent) && in_each(turns, slower)) {
                const bool certain = told_apart(slot, turns, percent);
                if (!certain && only_other_is(slot, turns, slower)) {
                    return;
                }
                const NcclTurn& slow = turns[0].below(percent) ? turns[0] : turns[1];
                add(slot, words,
                    "at least " + std::to_string(percent) + " % of the median of " +
                        std::to_string(slow.groups) + " groups of " +
                        std::to_string(slow.outcome.nccl.ranks) + " GPUs here, " +
                        gigabytes(slow.median_mbs),
                    percent == kSlowBusPercent && certain && both);
                return;
            }
        }
        if (both && in_each(turns, [](const NcclTurn& turn) { return turn.late(); }) &&
            told_apart(slot, turns, 0)) {
            const NcclTurn& late = turns[0].late() ? turns[0] : turns[1];
            add(slot, words,
                "a latency of at most " + std::to_string(kSlowLatencyFactor) +
                    " × the median here, " + microseconds(late.median_ns),
                false);
        }
    }

    // It met nobody but one that is bad with others, too: that one is named for it.
    template <class Bad>
    bool only_other_is(std::int32_t slot, const Turns& turns, Bad&& bad) const {
        const std::int32_t other = turns[0].with >= 0 ? turns[0].with : turns[1].with;
        const auto found = turns_.find(other);
        return found != turns_.end() &&
               std::any_of(found->second.begin(), found->second.end(), [&](const NcclTurn& turn) {
                   return turn.with != slot && turn.with >= 0 && bad(turn);
               });
    }

    void add_warnings(std::int32_t slot, const Turns& turns) {
        std::vector<std::string> said;
        std::string all;
        for (const NcclTurn& turn : turns) {
            std::string here;
            for (const std::string& warning : turn.outcome.nccl.warnings) {
                if (std::find(said.begin(), said.end(), warning) == said.end()) {
                    said.push_back(warning);
                    here += (here.empty() ? "" : "; ") + warning;
                }
            }
            if (!here.empty()) {
                all += (all.empty() ? "NCCL warns" : "; and") + whose_ranks(turn) + ": " + here;
            }
        }
        if (!all.empty()) {
            add(slot, std::move(all), "nothing that it warns of", false);
        }
    }

    // Warnings are said where rank 0 is.
    static std::string whose_ranks(const NcclTurn& turn) {
        const NcclTestFact& fact = turn.outcome.nccl;
        return turn.with < 0 ? ""
                             : " (ranks from " + std::to_string(fact.gpus) + " on are of " +
                                   turn.with_name + ")";
    }

    void add(std::int32_t slot, std::string found, std::string expected, bool fails) {
        out_.push_back({slot, names_.at(slot), std::string{kNcclTest}, std::move(found),
                        std::move(expected), fails});
    }

    const std::map<std::int32_t, std::string>& names_;
    std::array<const PairRound*, 2> rounds_;
    std::array<std::map<std::int32_t, std::int32_t>, 2> partners_;
    std::map<std::int32_t, Turns> turns_;
    std::set<std::int32_t> failing_;  // with its partners
    std::vector<PreflightFinding> out_;
};

}  // namespace

std::vector<PreflightFinding> judge_nccl(const std::map<std::int32_t, std::string>& names,
                                         const PairRound& first, const PairRound& second) {
    return NcclJudge{names, first, second}.judge();
}

}  // namespace lockstep
