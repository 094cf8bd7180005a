#include "job/model/echo.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kMissing = "missing: rank ";
constexpr std::string_view kMonitored = " failed to pass monitoredBarrier";

std::string counted(std::int64_t count, const char* one, const char* more) {
    return std::to_string(count) + (count == 1 ? one : more);
}

// Each number in a text.
std::vector<std::int32_t> numbers_in(std::string_view text) {
    std::vector<std::int32_t> out;
    while (!text.empty()) {
        const auto digit = text.find_first_of("0123456789");
        text.remove_prefix(std::min(digit, text.size()));
        std::int32_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error == std::errc{}) {
            out.push_back(number);
        }
        const auto length = static_cast<std::size_t>(end - text.data());
        text.remove_prefix(std::min(text.size(), std::max<std::size_t>(length, 1)));
    }
    return out;
}

// Of those that the echo names the first that has not failed itself: one that has waited in vain,
// too, for somebody else perhaps.
std::optional<std::int32_t> missing_rank(const Generation& generation,
                                         const event::RankExited& echo) {
    for (const std::int32_t rank : named_missing(echo.error)) {
        const auto failed = generation.failed.find(rank);
        const bool by_itself = failed != generation.failed.end() && !failed->second.stopped;
        if (rank >= 0 && rank < static_cast<std::int32_t>(generation.exited.size()) &&
            rank != echo.rank && !by_itself) {
            return rank;
        }
    }
    return std::nullopt;
}

std::string at_step(const event::RankExited& exit) {
    return exit.step < 0 ? "" : " at step " + std::to_string(exit.step);
}

bool has_left(const Generation& generation, std::int32_t rank) {
    return generation.exited[static_cast<std::size_t>(rank)] && !generation.failed.contains(rank) &&
           !generation.stopped.contains(rank);
}

// Who it is that the others waited for, and what it did; nothing: there is no evidence.
struct Culprit {
    std::int32_t rank = -1;
    std::string did{};
    bool launcher = false;
};
std::optional<Culprit> find_culprit(const Generation& generation, const event::RankExited& echo) {
    const auto& left = generation.first_left;
    if (const auto missing = missing_rank(generation, echo)) {
        const bool first = left && left->rank == *missing;
        return Culprit{*missing, has_left(generation, *missing)
                                     ? " left with exit 0" + (first ? at_step(*left) : "") +
                                           " and was waited for in vain"
                                     : " did not come to where it was waited for"};
    }
    // The connections of one that fails last until it ends: what left after the first of those may
    // have done so because of it. If most have left, it is those that went on who are odd.
    const auto world = static_cast<std::int64_t>(generation.exited.size());
    if (left && left->at <= generation.first_failed_end &&
        std::int64_t{generation.left} * 2 <= world) {
        const std::int64_t others = world - generation.left;
        return Culprit{left->rank,
                       " left with exit 0" + at_step(*left) + " while " +
                           counted(others, " other", " others") + " went on",
                       left->launcher};
    }
    // Ranks may report at different rates: others must have stood where the echo did.
    const auto& last = generation.stopped_last;
    if (last && !last->launcher && !echo.launcher && last->step < echo.step &&
        generation.stopped_next_step >= echo.step) {
        return Culprit{last->rank, " stood at step " + std::to_string(last->step) + " while rank " +
                                       std::to_string(echo.rank) + " was at step " +
                                       std::to_string(echo.step)};
    }
    return std::nullopt;
}

// With the words of the echo behind them.
Cause culprit_cause(const Job& job, const Culprit& culprit, const Cause& echo) {
    Cause out;
    out.kind = echo.kind;
    out.log_tail = echo.log_tail;
    out.rank = culprit.launcher ? -1 : culprit.rank;
    if (const NodeClaim* claim = job.claim_of_node(culprit.rank / job.spec.ranks_per_node())) {
        out.node = claim->node;
    }
    out.message = (culprit.launcher ? "the process that starts the ranks of " + out.node
                                    : "rank " + std::to_string(culprit.rank) + " on " + out.node) +
                  culprit.did + ". Then " + echo.message;
    return out;
}

}  // namespace

void note_end(Generation& generation, const event::RankExited& exit) {
    if (exit.stopped) {
        auto& last = generation.stopped_last;
        auto& next = generation.stopped_next_step;
        if (exit.step < 0) {
            return;
        }
        if (!last || std::pair{exit.step, exit.rank} < std::pair{last->step, last->rank}) {
            next = last ? last->step : -1;
            last = exit;
        } else if (next < 0 || exit.step < next) {
            next = exit.step;
        }
    } else if (exit.exit_code == 0) {
        ++generation.left;
        auto& first = generation.first_left;
        if (!first || std::pair{exit.at, exit.rank} < std::pair{first->at, first->rank}) {
            first = exit;
        }
    } else if (generation.first_failed_end == 0 || exit.at < generation.first_failed_end) {
        generation.first_failed_end = exit.at;
    }
}

std::vector<std::int32_t> named_missing(std::string_view error) {
    if (const auto at = error.find(kMissing); at != std::string_view::npos) {
        const std::string_view words = error.substr(at + kMissing.size());
        return numbers_in(words.substr(0, words.find_first_not_of("rank, 0123456789")));
    }
    const auto at = error.find(kMonitored);
    if (at == std::string_view::npos) {
        return {};
    }
    const std::string_view before = error.substr(0, at);
    const auto word = before.rfind("Rank");
    return word == std::string_view::npos ? std::vector<std::int32_t>{}
                                          : numbers_in(before.substr(word));
}

Cause first_cause(const Job& job, const Generation& generation, const Cause& first) {
    const auto found = generation.failed.find(generation.first_failed);
    if (generation.first_failure_kind != FailureKind::echo || found == generation.failed.end() ||
        generation.exited.size() < 2) {
        return first;
    }
    const event::RankExited& echo = found->second;
    if (first.rank >= 0 && first.rank != echo.rank) {
        return first;  // the one that the others waited for in NCCL
    }
    if (const auto culprit = find_culprit(generation, echo)) {
        return culprit_cause(job, *culprit, first);
    }
    Cause out = first;
    out.rank = -1;
    out.node.clear();
    out.message =
        "every failure is the echo of another rank's end or silence, and the first cause is not "
        "known. ";
    if (generation.left > 0) {
        out.message += counted(generation.left, " rank", " ranks") + " had left with exit 0. ";
    }
    out.message += "The earliest: " + first.message;
    return out;
}

}  // namespace lockstep
