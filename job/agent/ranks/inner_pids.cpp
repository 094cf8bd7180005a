#include "job/agent/ranks/inner_pids.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

struct OwnNumber {
    std::int64_t pid = 0;
    bool nested = false;
};

// "NSpid:\t12345\t7\n": seen from here first, from its own namespace last.
std::optional<OwnNumber> own_number(const std::filesystem::path& proc, pid_t pid) {
    constexpr std::string_view kKey = "\nNSpid:";
    const auto status = read_file(proc / std::to_string(pid) / "status", limits::kProcStatusBytes);
    const auto begin = status ? status->find(kKey) : std::string::npos;
    if (begin == std::string::npos) {
        return std::nullopt;
    }
    std::string_view line{*status};
    line.remove_prefix(begin + kKey.size());
    line = line.substr(0, line.find('\n'));
    const auto last = line.find_last_of('\t');
    const auto number =
        last == std::string_view::npos ? std::nullopt : to_int(line.substr(last + 1));
    return number ? std::optional{OwnNumber{*number, last > 0}} : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> inner_pid(pid_t pid, const std::filesystem::path& proc) {
    const auto own = own_number(proc, pid);
    return own ? std::optional{own->pid} : std::nullopt;
}

InnerPids inner_pids(const std::map<std::int64_t, std::uint32_t>& pids,
                     const std::multimap<pid_t, pid_t>& children,
                     const std::filesystem::path& proc) {
    InnerPids out;
    for (const auto& [root, rank] : pids) {
        std::vector<pid_t> tree{static_cast<pid_t>(root)};
        for (std::size_t i = 0; i < tree.size(); ++i) {
            const auto [first, end] = children.equal_range(tree[i]);
            for (auto child = first; child != end && tree.size() < limits::kEvidenceProcesses;
                 ++child) {
                tree.push_back(child->second);
            }
            const auto own = own_number(proc, tree[i]);
            if (!own) {
                continue;
            }
            out.nested = out.nested || own->nested;
            const auto added = out.ranks.try_emplace(own->pid, rank);
            if (added.first->second != rank) {
                out.ambiguous.insert(own->pid);
            }
        }
    }
    for (const std::int64_t pid : out.ambiguous) {
        out.ranks.erase(pid);
    }
    return out;
}

}  // namespace lockstep
