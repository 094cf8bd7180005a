// A scheduler in the fewest lines, as scheduler-integration/README.md explains it ("Adding a
// scheduler"): it has no queue and starts an attempt's agents at once, on this machine. A real one
// would ask its cluster where this starts processes. Linked into lockstepd in the place of
// daemon/lockstepd/make_scheduler.cpp; tests/integration/test_example_scheduler.py runs jobs on it.
#include "daemon/lockstepd/make_scheduler.hpp"
#include "job/async/asio.hpp"
#include "scheduler-integration/local/agent_process.hpp"

#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class ExampleScheduler final : public Scheduler {
  public:
    ExampleScheduler(net::io_context& io, std::string agent)
        : io_{io}, agent_{std::move(agent)}, tick_{io} {}

    // What the API, /metrics and messages call it.
    std::string_view name() const override { return "example"; }
    std::string_view title() const override { return "the example scheduler"; }
    bool is_one_machine() const override { return true; }

    // Refuses what can never run here, with the field to change.
    Result<Admission> admit(const JobSpec& spec) const override {
        if (spec.resources.gpus_per_node > 0) {
            return fail(field_errors({{"/resources/gpus_per_node", "there are none here"}}));
        }
        return Admission{};
    }

    // Hands the attempt over. It may be called again for the same attempt, also by the next daemon:
    // whoever has claimed a node already is left alone. A scheduler that could take an attempt
    // without our hearing of it (a connection that breaks) answers Handover::Kind::again first.
    Task<Handover> submit(AttemptRequest request) override {
        Handover out;
        Attempt& attempt = know(request);
        for (std::int32_t node = 0; node < attempt.nodes; ++node) {
            if (read_claim(attempt.directory, node).kind != ClaimState::Kind::unclaimed) {
                continue;
            }
            AgentCommand command;
            command.program = agent_;
            command.attempt_directory = attempt.directory;
            command.node_rank = node;
            command.node_name = "example" + std::to_string(node);
            auto started = start_agent(command);
            if (!started) {
                out.kind = Handover::Kind::wait;
                out.reason = started.error().message;
                co_return out;
            }
            attempt.agents[node] = std::move(*started);
        }
        out.kind = Handover::Kind::placed;
        out.id = attempt.id;
        co_return out;
    }

    // Takes up what an earlier daemon handed over, and starts nothing.
    Task<Result<bool>> adopt(AttemptRequest request) override {
        const Attempt& attempt = know(request);
        for (std::int32_t node = 0; node < attempt.nodes; ++node) {
            if (read_claim(attempt.directory, node).kind != ClaimState::Kind::unclaimed) {
                co_return true;
            }
        }
        attempts_.erase(key(request.job, request.attempt));
        co_return false;
    }

    // Three answers: a state, absent (there is no such attempt, and none can come), unreachable (it
    // cannot say now). Only the first two ever end a job.
    Task<Observation> poll(JobId job, std::int32_t number) override {
        Observation out;
        const auto found = attempts_.find(key(job, number));
        if (found == attempts_.end()) {
            out.kind = Observation::Kind::absent;
            co_return out;
        }
        Attempt& attempt = found->second;
        out.kind = Observation::Kind::state;
        out.state = AllocationState::ended;
        out.id = attempt.id;
        for (std::int32_t node = 0; node < attempt.nodes; ++node) {
            out.nodes.push_back("example" + std::to_string(node));
            const ClaimState claim = read_claim(attempt.directory, node);
            const bool runs = claim.kind == ClaimState::Kind::alive ||
                              (claim.kind == ClaimState::Kind::unclaimed && !gone(attempt, node));
            if (runs) {
                out.state = AllocationState::running;
            } else if (!claim.has_result) {
                out.lost_nodes.push_back(node);
            }
        }
        if (out.state == AllocationState::running) {
            out.lost_nodes.clear();  // told when all is over
        }
        co_return out;
    }

    // Asks the allocation to end; the agents end their ranks. Absent is success.
    Task<Status> cancel(JobId job, std::int32_t number) override {
        const auto found = attempts_.find(key(job, number));
        if (found != attempts_.end()) {
            for (std::int32_t node = 0; node < found->second.nodes; ++node) {
                if (const auto agent = adopt_agent(found->second.directory, node)) {
                    signal_agent(agent->pidfd.get(), SIGTERM);
                }
            }
        }
        co_return Status{};
    }

    void over(const JobId& job, std::int32_t number) override { attempts_.erase(key(job, number)); }

    // Says that poll() may have changed. A real driver does so when its cluster tells; this looks.
    void on_change(Changed changed) override { changed_ = std::move(changed); }
    Task<Status> begin() override {
        net::co_spawn(io_, watch(), net::detached);
        co_return Status{};
    }
    Task<void> stop() override {
        stopped_ = true;
        tick_.cancel();
        co_return;
    }

    Cluster cluster() override {
        Cluster out;
        out.name = "example";
        return out;
    }
    Task<Status> ping() override { co_return Status{}; }

  private:
    struct Attempt {
        JobId job;
        std::int32_t number = 0;
        std::int32_t nodes = 0;
        std::string id;
        std::string directory;
        std::map<std::int32_t, AgentProcess> agents;  // that this daemon has started
    };

    static std::string key(const JobId& job, std::int32_t attempt) {
        return job.value + "/" + std::to_string(attempt);
    }
    Attempt& know(const AttemptRequest& request) {
        Attempt& attempt = attempts_[key(request.job, request.attempt)];
        attempt.job = request.job;
        attempt.number = request.attempt;
        attempt.nodes = request.resources.allocated_nodes();
        attempt.id = "example-" + key(request.job, request.attempt);
        attempt.directory = request.directory;
        return attempt;
    }
    // Whether an agent ended before it could claim its node.
    static bool gone(const Attempt& attempt, std::int32_t node) {
        const auto agent = attempt.agents.find(node);
        return agent == attempt.agents.end() || ::kill(agent->second.pid, 0) != 0;
    }
    Task<void> watch() {
        while (!stopped_) {
            tick_.expires_after(std::chrono::milliseconds{200});
            ErrorCode ec;
            co_await tick_.async_wait(net::redirect_error(net::use_awaitable, ec));
            for (const auto& [name, attempt] : attempts_) {
                changed_(attempt.job, attempt.number);
            }
        }
    }

    net::io_context& io_;
    std::string agent_;
    net::steady_timer tick_;
    Changed changed_;
    std::map<std::string, Attempt> attempts_;
    bool stopped_ = false;
};

}  // namespace

Status plan_scheduler(const DaemonSettings&) {
    return {};
}

Result<std::unique_ptr<Scheduler>> make_scheduler(net::io_context& io, const Clock&,
                                                  const DaemonSettings& settings, SlurmMetrics&,
                                                  const std::filesystem::path&) {
    ::signal(SIGCHLD, SIG_IGN);  // nobody waits for the agents: they outlive the daemon
    return std::make_unique<ExampleScheduler>(io, settings.agent_path);
}

}  // namespace lockstep
