#include "job/cli/placement.hpp"

#include "job/base/limits.hpp"
#include "job/cli/terminal.hpp"

#include <CLI/App.hpp>

#include <cctype>
#include <charconv>
#include <utility>

namespace lockstep::cli {
namespace {

// More than any node has, and 1024 times it fits.
constexpr std::int64_t kLargest = 1'000'000'000'000;
constexpr std::size_t kTyped = 64;

Error not_a_size(std::string_view text) {
    return Error{Errc::invalid, one_line(text.substr(0, kTyped)) +
                                    ": must be memory as in 64G or 1500M, from 1M to 61T"};
}

}  // namespace

void declare_placement(CLI::App& verb, Placement& placement, const std::string& action,
                       const std::string& group) {
    const auto add = [&](const char* names, std::string& target, const char* type,
                         const char* help) {
        std::string text = help;
        if (!action.empty() && !text.starts_with("Slurm")) {
            text.front() = static_cast<char>(std::tolower(text.front()));
        }
        CLI::Option* option = verb.add_option(names, target, action + text)->type_name(type);
        if (!group.empty()) {  // which would hide it
            option->group(group);
        }
    };
    add("-A,--account", placement.account, "NAME", "Slurm's account");
    add("-q,--qos", placement.qos, "NAME", "Slurm's quality of service");
    add("-C,--constraint", placement.constraint, "FEATURES",
        "Only nodes with these features (Slurm), as in gpu or a100|h100");
    add("--reservation", placement.reservation, "NAME", "Slurm's reservation");
    add("--nodelist", placement.nodelist, "LIST", "With these nodes (Slurm), as in n[1-4]");
    add("-x,--exclude", placement.exclude, "LIST", "Without these nodes (Slurm), as in n[3,05]");
}

Json slurm_of(const std::string& partition, const Placement& placement) {
    Json out;
    for (const auto& [name, value] :
         {std::pair<const char*, const std::string&>{"partition", partition},
          {"account", placement.account},
          {"qos", placement.qos},
          {"constraint", placement.constraint},
          {"reservation", placement.reservation},
          {"nodelist", placement.nodelist},
          {"exclude", placement.exclude}}) {
        if (!value.empty()) {
            out[name] = value;
        }
    }
    return out;
}

Status add_directives(Json& slurm, const std::vector<std::string>& options) {
    for (const std::string& one : options) {
        const std::size_t begin = one.starts_with("--") ? 2 : 0;
        const std::size_t equals = one.find('=');
        const std::string name =
            one.substr(begin, equals == std::string::npos ? equals : equals - begin);
        if (name.empty()) {
            return fail(Errc::invalid, "--sbatch " + one_line(one.substr(0, kTyped)) +
                                           ": must be OPTION=VALUE, as in licenses=matlab");
        }
        Json& directives = slurm["directives"];
        if (directives.contains(name)) {
            return fail(Errc::invalid,
                        "--sbatch " + one_line(name.substr(0, kTyped)) + ": is given twice");
        }
        directives[name] = equals == std::string::npos ? "" : one.substr(equals + 1);
    }
    return {};
}

Result<std::int64_t> memory_mb(std::string_view text) {
    std::int64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const char* const end = text.data() + text.size();
    if (error != std::errc{} || number < 1 || number > kLargest || end - rest > 1) {
        return fail(not_a_size(text));
    }
    std::int64_t mb = 0;
    switch (rest == end ? 'M' : *rest) {
        case 'K':
        case 'k':
            mb = (number + 1023) / 1024;
            break;
        case 'M':
        case 'm':
            mb = number;
            break;
        case 'G':
        case 'g':
            mb = number * 1024;
            break;
        case 'T':
        case 't':
            mb = number * 1024 * 1024;
            break;
        default:
            return fail(not_a_size(text));
    }
    if (mb > limits::kMemoryMbPerNode) {
        return fail(not_a_size(text));
    }
    return mb;
}

}  // namespace lockstep::cli
