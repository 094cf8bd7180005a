// What DesyncWatch knows of every communicator at a look, beside the one rank that it names.
#include "job/agent/nccl/desync_watch.hpp"
#include "job/base/sort.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kCommunicatorsShown = 32;
constexpr std::size_t kRanksShown = 16;

std::string of_seconds(DesyncWatch::Duration time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

std::string line_of(const DesyncWatch::Lag& lag) {
    std::string out = "communicator " + lag.communicator + " of " + std::to_string(lag.size) +
                      " ranks, unchanged for " + of_seconds(lag.still) + ": ";
    if (lag.differ) {
        return out + lag.behind.front().who + " has launched as many as the others, " +
               std::to_string(lag.most) + ", but not the same\n";
    }
    out += "the most is " + std::to_string(lag.most) + "; behind:";
    for (std::size_t i = 0; i < std::min(lag.behind.size(), kRanksShown); ++i) {
        const DesyncWatch::Behind& one = lag.behind[i];
        out += (i == 0 ? " " : ", ") + one.who + " by " + std::to_string(one.by) + " (" +
               (one.silent ? "does not answer, last at " : "") + std::to_string(one.launched) + ")";
    }
    if (lag.behind.size() > kRanksShown) {
        out += ", and " + std::to_string(lag.behind.size() - kRanksShown) + " more";
    }
    return out + "\n";
}

}  // namespace

// One that is silent has launched more since it last answered: it is behind by what the others did
// after they had it no more.
std::int64_t DesyncWatch::behind_by(const Member& who, std::int64_t front) {
    const std::int64_t by = front - who.total;
    return who.silent && by > 0 ? std::max<std::int64_t>(1, front - who.silent_at) : by;
}

DesyncWatch::Lag DesyncWatch::lag_of(const Standing& one, TimePoint now) {
    Lag out;
    out.communicator = one.communicator->name;
    out.size = one.communicator->size;
    out.most = front_of(one.members);
    out.still = now - one.since;
    out.differ = one.differ;
    for (const Member& member : one.members) {
        const bool odd = one.differ && &member == one.behind.front();
        if (const std::int64_t by = behind_by(member, out.most); by > 0 || odd) {
            const std::string who = member.rank >= 0 ? "rank " + std::to_string(member.rank)
                                                     : "its rank " + std::to_string(member.place) +
                                                           ", process " + member.process;
            out.behind.push_back({who, member.total, by, member.silent});
        }
    }
    sort_stably(out.behind, [](const Behind& a, const Behind& b) { return a.by > b.by; });
    return out;
}

DesyncWatch::Account DesyncWatch::account_of(const std::vector<Standing>& all, TimePoint now) {
    Account out;
    for (const Standing& one : all) {
        if (one.communicator->size < 2) {
            continue;
        }
        if (!one.usable) {
            ++out.unclear;
        } else if (!one.still) {
            ++out.moving;
        } else if (one.behind.empty()) {
            ++out.level;
        } else {
            out.lags.push_back(lag_of(one, now));
        }
    }
    return out;
}

std::string lag_words(const DesyncWatch::Account& account, DesyncWatch::Duration age) {
    if (account.lags.size() + account.level + account.moving + account.unclear == 0) {
        return "";
    }
    std::string out = "Collectives that each rank has launched, as NCCL's RAS said " +
                      of_seconds(age) +
                      " ago. Not counted: sends and receives, and what a CUDA graph replays.\n";
    const std::size_t shown = std::min(account.lags.size(), kCommunicatorsShown);
    for (std::size_t i = 0; i < shown; ++i) {
        out += line_of(account.lags[i]);
    }
    const std::pair<const char*, std::size_t> others[] = {
        {"also with ranks that are behind", account.lags.size() - shown},
        {"standing still, no rank behind", account.level},
        {"going on", account.moving},
        {"not all ranks known, or being made or left", account.unclear}};
    std::string rest;
    for (const auto& [what, count] : others) {
        if (count > 0) {
            rest += (rest.empty() ? "other communicators: " : "; ") + std::string{what} + ": " +
                    std::to_string(count);
        }
    }
    return out + (rest.empty() ? "" : rest + "\n");
}

}  // namespace lockstep
