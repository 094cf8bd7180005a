#include "job/cli/placement.hpp"

#include "job/cli/terminal.hpp"

#include <CLI/App.hpp>

#include <charconv>
#include <utility>

namespace lockstep::cli {
namespace {

// More than any node has, and 1024 times it fits.
constexpr std::int64_t kLargest = 1'000'000'000'000;
constexpr std::size_t kTyped = 64;

Error not_a_size(std::string_view text) {
    return Error{Errc::invalid, one_line(text.substr(0, kTyped)) +
                                    ": must be memory as in 64G or 1500M, 1M or more"};
}

}  // namespace

void declare_placement(CLI::App& verb, Placement& placement, const std::string& action,
                       const std::string& group) {
    const auto add = [&](const char* names, std::string& target, const char* type,
                         const char* help) {
        CLI::Option* option = verb.add_option(names, target, action + help)->type_name(type);
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
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || number < 1 || number > kLargest || end - rest > 1) {
        return fail(not_a_size(text));
    }
    switch (rest == end ? 'M' : *rest) {
        case 'K':
        case 'k':
            return (number + 1023) / 1024;
        case 'M':
        case 'm':
            return number;
        case 'G':
        case 'g':
            return number * 1024;
        case 'T':
        case 't':
            return number * 1024 * 1024;
        default:
            return fail(not_a_size(text));
    }
}

}  // namespace lockstep::cli
