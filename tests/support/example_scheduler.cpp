// A scheduler in the fewest lines, as scheduler-integration/README.md explains it ("Adding a
// scheduler"): it has no queue and starts an attempt's agents at once, on this machine. A real one
// would ask its cluster where this starts processes. Linked into lockstepd in the place of
// daemon/lockstepd/make_scheduler.cpp; tests/integration/test_example_scheduler.py runs jobs on it.
#include "daemon/lockstepd/make_scheduler.hpp"
#include "job/async/asio.hpp"
#include "job/async/sleep.hpp"
#include "job/async/task_group.hpp"
#include "job/base/limits.hpp"
#include "scheduler-integration/local/agent_process.hpp"

#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Agents give their ranks kStopGrace; whoever takes longer is killed.
constexpr auto kKillAfter = limits::kStopGrace + std::chrono::seconds{5};

class ExampleScheduler final : public Scheduler {
  public:
    ExampleScheduler(net::io_context& io, std::string agent)
        : agent_{std::move(agent)}, tick_{io}, tasks_{io} {}

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
    // whoever has a node already is left alone, and who is about to claim it if this daemon has
    // started it. Two agents for one node are one too many, but no more: the first that claims it
    // has it, the other one is refused and ends. A scheduler that could take an attempt without our
    // hearing of it (a connection that breaks) answers Handover::Kind::again first.
    Task<Handover> submit(AttemptRequest request) override {
        Handover out;
        Attempt& attempt = know(request);
        for (std::int32_t node = 0; node < attempt.nodes; ++node) {
            if (child_lives(attempt, node) ||
                read_claim(attempt.directory, node).kind != ClaimState::Kind::unclaimed) {
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
        Attempt& attempt = know(request);
        for (std::int32_t node = 0; node < attempt.nodes; ++node) {
            if (child_lives(attempt, node) ||
                read_claim(attempt.directory, node).kind != ClaimState::Kind::unclaimed) {
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
            if (runs(attempt, node)) {
                out.state = AllocationState::running;
            } else if (!read_claim(attempt.directory, node).has_result) {
                out.lost_nodes.push_back(node);
            }
        }
        if (out.state == AllocationState::running) {
            out.lost_nodes.clear();  // told when all is over
        }
        co_return out;
    }

    // Asks the allocation to end, by force after a while; the agents end their ranks. Absent is
    // success.
    Task<Status> cancel(JobId job, std::int32_t number) override {
        const auto found = attempts_.find(key(job, number));
        if (found != attempts_.end()) {
            signal_all(found->second, SIGTERM);
            end_soon(found->second);
        }
        co_return Status{};
    }

    // The job has ended, and its agents end by themselves. Known until they have: they are children
    // that somebody must wait for.
    void over(const JobId& job, std::int32_t number) override {
        const auto found = attempts_.find(key(job, number));
        if (found != attempts_.end()) {
            found->second.over = true;
            end_soon(found->second);
        }
    }

    // Says that poll() may have changed. A real driver does so when its cluster tells; this looks.
    void on_change(Changed changed) override { changed_ = std::move(changed); }
    Task<Status> begin() override {
        tasks_.spawn("example scheduler", watch());
        co_return Status{};
    }
    // Agents go on; what this object has under way has ended when it returns.
    Task<void> stop() override {
        stopped_ = true;
        tick_.cancel();
        co_await tasks_.join();
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
        std::map<std::int32_t, AgentProcess> agents;  // that this daemon has started, till they end
        std::optional<std::chrono::steady_clock::time_point> kill_at;
        bool over = false;
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
    // Whether the agent that this daemon has started for the node lives. By its pidfd, which never
    // means another process, and waited for by name: lockstepd has other children, whose ends are
    // for others to hear of.
    static bool child_lives(Attempt& attempt, std::int32_t node) {
        const auto agent = attempt.agents.find(node);
        if (agent == attempt.agents.end()) {
            return false;
        }
        siginfo_t info{};
        const auto pidfd = static_cast<id_t>(agent->second.pidfd.get());
        if (::waitid(P_PIDFD, pidfd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0) {
            return true;
        }
        attempt.agents.erase(agent);
        return false;
    }
    // An agent may not have claimed its node yet, or be an earlier daemon's.
    static bool runs(Attempt& attempt, std::int32_t node) {
        return child_lives(attempt, node) ||
               read_claim(attempt.directory, node).kind == ClaimState::Kind::alive;
    }
    static void signal_all(Attempt& attempt, int number) {
        for (std::int32_t node = 0; node < attempt.nodes; ++node) {
            if (child_lives(attempt, node)) {
                signal_agent(attempt.agents.at(node).pidfd.get(), number);
            } else if (const auto agent = adopt_agent(attempt.directory, node)) {
                signal_agent(agent->pidfd.get(), number);
            }
        }
    }
    static void end_soon(Attempt& attempt) {
        if (!attempt.kill_at) {
            attempt.kill_at = std::chrono::steady_clock::now() + kKillAfter;
        }
    }
    // Whether anything of it is left.
    static bool tend(Attempt& attempt) {
        bool left = false;
        for (std::int32_t node = 0; node < attempt.nodes; ++node) {
            left = runs(attempt, node) || left;
        }
        if (left && attempt.kill_at && std::chrono::steady_clock::now() >= *attempt.kill_at) {
            signal_all(attempt, SIGKILL);
        }
        return left;
    }
    Task<void> watch() {
        while (!stopped_) {
            co_await sleep_on(tick_, std::chrono::milliseconds{200});
            std::vector<std::pair<JobId, std::int32_t>> changed;
            for (auto at = attempts_.begin(); !stopped_ && at != attempts_.end();) {
                Attempt& attempt = at->second;
                const bool left = tend(attempt);
                if (!attempt.over) {
                    changed.emplace_back(attempt.job, attempt.number);
                }
                at = attempt.over && !left ? attempts_.erase(at) : std::next(at);
            }
            // Afterwards, because whoever hears of it may ask for another attempt.
            for (const auto& [job, number] : changed) {
                changed_(job, number);
            }
        }
    }

    std::string agent_;
    net::steady_timer tick_;
    Changed changed_;
    std::map<std::string, Attempt> attempts_;
    bool stopped_ = false;
    TaskGroup tasks_;
};

}  // namespace

Status plan_scheduler(const DaemonSettings&) {
    return {};
}

Result<std::unique_ptr<Scheduler>> make_scheduler(net::io_context& io, const Clock&,
                                                  const DaemonSettings& settings, SlurmMetrics&,
                                                  const std::filesystem::path&) {
    return std::make_unique<ExampleScheduler>(io, settings.agent_path);
}

}  // namespace lockstep
