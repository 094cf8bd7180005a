#include "job/agent/preflight/preflight.hpp"

#include "job/agent/preflight/gpu_tester.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <utility>

namespace lockstep {
namespace {

// What the test trains: seconds on one core, the same on every node.
TrainConfig test_config(const std::filesystem::path& folder) {
    TrainConfig out;
    out.strategy = TrainStrategy::single;
    out.devices = TrainDevices::cpu;  // a GPU that is visible may be another job's
    out.epochs = 1;
    out.max_steps = 30;
    out.train_samples = 2'000;
    out.test_samples = 100;
    out.dataset_path = folder.string();
    out.checkpoint_every_steps = 0;
    return out;
}

// Of the node, and nothing of the attempt or the agent.
std::vector<std::string> test_environment(const std::map<std::string, std::string>& environment) {
    std::vector<std::string> out;
    for (const auto& [name, value] : environment) {
        if (!name.starts_with("LOCKSTEP_") && !name.starts_with("SLURM_")) {
            out.push_back(name + "=" + value);
        }
    }
    return out;
}

}  // namespace

Preflight::Preflight(TaskGroup& tasks, Options options, Say say)
    : tasks_(tasks),
      options_(std::move(options)),
      say_(std::move(say)),
      peers_(tasks, options_.slot, options_.ticket),
      errands_(tasks.io()),
      runner_(tasks.io()),
      pairs_(tasks, {options_.train_program, options_.nccl_test_program}, options_.environment,
             [this](wire::PairTested tested) { say_(std::move(tested)); }) {}

void Preflight::begin(const Start& start) {
    if (stopped_) {
        return;
    }
    if (start_) {
        if (done_) {
            say_checked();
        }
        return;
    }
    start_ = start;
    looking_ = true;
    tasks_.spawn("preflight", gather());
}

void Preflight::add_errands() {
    const auto path = [this](std::string_view use, std::string where) {
        const bool needed = use == kPathAttempt || use == kPathWorking || use == kPathCheckpoint;
        paths_.push_back({std::string{use}, std::move(where)});
        const PathFact& added = paths_.back();
        path_errands_.push_back(
            errands_.add([one = added] { return look_at_path(one); },
                         needed ? options_.needed_patience : options_.patience));
    };
    path(kPathAttempt, options_.attempt_directory.string());
    if (!start_->spec.working_directory.empty()) {
        path(kPathWorking, start_->spec.working_directory);
    }
    if (!start_->checkpoint_directory.empty()) {
        path(kPathCheckpoint, start_->checkpoint_directory);
    }
    path(kPathShm, (options_.root / "dev/shm").string());
    versions_ = errands_.add(
        [this] {
            return look_at_versions(options_.root, start_->spec,
                                    base_environment(start_->spec, options_.environment),
                                    options_.train_program);
        },
        options_.patience);
    gpus_ = errands_.add([this] { return look_at_gpus(options_.gpus, options_.root); },
                         options_.gpu_patience);
    if (start_->spec.resources.allocated_nodes() > 1) {
        facts_.hostname = host_name();
        hostname_ = errands_.add([] { return look_at_hostname(); }, options_.patience);
    }
    add_device_errands();
    // Last: those that hang take the time of what follows.
    for (std::string& mount : network_mounts(options_.root)) {
        path(kPathMount, std::move(mount));
    }
}

// Of a job that wants no GPUs nobody waits for their driver, but for who asks about the node.
void Preflight::add_device_errands() {
    const JobSpec& spec = start_->spec;
    const bool asked = spec.preflight.mode == PreflightMode::only;
    if (asked || spec.resources.allocated_nodes() > 1) {
        std::vector<std::string> interfaces;
        for (const AddressFact& one : facts_.addresses) {
            interfaces.push_back(one.interface);
        }
        constexpr const char* kSetting = "NCCL_IB_HCA";
        const auto& from =
            spec.environment.contains(kSetting) ? spec.environment : options_.environment;
        const auto found = from.find(kSetting);
        const std::string setting = found == from.end() ? "" : found->second;
        nics_ = errands_.add([this, interfaces,
                              setting] { return look_at_nics(options_.root, interfaces, setting); },
                             options_.patience);
    }
    std::error_code ec;
    if ((asked || spec.resources.gpus_per_node > 0) &&
        std::filesystem::exists(options_.root / "proc/driver/nvidia/version", ec)) {
        health_ =
            errands_.add([this] { return look_at_health(options_.root, options_.environment); },
                         options_.health_patience);
    }
}

void Preflight::take_device_answers() {
    if (const auto* answer = nics_ ? &errands_.answer(*nics_) : nullptr; answer && *answer) {
        take_nics(**answer, facts_.nics);
    }
    if (!health_) {
        return;
    }
    if (const auto& answer = errands_.answer(*health_)) {
        take_health(*answer, facts_.gpu);
    } else if (errands_.asked(*health_)) {
        // A driver that nothing keeps awake may be as slow: that is no reason to fail.
        facts_.gpu.doubts.push_back("NVML has not answered within " +
                                    std::to_string(options_.health_patience.count() / 1000) +
                                    " s: memory errors, slowdowns and NVLinks were not looked at");
    }
}

// What the time did not suffice to ask is not known, and no reason to find fault.
void Preflight::take_answers() {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (!errands_.asked(path_errands_[i])) {
            continue;
        }
        const auto& answer = errands_.answer(path_errands_[i]);
        paths_[i].answered = answer.has_value();
        if (answer) {
            take_path(*answer, paths_[i]);
        }
        facts_.paths.push_back(paths_[i]);
    }
    if (const auto& answer = errands_.answer(versions_)) {
        take_versions(*answer, facts_);
    }
    if (const auto& answer = errands_.answer(gpus_)) {
        take_gpus(*answer, facts_.gpu);
    } else if (errands_.asked(gpus_)) {
        facts_.gpu.driver = true;
        facts_.gpu.faults.emplace_back("the driver does not answer");
    }
    take_device_answers();
    if (hostname_ && !errands_.asked(*hostname_)) {
        facts_.hostname.clear();
    } else if (hostname_) {
        const auto& answer = errands_.answer(*hostname_);
        facts_.hostname_answered = answer.has_value();
        if (answer) {
            take_hostname(*answer, facts_);
        }
    }
}

Task<void> Preflight::gather() {
    const auto began = std::chrono::steady_clock::now();
    read_limits(options_.root, facts_);
    facts_.clock_known = true;
    facts_.clock_offset_ms = start_->clock_offset_ms;
    facts_.clock_error_ms = start_->clock_error_ms;
    facts_.ports_problem = start_->ports_problem.substr(0, 200);
    facts_.ports_needed = start_->ports_needed;
    if (start_->spec.resources.allocated_nodes() > 1) {
        facts_.addresses = read_addresses(start_->address);
        facts_.probe_port = peers_.listen(start_->address);
    }
    if (start_->spec.preflight.pair_test) {
        facts_.pair_port = pairs_.hold(start_->address);
    }
    if (start_->spec.preflight.nccl_test) {
        facts_.nccl_port = pairs_.hold(start_->address);
        auto environment = base_environment(start_->spec, options_.environment);
        for (const auto& [name, value] : start_->spec.environment) {
            environment[name] = value;
        }
        pairs_.set_nccl_environment(std::move(environment));
    }
    add_errands();
    co_await errands_.run(options_.budget);
    looking_ = false;
    if (stopped_) {
        co_return;
    }
    take_answers();
    if (start_->spec.preflight.cpu_test) {
        co_await test_cpus();
    }
    if (!stopped_ && start_->spec.preflight.gpu_test && start_->spec.resources.gpus_per_node > 0) {
        co_await test_gpus();
    }
    if (stopped_) {
        co_return;
    }
    done_ = true;
    log::info("pre-flight of this node",
              {{"ms", std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::steady_clock::now() - began)
                          .count()}});
    say_checked();
}

// The native trainer alone on this node, as one rank: it must end well, and the daemon compares how
// long it took.
Task<void> Preflight::test_cpus() {
    const auto folder = options_.attempt_directory;
    const auto config = folder / ("preflight-" + std::to_string(options_.slot) + ".json");
    const auto checkpoints = folder / ("preflight-" + std::to_string(options_.slot));
    const auto made = make_private_directories(checkpoints);
    const auto written =
        !made
            ? made
            : write_file_atomic(config, dump_json_pretty(to_json(test_config(checkpoints))) + "\n");
    if (!written) {
        facts_.cpu_test_problem = written.error().message.substr(0, 200);
        co_return;
    }
    ProcessCommand command;
    command.argv = {options_.train_program, config.string()};
    command.environment = test_environment(options_.environment);
    command.environment.push_back("LOCKSTEP_TRAIN_CONFIG=" + config.string());
    command.environment.push_back("LOCKSTEP_CHECKPOINT_DIR=" + checkpoints.string());
    command.directory = folder.string();
    command.timeout = limits::kCpuTestTimeout;
    const auto result = co_await runner_.run(command);
    if (!result) {
        facts_.cpu_test_problem = result.error().message.substr(0, 200);
        co_return;
    }
    facts_.cpu_test_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(result->took).count();
    if (result->timed_out) {
        facts_.cpu_test_problem =
            "not over within " + std::to_string(limits::kCpuTestTimeout.count()) + " s";
    } else if (result->exit_status != 0) {
        const std::string tail = printable(trim(result->err));
        facts_.cpu_test_problem =
            (result->signal ? "ended by signal " + std::to_string(*result->signal)
                            : "exit code " + std::to_string(result->exit_status.value_or(-1))) +
            ": " + tail.substr(tail.size() - std::min<std::size_t>(tail.size(), 150));
    }
    std::error_code ignored;
    std::filesystem::remove(config, ignored);
    std::filesystem::remove_all(checkpoints, ignored);
}

Task<void> Preflight::test_gpus() {
    const auto result = co_await runner_.run(
        gpu_test_command(options_.gpu_test_program, test_environment(options_.environment)));
    facts_.gpu_test = gpu_test_facts(result);
    log::info(
        "test of GPUs",
        {{"gpus", facts_.gpu_test.gpus.size()},
         {"ms", result ? std::chrono::duration_cast<std::chrono::milliseconds>(result->took).count()
                       : -1},
         {"problem", facts_.gpu_test.problem}});
}

void Preflight::say_checked() {
    wire::Checked checked;
    checked.facts = to_json(facts_);
    say_(std::move(checked));
}

void Preflight::probe(const wire::Probe& probe) {
    auto peers = parse_probe_peers(probe.peers);
    if (!peers || stopped_) {
        log::warn("the daemon's PROBE was not understood");
        return;
    }
    const std::int32_t round = probe.round;
    peers_.probe(std::move(*peers), [this, round](std::vector<ProbeResult> results) {
        wire::Probed probed;
        probed.round = round;
        probed.results = to_json(results);
        say_(std::move(probed));
    });
}

void Preflight::stop() {
    stopped_ = true;
    peers_.stop();
    errands_.cancel();
    runner_.kill_all();
    pairs_.stop();
}

}  // namespace lockstep
