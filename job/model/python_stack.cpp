#include "job/model/python_stack.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kStackCalls = 16;
constexpr std::size_t kCallBytes = 160;
constexpr std::size_t kGroupRanksNamed = 8;
// Calls that only hand on to the one that is meant.
constexpr std::array<std::string_view, 8> kBetween{
    "wrapper",          "inner", "_call_impl", "_wrapped_call_impl", "__call__",
    "decorate_context", "_fn",   "_wrap"};
// Folders of what ranks talk to each other with.
constexpr std::array<std::string_view, 14> kCommunication{"torch/distributed/",
                                                          "torch/nn/parallel/",
                                                          "torch/autograd/",
                                                          "torch/_tensor.py",
                                                          "horovod/",
                                                          "mpi4py/",
                                                          "deepspeed/",
                                                          "lightning_fabric/",
                                                          "tensorflow/",
                                                          "jax/",
                                                          "jaxlib/",
                                                          "paddle/distributed/",
                                                          "paddle/base/",
                                                          "lockstep/"};
// Calls that return once all ranks have come.
struct MeetingCall {
    std::string_view folder;
    std::string_view function;
};
constexpr std::array<MeetingCall, 6> kMeetings{{
    {"torch/distributed/", "init_process_group"},
    {"jax/_src/distributed.py", "initialize"},
    {"paddle/distributed/", "init_parallel_env"},
    {"tensorflow/python/distribute/", "_initialize_multi_worker"},
    {"horovod/", "init"},
    {"mpi4py/", "Init"},
}};

struct Call {
    std::string place;  // "train.py:37"
    std::string function;
    bool own = true;
};

bool any_of_names(std::string_view name, const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// The functions that Lockstep puts around those of a framework; they say nothing of the program.
bool is_hook(std::string_view file) {
    return file.find("/python/hooks/_lockstep_") != std::string_view::npos;
}

// "/usr/lib/python3/dist-packages/torch/_tensor.py" → "torch/_tensor.py"; nothing: the user's own.
std::optional<std::string> library_part(const std::string& file) {
    constexpr std::string_view kOurs = "/python/";  // Lockstep's package where it is not installed
    if (const auto at = file.rfind("/python/lockstep/"); at != std::string::npos) {
        return file.substr(at + kOurs.size());
    }
    for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
        if (const auto at = file.rfind(folder); at != std::string::npos) {
            return file.substr(at + folder.size());
        }
    }
    if (!file.empty() && file.front() == '<') {  // <frozen runpy>, <string> is the user's
        return file.rfind("<frozen", 0) == 0 ? std::optional{file} : std::nullopt;
    }
    const auto lib = file.find("/lib/python3");
    if (lib != std::string::npos) {
        const auto slash = file.find('/', lib + 5);
        return slash == std::string::npos ? file : file.substr(slash + 1);
    }
    return std::nullopt;
}

// '  File "/x/train.py", line 37 in wait_for_data'
std::optional<std::string> call_line(std::string_view line) {
    constexpr std::string_view kFile = "  File \"";
    if (line.substr(0, kFile.size()) != kFile) {
        return std::nullopt;
    }
    const auto end = line.find("\", line ", kFile.size());
    const auto in = end == std::string_view::npos ? end : line.find(" in ", end + 8);
    if (in == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string file{line.substr(kFile.size(), end - kFile.size())};
    if (is_hook(file)) {
        return std::nullopt;
    }
    const std::string number{line.substr(end + 8, in - end - 8)};
    const std::string function{line.substr(in + 4)};
    const auto library = library_part(file);
    const std::string name = library ? *library : file.substr(file.rfind('/') + 1);
    return printable((library ? "~ " : "") + name + ":" + number + " " + function)
        .substr(0, kCallBytes);
}

std::vector<Call> calls_of(std::string_view stack) {
    std::vector<Call> out;
    for (const std::string& line : split(std::string{stack}, '\n')) {
        const bool library = line.rfind("~ ", 0) == 0;
        const std::string text = library ? line.substr(2) : line;
        const auto space = text.rfind(' ');
        if (space == std::string::npos) {
            continue;
        }
        out.push_back({text.substr(0, space), text.substr(space + 1), !library});
    }
    return out;
}

bool communicates(const Call& call) {
    return std::any_of(kCommunication.begin(), kCommunication.end(),
                       [&](std::string_view folder) { return call.place.rfind(folder, 0) == 0; });
}

// "torch/distributed/distributed_c10d.py:1700 init_process_group"; not a script's function of
// that name.
bool meets(const Call& call) {
    return !call.own && std::any_of(kMeetings.begin(), kMeetings.end(), [&](const auto& one) {
        return call.function == one.function && call.place.rfind(one.folder, 0) == 0;
    });
}

struct Where {
    const Call* own = nullptr;    // the newest call of the user's
    const Call* waits = nullptr;  // what it has called to talk to the others
    bool meets = false;           // which returns once all have come
};

Where where(const std::vector<Call>& calls) {
    Where out;
    std::size_t depth = 0;
    while (depth < calls.size() && !calls[depth].own) {
        ++depth;
    }
    out.own = depth < calls.size() ? &calls[depth] : nullptr;
    for (std::size_t i = depth; i-- > 0;) {
        if (meets(calls[i])) {
            out.waits = &calls[i];
            out.meets = true;
            return out;
        }
    }
    // From the user's code towards the newest call: the first that says what it is.
    for (std::size_t i = depth; i-- > 0;) {
        if (communicates(calls[i]) && !any_of_names(calls[i].function, kBetween)) {
            out.waits = &calls[i];
            break;
        }
    }
    return out;
}

std::string ranks_of(const StackGroup& group) {
    std::string out = group.ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < group.ranks.size() && i < kGroupRanksNamed; ++i) {
        out += (i == 0 ? "" : ", ") + std::to_string(group.ranks[i]);
    }
    return group.ranks.size() > kGroupRanksNamed
               ? out + " and " + std::to_string(group.ranks.size() - kGroupRanksNamed) + " more"
               : out;
}

// "wait in backward" of several, "waits in all_reduce (train.py:44 step)" where the place tells.
std::string doing(const StackGroup& group, bool one, bool with_place) {
    if (group.waits.empty()) {
        return (one ? "is in " : "are in ") + group.place;
    }
    return (one ? "waits in " : "wait in ") + group.waits +
           (with_place ? " (" + group.place + ")" : "");
}

std::vector<StackGroup> groups_of(const std::vector<RankStack>& ranks) {
    std::map<std::pair<std::string, std::string>, StackGroup> groups;
    for (const RankStack& one : ranks) {
        const std::vector<Call> calls = calls_of(one.stack);
        if (calls.empty()) {
            continue;
        }
        const Where at = where(calls);
        const Call& call = at.own != nullptr ? *at.own : calls.front();
        StackGroup group;
        group.place = call.place + " " + call.function;
        group.waits = at.waits == nullptr ? "" : at.waits->function;
        group.meets = at.meets;
        StackGroup& known =
            groups.emplace(std::pair{group.place, group.waits}, group).first->second;
        known.ranks.push_back(one.rank);
    }
    std::vector<StackGroup> out;
    for (auto& [key, group] : groups) {
        std::sort(group.ranks.begin(), group.ranks.end());
        out.push_back(std::move(group));
    }
    // The smallest first; of two, the one that waits for no other rank.
    std::sort(out.begin(), out.end(), [](const StackGroup& a, const StackGroup& b) {
        return std::tuple{!a.waits.empty(), a.ranks.size(), a.ranks.front()} <
               std::tuple{!b.waits.empty(), b.ranks.size(), b.ranks.front()};
    });
    return out;
}

}  // namespace

// faulthandler goes from the newest thread to the first, which is the main one.
std::string main_python_stack(std::string_view text) {
    std::string out;
    std::size_t calls = 0;
    for (const std::string& line : split(std::string{text}, '\n')) {
        if (line.rfind("Thread 0x", 0) == 0 || line.rfind("Current thread 0x", 0) == 0) {
            out.clear();
            calls = 0;
        } else if (const auto call = call_line(line); call && calls < kStackCalls) {
            out += (calls == 0 ? "" : "\n") + *call;
            ++calls;
        }
    }
    return out;
}

std::string python_frame(std::string_view stack) {
    const std::vector<Call> calls = calls_of(stack);
    if (calls.empty()) {
        return "";
    }
    const Where at = where(calls);
    const auto words = [](const Call& call) { return call.place + " " + call.function; };
    if (at.own == nullptr) {
        return words(calls.front());
    }
    const Call& newest = at.waits != nullptr ? *at.waits : calls.front();
    return &newest == at.own ? words(*at.own) : words(*at.own) + " < " + words(newest);
}

bool waits_to_meet(const StackVerdict& verdict) {
    const auto met = static_cast<std::size_t>(
        std::count_if(verdict.groups.begin(), verdict.groups.end(),
                      [](const StackGroup& group) { return group.meets; }));
    return met == verdict.groups.size() ? met > 0 : met > 0 && !verdict.culprits.empty();
}

StackVerdict compare_stacks(const std::vector<RankStack>& ranks) {
    StackVerdict out;
    out.groups = groups_of(ranks);
    if (out.groups.empty()) {
        return out;
    }
    std::size_t all = 0;
    for (const StackGroup& group : out.groups) {
        all += group.ranks.size();
    }
    const StackGroup& first = out.groups.front();
    if (out.groups.size() == 1) {
        out.words = (all == 1 ? ranks_of(first) : "all " + std::to_string(all)) + " " +
                    doing(first, all == 1, true);
        return out;
    }
    // Those that wait for nobody are waited for, if somebody waits. If all wait, or none does, the
    // few are not where the many are.
    const bool waited_for = first.waits.empty() && !out.groups.back().waits.empty();
    const std::size_t next = out.groups[1].ranks.size();
    const bool few =
        first.waits.empty() == out.groups[1].waits.empty() ? first.ranks.size() < next : true;
    const bool rest_waits = waited_for && out.groups[1].waits.empty() ? few : waited_for;
    if (rest_waits || (!waited_for && few)) {
        out.culprits = first.ranks;
    }
    const bool alone = first.ranks.size() == 1;
    const bool same_call = std::all_of(out.groups.begin(), out.groups.end(),
                                       [&](const StackGroup& g) { return g.waits == first.waits; });
    out.words = ranks_of(first) + (alone && !out.culprits.empty() ? " alone " : " ") +
                doing(first, alone, true);
    for (std::size_t i = 1; i < out.groups.size() && i < 4; ++i) {
        const StackGroup& group = out.groups[i];
        const bool one = group.ranks.size() == 1;
        out.words += "; " + (one ? ranks_of(group) : std::to_string(group.ranks.size())) + " " +
                     doing(group, one, same_call || !first.waits.empty());
    }
    if (out.groups.size() > 4) {
        out.words += "; and more places";
    }
    return out;
}

}  // namespace lockstep
