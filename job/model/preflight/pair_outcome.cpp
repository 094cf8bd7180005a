#include "job/model/preflight/pair_outcome.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

using Groups = std::vector<std::vector<std::int32_t>>;

constexpr std::int64_t kSlowPairFactor = 2;  // times the median of the round
constexpr std::int64_t kSlowMs = 500;  // and so much more than it: less is another process's doing

// Of a node that has not answered the worst is to be thought.
PairOutcome outcome_of(const PairRound& round, std::int32_t slot) {
    const auto found = round.outcomes.find(slot);
    return found != round.outcomes.end() ? found->second
                                         : PairOutcome{-1, "its agent has not answered", false};
}

// Of those that ended well; of two the faster. 0: none did.
std::int64_t median_of(const PairRound& round) {
    std::vector<std::int64_t> times;
    for (const auto& [slot, one] : round.outcomes) {
        if (one.problem.empty() && !one.absent) {
            times.push_back(one.ms);
        }
    }
    if (times.empty()) {
        return 0;
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

bool is_slow(const PairOutcome& one, std::int64_t median) {
    return one.problem.empty() && !one.absent && one.ms > kSlowPairFactor * median &&
           one.ms - median > kSlowMs;
}

std::vector<std::int32_t> slots_of(const PairRound& round) {
    std::vector<std::int32_t> out;
    for (const auto& group : round.groups) {
        out.insert(out.end(), group.begin(), group.end());
    }
    return out;
}

// Best first.
std::vector<std::int32_t> by_outcome(const PairRound& round) {
    std::vector<std::tuple<bool, std::int64_t, std::int32_t>> order;
    for (const std::int32_t slot : slots_of(round)) {
        const PairOutcome one = outcome_of(round, slot);
        order.emplace_back(!one.problem.empty() || one.absent, one.ms, slot);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::int32_t> out;
    out.reserve(order.size());
    for (const auto& item : order) {
        out.push_back(std::get<std::int32_t>(item));
    }
    return out;
}

struct Seen {
    PairOutcome outcome;
    std::string with;
    bool slow = false;

    bool bad() const { return slow || (!outcome.problem.empty() && !outcome.absent); }
    std::string words() const {
        return outcome.problem.empty() ? std::to_string(outcome.ms) + " ms " + with
                                       : "failed " + with + " (" + outcome.problem + ")";
    }
};

}  // namespace

std::map<std::int32_t, std::int32_t> PairRound::partners() const {
    std::map<std::int32_t, std::int32_t> out;
    for (const auto& group : groups) {
        for (const std::int32_t slot : group) {
            out[slot] = group.size() < 2 ? -1 : group[slot == group[0] ? 1 : 0];
        }
    }
    return out;
}

Groups first_pairs(std::vector<std::int32_t> slots) {
    std::sort(slots.begin(), slots.end());
    Groups out;
    for (std::size_t i = 0; i < slots.size(); i += 2) {
        out.emplace_back(
            slots.begin() + static_cast<std::ptrdiff_t>(i),
            slots.begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, slots.size())));
    }
    return out;
}

Groups second_pairs(const PairRound& first) {
    std::vector<std::int32_t> order = by_outcome(first);
    std::map<std::int32_t, std::int32_t> before = first.partners();
    std::vector<std::int32_t> alone;
    if (order.size() % 2 == 1) {
        auto who = std::find_if(order.begin(), order.end(),
                                [&](std::int32_t slot) { return before[slot] >= 0; });
        who = who == order.end() ? order.begin() : who;
        alone = {*who};
        order.erase(who);
    }
    const std::size_t half = order.size() / 2;
    Groups out;
    for (std::size_t i = 0; i < half; ++i) {
        out.push_back({order[i], order[order.size() - 1 - i]});
    }
    // Who met before changes partners with a neighbour: whoever they are, they have not met both.
    for (std::size_t i = 0; i < half && half > 1; ++i) {
        if (before[out[i][0]] != out[i][1]) {
            continue;
        }
        const std::size_t other = i > 0 ? i - 1 : i + 1;
        std::swap(out[i][1], out[other][1]);
    }
    if (!alone.empty()) {
        out.push_back(std::move(alone));
    }
    return out;
}

std::vector<PreflightFinding> judge_pairs(const std::map<std::int32_t, std::string>& names,
                                          const PairRound& first, const PairRound& second) {
    const std::array<const PairRound*, 2> rounds{&first, &second};
    const std::array<std::int64_t, 2> medians{median_of(first), median_of(second)};
    const std::array partners{first.partners(), second.partners()};
    std::vector<PreflightFinding> out;
    std::size_t bad = 0;
    for (const auto& [slot, name] : names) {
        std::array<Seen, 2> seen;
        std::array<std::int32_t, 2> with{-1, -1};
        for (const std::size_t i : {0U, 1U}) {
            const auto partner = partners[i].find(slot);
            with[i] = partner == partners[i].end() ? -1 : partner->second;
            const auto named = names.find(with[i]);
            seen[i].outcome = outcome_of(*rounds[i], slot);
            seen[i].with = named == names.end() ? "alone" : "with " + named->second;
            seen[i].slow = is_slow(seen[i].outcome, medians[i]);
        }
        if (seen[0].outcome.absent || seen[1].outcome.absent) {
            out.push_back({slot, name, std::string{kPairTest},
                           "lockstep-train is not installed: it was not tested with others",
                           "the native trainer, which preflight.pair_test runs", false});
        } else if (seen[0].bad() && seen[1].bad()) {
            ++bad;
            const bool told = with[0] != with[1] || with[0] < 0;
            out.push_back({slot, name, std::string{kPairTest},
                           "the test in pairs: " + seen[0].words() + ", then " + seen[1].words(),
                           "with one of two partners a good end within " +
                               std::to_string(kSlowPairFactor) + " × the median of the nodes (" +
                               std::to_string(medians[0]) + " and " + std::to_string(medians[1]) +
                               " ms)",
                           told});
        }
    }
    if (bad * 2 > names.size()) {
        for (PreflightFinding& one : out) {
            one.fails = false;
        }
    }
    return out;
}

Json to_json(const PairTask& task) {
    Json out = Json::object();
    out["alone"] = task.alone;
    out["lead"] = task.lead;
    out["token"] = task.token;
    out["address"] = task.address;
    out["peers"] = task.peers;
    out["port"] = task.port;
    out["partner"] = task.partner;
    if (task.nccl) {
        out["nccl"] = true;
        out["gpus"] = task.gpus;
    }
    return out;
}

Result<PairTask> parse_pair_task(const Json& json) {
    std::vector<FieldError> errors;
    PairTask out;
    ObjectReader in{json, "", errors};
    in.boolean("alone", out.alone);
    in.boolean("lead", out.lead);
    in.string("token", out.token, limits::kTextBytes);
    in.string("address", out.address, limits::kTextBytes);
    in.strings("peers", out.peers, 8, limits::kTextBytes);
    in.integer("port", out.port, 0, 65'535);
    in.string("partner", out.partner, limits::kTextBytes);
    in.boolean("nccl", out.nccl);
    in.integer("gpus", out.gpus, 0, limits::kGpusPerNode);
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return out;
}

}  // namespace lockstep
