#include "scheduler-integration/slurm/query_words.hpp"

namespace lockstep {
namespace {

// ASCII unit separator, as text_rows.hpp reads it.
constexpr char kSeparator = '\x1f';
// squeue's columns between the fences and sacct's. What a user can choose (the name) is last.
constexpr std::array<std::string_view, 11> kSqueueColumns{"%A", "%U", "%u", "%T", "%r", "%N",
                                                          "%P", "%S", "%V", "%e", "%j"};
constexpr std::string_view kSacctColumns =
    "JobIDRaw,UID,User,State,ExitCode,DerivedExitCode,Submit,Start,End,Reason,NodeList,Partition,"
    "Cluster,JobName";

}  // namespace

std::vector<std::string> squeue_arguments(std::string_view fence, std::string_view user) {
    std::string format{fence};
    for (const std::string_view column : kSqueueColumns) {
        format.append(1, kSeparator).append(column);
    }
    format.append(1, kSeparator).append(fence);
    std::vector<std::string> arguments{"-h", "-a", "-t", "all", "-o", std::move(format)};
    if (!user.empty()) {
        arguments.insert(arguments.end(), {"-u", std::string{user}});
    }
    return arguments;
}

std::vector<std::string> show_job_arguments(std::int64_t id) {
    return {"-a", "-o", "show", "job", std::to_string(id)};
}

std::vector<std::string> sacct_arguments(std::string_view user, std::int64_t since,
                                         std::string_view name, bool duplicates) {
    // -S must be there: with SLURM_TIME_FORMAT=%s sacct cannot read back its own default.
    std::vector<std::string> arguments{"-X", "-P",
                                       "-n", "--delimiter=" + std::string(1, kSeparator),
                                       "-u", std::string{user},
                                       "-S", "uts" + std::to_string(since),
                                       "-o", std::string{kSacctColumns}};
    if (!name.empty()) {
        arguments.push_back("--name=" + std::string{name});
    }
    if (duplicates) {
        arguments.emplace_back("-D");
    }
    return arguments;
}

}  // namespace lockstep
