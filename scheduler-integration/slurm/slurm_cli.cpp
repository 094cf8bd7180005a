#include "scheduler-integration/slurm/slurm_cli.hpp"

#include "job/base/ids.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>

namespace lockstep {
namespace {

constexpr std::array<const char*, 5> kPrograms{"sbatch", "squeue", "scancel", "scontrol", "sinfo"};
constexpr std::array<const char*, 2> kOptionalPrograms{"sacct", "srun"};
constexpr SlurmVersion kOldest{22, 5, 0};

ProgramOutput output_of(const ProcessResult& result) {
    ProgramOutput out;
    out.exit_status = result.exit_status;
    out.signal = result.signal;
    out.timed_out = result.timed_out;
    out.overflowed = result.overflowed;
    out.out = result.out;
    out.err = result.err;
    return out;
}

template <class Range>
std::vector<std::string> strings(const Range& texts) {
    return {texts.begin(), texts.end()};
}

}  // namespace

const SlurmPartition* SlurmFacts::default_partition() const {
    const auto found = std::find_if(partitions.begin(), partitions.end(),
                                    [](const SlurmPartition& one) { return one.is_default; });
    return found == partitions.end() ? nullptr : &*found;
}

const SlurmPartition* SlurmFacts::partition(std::string_view name) const {
    const auto found = std::find_if(partitions.begin(), partitions.end(),
                                    [&](const SlurmPartition& one) { return one.name == name; });
    return found == partitions.end() ? nullptr : &*found;
}

std::string folder_of_program(const std::string& program, const std::string& given) {
    std::vector<std::string> folders{given};
    if (given.empty()) {
        const char* path = std::getenv("PATH");
        folders = split(path != nullptr ? path : "/usr/bin:/bin", ':');
    }
    const auto first_with = [&](const std::string& name) {
        const auto found =
            std::find_if(folders.begin(), folders.end(), [&](const std::string& folder) {
                return !folder.empty() && ::access((folder + "/" + name).c_str(), X_OK) == 0;
            });
        return found == folders.end() ? std::string{} : *found;
    };
    const std::string beside = first_with("sbatch");
    const bool there = !beside.empty() && ::access((beside + "/" + program).c_str(), X_OK) == 0;
    return there ? beside : first_with(program);
}

SlurmCli::SlurmCli(net::io_context& io, Options options, Called called)
    : options_(std::move(options)), called_(std::move(called)), runner_(io) {}

Status SlurmCli::find_programs() {
    std::map<std::string, std::string> folders;
    for (const char* program : kPrograms) {
        folders[program] = folder_of_program(program, options_.bin_directory);
        if (folders[program].empty()) {
            return fail(
                Errc::not_found,
                std::string{program} + " of Slurm was not found " +
                    (options_.bin_directory.empty() ? "on PATH" : "in " + options_.bin_directory));
        }
    }
    for (const char* program : kOptionalPrograms) {
        folders[program] = folder_of_program(program, options_.bin_directory);
    }
    folders_ = std::move(folders);
    return {};
}

// `of_a_job`: what sbatch has, the job may get.
std::vector<std::string> SlurmCli::environment(bool of_a_job) const {
    std::vector<std::string> out{"PATH=/usr/bin:/bin", "HOME=" + options_.home,
                                 "USER=" + options_.user, "LOGNAME=" + options_.user};
    if (!options_.slurm_conf.empty()) {
        out.push_back("SLURM_CONF=" + options_.slurm_conf);
    }
    if (!of_a_job) {
        for (const std::string_view entry : kSlurmTextEnvironment) {
            out.emplace_back(entry);
        }
    }
    return out;
}

Task<Result<ProcessResult>> SlurmCli::call(std::string program, std::vector<std::string> arguments,
                                           std::chrono::milliseconds timeout) {
    ProcessCommand command;
    command.argv.push_back(folders_[program] + "/" + program);
    command.argv.insert(command.argv.end(), std::make_move_iterator(arguments.begin()),
                        std::make_move_iterator(arguments.end()));
    command.environment = environment(program == "sbatch");
    command.timeout = timeout;
    co_return co_await run(std::move(command), std::move(program));
}

Task<Result<ProcessResult>> SlurmCli::run(ProcessCommand command, std::string name) {
    auto result = co_await runner_.run(std::move(command));
    if (called_) {
        const bool good = result && !result->timed_out && result->exit_status == 0;
        called_(name, good, result ? std::chrono::duration<double>(result->took).count() : 0.0);
    }
    co_return result;
}

Task<Result<SlurmFacts>> SlurmCli::probe() {
    LOCKSTEP_CO_TRY(find_programs());
    SlurmFacts facts;
    std::vector<std::string> arguments{"--version"};
    const auto version = co_await call("sbatch", std::move(arguments), options_.probe_timeout);
    LOCKSTEP_CO_TRY(version);
    if (version->timed_out) {
        co_return fail(Errc::unavailable, "sbatch --version does not end");
    }
    auto parsed = parse_slurm_version(version->out);
    if (!parsed) {
        // Without slurm.conf it does not say even that.
        const std::string said = rows::message(version->err, version->out);
        co_return fail(Errc::invalid,
                       "sbatch --version: " + (said.empty() ? parsed.error().message : said));
    }
    facts.version = *parsed;
    if (facts.version < kOldest) {
        co_return fail(Errc::invalid, "Slurm " + to_string(facts.version) +
                                          " is too old; 22.05 is the oldest that is supported");
    }
    arguments = strings(kShowConfigArguments);
    const auto config = co_await call("scontrol", std::move(arguments), options_.probe_timeout);
    LOCKSTEP_CO_TRY(config);
    auto known = parse_show_config(output_of(*config));
    LOCKSTEP_CO_TRY(known);
    facts.config = std::move(*known);
    arguments = strings(kShowPartitionArguments);
    const auto partitions = co_await call("scontrol", std::move(arguments), options_.probe_timeout);
    LOCKSTEP_CO_TRY(partitions);
    auto listed = parse_show_partitions(output_of(*partitions));
    LOCKSTEP_CO_TRY(listed);
    facts.partitions = std::move(*listed);
    if (!folders_["srun"].empty()) {
        arguments = {"--help"};
        const auto help = co_await call("srun", std::move(arguments), options_.probe_timeout);
        if (help && !help->timed_out && help->exit_status == 0) {
            facts.has_pyxis = help->out.find("--container-image") != std::string::npos;
        }
    }
    co_return facts;
}

Task<SubmitReply> SlurmCli::submit(std::string path) {
    std::vector<std::string> arguments{"--parsable", std::move(path)};
    const auto result = co_await call("sbatch", std::move(arguments), options_.submit_timeout);
    if (!result) {
        SubmitReply reply;
        reply.kind = SubmitReply::Kind::not_submitted;  // it never ran
        reply.message = result.error().message;
        co_return reply;
    }
    co_return parse_sbatch(output_of(*result));
}

Task<Result<JobTable>> SlurmCli::jobs() {
    const std::string fence = random_secret().substr(0, 24);
    std::vector<std::string> arguments = squeue_arguments(fence, options_.user);
    const auto result = co_await call("squeue", std::move(arguments), options_.query_timeout);
    LOCKSTEP_CO_TRY(result);
    co_return parse_squeue(output_of(*result), fence);
}

Task<Result<JobTable>> SlurmCli::history(std::string job_name, std::int64_t since) {
    std::vector<std::string> arguments = sacct_arguments(options_.user, since, job_name);
    const auto result = co_await call("sacct", std::move(arguments), options_.query_timeout);
    LOCKSTEP_CO_TRY(result);
    co_return parse_sacct(output_of(*result), options_.uid);
}

Task<Status> SlurmCli::cancel(std::int64_t id, std::string name) {
    std::vector<std::string> arguments{"--name=" + name, std::to_string(id)};
    const auto result = co_await call("scancel", std::move(arguments), options_.query_timeout);
    LOCKSTEP_CO_TRY(result);
    co_return scancel_status(output_of(*result));
}

Task<Result<SlurmJobDetail>> SlurmCli::detail(std::int64_t id, std::string name) {
    std::vector<std::string> arguments = show_job_arguments(id);
    const auto result = co_await call("scontrol", std::move(arguments), options_.query_timeout);
    LOCKSTEP_CO_TRY(result);
    co_return parse_show_job(output_of(*result), name);
}

Task<Result<std::optional<TestOnlyReply>>> SlurmCli::estimate(std::string script) {
    ProcessCommand command;
    command.argv = {folders_["sbatch"] + "/sbatch", "--test-only"};
    command.environment = environment(false);
    command.input = std::move(script);
    command.timeout = options_.estimate_timeout;
    const auto result = co_await run(std::move(command), "sbatch --test-only");
    LOCKSTEP_CO_TRY(result);
    auto reply = parse_test_only(output_of(*result));
    LOCKSTEP_CO_TRY(reply);
    co_return std::optional<TestOnlyReply>{std::move(*reply)};
}

Task<Status> SlurmCli::ping() {
    std::vector<std::string> arguments{"ping"};
    const auto result = co_await call("scontrol", std::move(arguments), options_.query_timeout);
    LOCKSTEP_CO_TRY(result);
    const auto controllers = parse_ping(output_of(*result));
    LOCKSTEP_CO_TRY(controllers);
    const bool up = std::any_of(controllers->begin(), controllers->end(),
                                [](const ControllerPing& one) { return one.up; });
    if (!up) {
        co_return fail(Errc::unavailable, "slurmctld does not answer");
    }
    co_return Status{};
}

Task<Result<NodeTable>> SlurmCli::nodes() {
    std::vector<std::string> arguments = sinfo_node_arguments();
    const auto result = co_await call("sinfo", std::move(arguments), options_.query_timeout);
    LOCKSTEP_CO_TRY(result);
    co_return parse_sinfo_nodes(output_of(*result));
}

}  // namespace lockstep
