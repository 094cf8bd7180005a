#include "daemon/control/machine/rank_findings.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/evidence.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kReasons = 4;     // told of in words; the files have them all
constexpr std::size_t kRanksNamed = 8;  // of those with the same gap

std::string shown(std::string_view text, std::size_t most = limits::kTextBytes) {
    return printable(text.substr(0, most));
}

bool trains(const RankFinding& one) {
    return !one.told || one.process.state == "S" || one.process.state == "R";
}

Json item_of(const RankFinding& one) {
    Json out = Json::object();
    out["rank"] = one.rank;
    out["node"] = one.node;
    out["behind"] = one.behind;
    if (one.step >= 0) {
        out["step"] = one.step;
    }
    if (one.told) {
        out["pid"] = one.process.pid;
        out["state"] = shown(one.process.state, 1);
        if (!one.process.wchan.empty()) {
            out["wchan"] = shown(one.process.wchan, limits::kEvidenceWordBytes);
        }
    }
    if (!one.evidence.frame.empty()) {
        out["frame"] = one.evidence.frame;
    }
    add_captures(out, one.evidence);
    if (!one.saved) {
        Json item = Json::object();
        item["what"] = "all";
        item["why"] =
            one.told ? "its agent did not end in time" : "its agent did not answer in time";
        out["missing"].push_back(std::move(item));
    }
    return out;
}

std::string ranks_words(const std::vector<std::int32_t>& ranks) {
    std::string out = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size() && i < kRanksNamed; ++i) {
        out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    return ranks.size() > kRanksNamed ? out + " and more" : out;
}

void add(std::string& out, const char* between, const std::string& text) {
    out += (out.empty() ? "" : between) + text;
}

}  // namespace

std::vector<std::int32_t> local_ranks(const std::vector<std::int32_t>& behind, std::int32_t first,
                                      std::int32_t count) {
    std::vector<std::int32_t> out;
    for (auto rank = std::lower_bound(behind.begin(), behind.end(), first);
         rank != behind.end() && *rank < first + count; ++rank) {
        out.push_back(*rank - first);
    }
    return out;
}

std::vector<std::size_t> lagging_first(const std::vector<RankFinding>& ranks) {
    std::map<std::string, std::size_t> states;
    for (const RankFinding& one : ranks) {
        ++states[one.told ? one.process.state : ""];
    }
    constexpr std::size_t kCrowd = 3;
    const auto odd = [&](const RankFinding& one) {
        return one.told && ranks.size() >= kCrowd && states.at(one.process.state) == 1;
    };
    // The index is last: no two keys are equal.
    std::vector<RankStack> stacks;
    for (const RankFinding& one : ranks) {
        if (!one.evidence.stack.empty()) {
            stacks.push_back({one.rank, one.evidence.stack});
        }
    }
    const auto culprits = compare_stacks(stacks).culprits;
    const auto named = [&](std::int32_t rank) {
        return std::find(culprits.begin(), culprits.end(), rank) != culprits.end();
    };
    std::vector<std::tuple<bool, bool, std::int64_t, bool, bool, std::int32_t, std::size_t>> keys;
    keys.reserve(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const RankFinding& one = ranks[i];
        keys.emplace_back(!named(one.rank), !one.behind, one.behind ? one.step : 0, trains(one),
                          !odd(one), one.rank, i);
    }
    const std::size_t most = std::min(keys.size(), limits::kEvidenceRanks);
    const auto end = keys.begin() + static_cast<std::ptrdiff_t>(most);
    std::partial_sort(keys.begin(), end, keys.end());
    std::vector<std::size_t> out;
    out.reserve(most);
    std::transform(keys.begin(), end, std::back_inserter(out),
                   [](const auto& key) { return std::get<6>(key); });
    return out;
}

Json findings_json(const std::vector<RankFinding>& ranks, const std::vector<std::size_t>& order) {
    Json out = Json::array();
    for (const std::size_t index : order) {
        out.push_back(item_of(ranks[index]));
    }
    return out;
}

std::string findings_words(const std::vector<RankFinding>& ranks) {
    constexpr std::array<std::pair<std::string_view, const char*>, 7> kHad{
        {{kStateText, "the state"},
         {kKernelText, "kernel stacks"},
         {kPythonText, "Python stacks"},
         {kNativeText, "native stacks"},
         {kRasText, "NCCL's own words"},
         {kNcclText, "what is counted and measured in NCCL"},
         {kFlightDumpName, "torch's flight recorder"}}};
    std::string had;
    for (const auto& [name, words] : kHad) {
        std::vector<std::int32_t> of;
        for (const RankFinding& one : ranks) {
            for (const wire::EvidenceFile& file : one.evidence.files) {
                if (file.name == name) {
                    of.push_back(one.rank);
                }
            }
        }
        if (!of.empty()) {
            std::sort(of.begin(), of.end());
            add(had, ", ",
                std::string{words} + " of " +
                    (of.size() == ranks.size() && of.size() > 1
                         ? "all " + std::to_string(of.size()) + " ranks"
                         : ranks_words(of)));
        }
    }
    std::map<std::string, std::vector<std::int32_t>> gaps;  // reason → ranks
    for (const RankFinding& one : ranks) {
        for (const wire::EvidenceGap& gap : one.evidence.missing) {
            gaps[gap.what + ": " + gap.why].push_back(one.rank);
        }
        if (!one.saved) {
            gaps["their agent did not answer in time"].push_back(one.rank);
        }
    }
    std::string missing;
    std::size_t told = 0;
    for (auto& [reason, of] : gaps) {
        if (++told > kReasons) {
            add(missing, "; ", "and more");
            break;
        }
        std::sort(of.begin(), of.end());
        of.erase(std::unique(of.begin(), of.end()), of.end());
        add(missing, "; ", ranks_words(of) + ": " + reason);
    }
    std::string out = had.empty() ? "nothing was had" : "had: " + had;
    return missing.empty() ? out : out + ". Not had: " + missing;
}

StackVerdict compare_stacks(const std::vector<wire::RankEvidence>& saved) {
    std::vector<RankStack> stacks;
    stacks.reserve(saved.size());
    for (const wire::RankEvidence& one : saved) {
        stacks.push_back({one.rank, one.stack});
    }
    return compare_stacks(stacks);
}

wire::RankEvidence cleaned(const wire::RankEvidence& evidence) {
    wire::RankEvidence out = cleaned_captures(evidence, is_evidence_name, limits::kFlightDumpBytes);
    out.frame = shown(evidence.frame);
    out.stack = shown(evidence.stack, limits::kEvidenceStackBytes);
    return out;
}

wire::RankEvidence cleaned_captures(const wire::RankEvidence& told,
                                    bool (*is_name)(std::string_view), std::size_t most) {
    wire::RankEvidence out;
    out.rank = told.rank;
    for (const wire::EvidenceFile& file : told.files) {
        const bool known = std::any_of(out.files.begin(), out.files.end(),
                                       [&](const auto& one) { return one.name == file.name; });
        if (is_name(file.name) && !known && file.size >= 0 &&
            file.size <= static_cast<std::int64_t>(most)) {
            out.files.push_back(file);
        }
    }
    for (const wire::EvidenceGap& gap : told.missing) {
        if (out.missing.size() < limits::kEvidenceGaps) {
            out.missing.push_back({shown(gap.what, limits::kEvidenceWordBytes), shown(gap.why)});
        }
    }
    return out;
}

void add_captures(Json& item, const wire::RankEvidence& evidence) {
    item["files"] = Json::array();
    for (const wire::EvidenceFile& file : evidence.files) {
        Json one = Json::object();
        one["name"] = file.name;
        one["size"] = file.size;
        item["files"].push_back(std::move(one));
    }
    item["missing"] = Json::array();
    for (const wire::EvidenceGap& gap : evidence.missing) {
        Json one = Json::object();
        one["what"] = gap.what;
        one["why"] = gap.why;
        item["missing"].push_back(std::move(one));
    }
}

}  // namespace lockstep
