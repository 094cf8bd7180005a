#include "job/agent/preflight/pair_tester.hpp"

#include "job/agent/preflight/helper_end.hpp"
#include "job/agent/preflight/nccl_tester.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kWords = 150;
constexpr HelperLimits kPairHelper{limits::kPairTestTimeout, kWords};

PairOutcome outcome_of(const Result<ProcessResult>& result) {
    if (!result) {
        return {-1, helper_unstarted(result.error(), kPairHelper),
                result.error().code == Errc::not_found};
    }
    if (result->timed_out) {
        return {-1, helper_end(*result, "", kPairHelper), false};
    }
    const auto json = parse_json(result->out);
    if (result->exit_status == 0 && json && json->is_object()) {
        std::vector<FieldError> errors;
        PairOutcome out;
        ObjectReader in{*json, "", errors};
        in.integer("ms", out.ms, 0, INT32_MAX);
        if (errors.empty() && out.ms >= 0) {
            return out;
        }
    }
    return {-1, helper_end(*result, "", kPairHelper), false};
}

}  // namespace

PairTester::PairTester(TaskGroup& tasks, Programs programs,
                       std::map<std::string, std::string> environment, Say say)
    : tasks_(tasks),
      runner_(tasks.io()),
      programs_(std::move(programs)),
      environment_(std::move(environment)),
      say_(std::move(say)) {}

std::int32_t PairTester::hold(const std::string& address) {
    address_ = address;
    if (!port_) {
        if (auto port = HeldPort::hold(address)) {
            port_ = std::move(*port);
        }
    }
    return port_ ? port_->number() : 0;
}

void PairTester::run(const wire::PairTest& test) {
    if (stopped_) {
        return;
    }
    runner_.kill_all();
    tasks_.spawn("pair test", this->test(test, ++turn_));
}

ProcessCommand PairTester::command_of(const Json& task) const {
    ProcessCommand out;
    out.argv = {programs_.train, "--pair-test"};
    for (const auto& [name, value] : environment_) {
        if (!name.starts_with("LOCKSTEP_") && !name.starts_with("SLURM_")) {
            out.environment.push_back(name + "=" + value);
        }
    }
    out.input = dump_json(task);  // not where everybody on the machine reads the token
    out.timeout = limits::kPairTestTimeout;
    return out;
}

Task<void> PairTester::test(wire::PairTest test, std::int64_t turn) {
    const auto task = parse_pair_task(test.task);
    PairOutcome outcome;
    if (!task) {
        outcome.problem = "its task was not understood: " + task.error().message.substr(0, kWords);
    } else {
        if (task->lead && port_) {
            port_->release();  // the program binds it
        }
        const ProcessCommand command =
            task->nccl ? nccl_test_command(programs_.nccl_test, nccl_environment_, test.task)
                       : command_of(test.task);
        const auto result = co_await runner_.run(command);
        if (turn != turn_ || stopped_) {
            co_return;
        }
        outcome = task->nccl ? nccl_test_outcome(result) : outcome_of(result);
        if (task->lead && port_) {
            if (auto again = HeldPort::hold(address_, port_->number())) {
                port_ = std::move(*again);
            }
        }
    }
    log::info("test in pairs", {{"round", test.round},
                                {"ms", outcome.ms},
                                {"problem", outcome.problem},
                                {"partner", task ? task->partner : ""}});
    wire::PairTested tested;
    tested.round = test.round;
    tested.ms = outcome.ms;
    tested.problem = outcome.problem;
    tested.absent = outcome.absent;
    if (task && task->nccl) {
        tested.nccl = to_json(outcome.nccl);
        log::info("test with NCCL", {{"gpus", outcome.nccl.ranks},
                                     {"bus_mbs", outcome.nccl.bus_mbs},
                                     {"latency_ns", outcome.nccl.latency_ns},
                                     {"version", outcome.nccl.version}});
    }
    say_(std::move(tested));
}

void PairTester::stop() {
    stopped_ = true;
    ++turn_;
    runner_.kill_all();
    port_.reset();
}

}  // namespace lockstep
