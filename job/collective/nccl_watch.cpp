#include "job/collective/nccl_watch.hpp"

#include "job/base/text.hpp"
#include "job/collective/collective_limits.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace lockstep {
namespace {

// "rank 3", "ranks 3, 5 and 9 others".
std::string named(const std::vector<std::int32_t>& ranks) {
    std::string out = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < std::min(ranks.size(), limits::kNcclRanksNamed); ++i) {
        out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    if (ranks.size() > limits::kNcclRanksNamed) {
        out += " and " + std::to_string(ranks.size() - limits::kNcclRanksNamed) + " others";
    }
    return out;
}

std::string are(const std::vector<std::int32_t>& ranks) {
    return ranks.size() == 1 ? " is " : " are ";
}

}  // namespace

std::string NcclPosition::encode() const {
    return std::to_string(called) + " " + std::to_string(done) + " " + std::to_string(error) + " " +
           (remote ? "1" : "0") + " " + text;
}

std::optional<NcclPosition> NcclPosition::decode(std::string_view text) {
    std::int64_t numbers[4] = {};
    for (std::int64_t& number : numbers) {
        const auto space = text.find(' ');
        if (space == std::string_view::npos) {
            return std::nullopt;
        }
        const auto value = to_int(text.substr(0, space));
        if (!value) {
            return std::nullopt;
        }
        number = *value;
        text.remove_prefix(space + 1);
    }
    return NcclPosition{numbers[0], numbers[1], static_cast<std::int32_t>(numbers[2]),
                        numbers[3] != 0, std::string{text}};
}

NcclVerdict missing_root(std::int32_t root, const std::string& why) {
    return {"NCCL's initialisation: missing: rank " + std::to_string(root) + " (" + why + ")",
            {root}};
}

NcclVerdict verdict(const std::vector<std::optional<NcclPosition>>& ranks, std::string_view alarm,
                    std::span<const std::int32_t> names) {
    const auto name_of = [&](std::size_t rank) {
        return names.empty() ? static_cast<std::int32_t>(rank) : names[rank];
    };
    std::vector<std::int32_t> silent;
    std::int64_t most = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (!ranks[rank]) {
            silent.push_back(name_of(rank));
            continue;
        }
        most = std::max(most, ranks[rank]->called);
        if (ranks[rank]->error != 0 && !ranks[rank]->remote) {
            return {named({name_of(rank)}) + ": " + ranks[rank]->text, {name_of(rank)}};
        }
    }
    const std::string noticed = alarm.empty() ? "" : "; " + std::string{alarm};
    if (!silent.empty()) {
        return {named(silent) + (silent.size() == 1 ? " does" : " do") +
                    " not answer: ended, stopped or cut off" + noticed,
                silent};
    }
    std::vector<std::int32_t> behind;
    std::int64_t called_behind = 0;
    std::map<std::string, std::vector<std::int32_t>> calls;  // of those that have called most
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank]->called < most) {
            called_behind = behind.empty() ? ranks[rank]->called : called_behind;
            behind.push_back(name_of(rank));
        } else {
            calls[ranks[rank]->error == 0 ? ranks[rank]->text : std::string{}].push_back(
                name_of(rank));
        }
    }
    if (!behind.empty()) {
        return {named(behind) + are(behind) + "behind: operation " + std::to_string(most) +
                    " was not called there (" + std::to_string(called_behind) + " were)" + noticed,
                behind};
    }
    calls.erase(std::string{});
    if (calls.size() > 1) {
        const auto odd = std::min_element(
            calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
        const auto other = odd == calls.begin() ? std::next(odd) : calls.begin();
        return {named(odd->second) + " called " + odd->first + " as operation " +
                    std::to_string(most) + ", " + named(other->second) + " " + other->first,
                odd->second};
    }
    const bool pairs = std::any_of(ranks.begin(), ranks.end(), [](const auto& one) {
        return one->done > 0 || one->text == kNoOperation;
    });
    if (most == 0 && pairs) {
        return {
            "every rank answers, and what two of them exchange is not done: one that computes "
            "without end, a GPU or the network between them" +
                noticed,
            {}};
    }
    if (most == 0) {
        return {"every rank is there and waits: the network between them" + noticed, {}};
    }
    return {"every rank waits in operation " + std::to_string(most) +
                ": a GPU or the network between them" + noticed,
            {}};
}

}  // namespace lockstep
