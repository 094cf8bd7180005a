// size: one class, from submit() to the end of every agent; the pure part is in ledger.hpp
#include "scheduler-integration/local/local_scheduler.hpp"

#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

constexpr int kClaimedElsewhere = 3;  // exit code of an agent that found its node claimed

std::string id_of(const JobId& job, std::int32_t attempt) {
    return "local-" + job.value + "-a" + std::to_string(attempt);
}

bool is_claimed(const ClaimState& claim) {
    return claim.kind != ClaimState::Kind::unclaimed;
}

bool is_on_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    const std::vector<std::string> folders = split(path != nullptr ? path : "/usr/bin:/bin", ':');
    return std::any_of(folders.begin(), folders.end(), [&](const std::string& folder) {
        return !folder.empty() && ::access((folder + "/" + program).c_str(), X_OK) == 0;
    });
}

// Which GPUs each node of an attempt was given, beside its claims: a daemon that takes the attempt
// up must not give them to another. One name a line.
constexpr const char* kGpuFile = "local-gpus";
constexpr std::size_t kGpuFileBytes = 1U << 20U;

std::vector<std::string> read_gpus(const std::filesystem::path& directory) {
    std::vector<std::string> out;
    for (std::string& line :
         split(read_file(directory / kGpuFile, kGpuFileBytes).value_or(""), '\n')) {
        if (!line.empty()) {
            out.push_back(std::move(line));
        }
    }
    return out;
}

Status write_gpus(const std::filesystem::path& directory, const std::vector<std::string>& gpus) {
    std::string text;
    for (const std::string& gpu : gpus) {
        text += gpu + "\n";
    }
    return gpus.empty() ? Status{} : write_file_atomic(directory / kGpuFile, text);
}

std::string how_it_ended(const siginfo_t& info) {
    if (info.si_code == CLD_EXITED) {
        return "exited with code " + std::to_string(info.si_status);
    }
    return "was ended by signal " + std::to_string(info.si_status) + " (" +
           ::strsignal(info.si_status) + ")";
}

}  // namespace

struct LocalScheduler::Agent {
    explicit Agent(net::io_context& io) : process(io), again_timer(io) {}
    net::posix::stream_descriptor process;  // pidfd; closed when there is none
    pid_t pid = -1;
    bool child = false;  // started by this daemon: to be reaped
    bool ended = false;
    bool lost = false;   // ended without a result
    bool waits = false;  // its keeper may be starting it again
    net::steady_timer again_timer;
};

struct LocalScheduler::Attempt {
    enum class State { waiting, running, ended };
    explicit Attempt(net::io_context& io) : kill_timer(io) {}
    std::string id;
    AttemptRequest request;
    State state = State::waiting;
    std::vector<std::string> nodes;
    std::vector<Agent> agents;
    std::string message;
    bool cancelled = false;
    bool unwatched = false;  // all of its agents had ended when it was taken up
    net::steady_timer kill_timer;
};

LocalScheduler::LocalScheduler(net::io_context& io, Options options)
    : io_(io),
      options_(std::move(options)),
      ledger_(options_.capacity ? *options_.capacity : read_machine()),
      host_(host_name()),
      tasks_(io) {}

LocalScheduler::~LocalScheduler() = default;

Result<Admission> LocalScheduler::admit(const JobSpec& spec) const {
    auto warnings = ledger_.admit(spec.resources);
    LOCKSTEP_TRY(warnings);
    if (spec.launch == Launch::task) {
        return fail(field_errors(
            {{"/launch",
              "task needs Slurm, whose srun starts the ranks: this daemon starts jobs on "
              "its own machine"}}));
    }
    if (spec.submission == Submission::manual) {
        return fail(field_errors(
            {{"/submission", "manual needs Slurm: this daemon starts jobs on its own machine"}}));
    }
    if (spec.container.runtime == ContainerRuntime::pyxis) {
        return fail(field_errors({{"/container/runtime", "pyxis needs Slurm: use apptainer"}}));
    }
    if (spec.container.runtime == ContainerRuntime::apptainer && !is_on_path("apptainer")) {
        return fail(
            field_errors({{"/container/runtime", "apptainer is not installed on this machine"}}));
    }
    SlurmSpec rest = spec.slurm;
    rest.partition.clear();
    if (!spec.slurm.partition.empty()) {
        warnings->push_back("partition " + spec.slurm.partition +
                            " has no effect: the local scheduler has no partitions, all jobs run "
                            "on this machine");
    }
    if (!rest.empty()) {
        warnings->push_back("slurm has no effect: jobs run on this machine, not on Slurm");
    }
    if (spec.checkpoint.seconds_before_timeout > 0) {
        warnings->push_back("checkpoint.seconds_before_timeout has no effect without Slurm");
    }
    return Admission{std::move(*warnings)};
}

LocalScheduler::AttemptPointer LocalScheduler::find(const JobId& job, std::int32_t attempt) const {
    const auto found = attempts_.find(id_of(job, attempt));
    return found == attempts_.end() ? nullptr : found->second;
}

// A new attempt, and what its directory says of each node.
std::pair<LocalScheduler::AttemptPointer, std::vector<ClaimState>> LocalScheduler::make(
    AttemptRequest request) {
    auto attempt = std::make_shared<Attempt>(io_);
    attempt->id = id_of(request.job, request.attempt);
    attempt->request = std::move(request);
    const std::int32_t nodes = attempt->request.resources.allocated_nodes();
    std::vector<ClaimState> claims;
    for (std::int32_t node = 0; node < nodes; ++node) {
        // Names tell nodes apart where several share this machine.
        attempt->nodes.push_back(nodes == 1 ? host_ : host_ + "-n" + std::to_string(node));
        attempt->agents.emplace_back(io_);
        claims.push_back(read_claim(attempt->request.directory, node));
    }
    return {std::move(attempt), std::move(claims)};
}

Task<Handover> LocalScheduler::submit(AttemptRequest request) {
    Handover out;
    out.kind = Handover::Kind::placed;
    out.id = id_of(request.job, request.attempt);
    if (attempts_.count(out.id) != 0) {
        co_return out;
    }
    const bool follows = !request.follow_only.empty();
    const auto [attempt, claims] = make(std::move(request));
    const bool claimed = std::any_of(claims.begin(), claims.end(), is_claimed);
    if (follows && !claimed) {
        out.kind = Handover::Kind::refused;
        out.reason = "no agent of it is on this machine; " + attempt->request.follow_only;
        co_return out;
    }
    if (!claimed) {
        // The machine may have lost a GPU or memory since the job was taken, or lockstepd has begun
        // before the driver was loaded. It waits outside the queue: nobody overtakes the front, and
        // there it would hold up everybody.
        if (const auto fits = ledger_.admit(attempt->request.resources); !fits) {
            out.kind = Handover::Kind::wait;
            out.reason = "this machine has less than it had when lockstepd took the job: " +
                         fits.error().message;
            co_return out;
        }
    }
    attempts_[out.id] = attempt;
    if (claimed) {
        take_up(*attempt, claims, !follows);
        // Those of a copy's original may be there, or elsewhere: another attempt is not its to
        // begin. One whose missing agents cannot be started ended under our eyes.
        attempt->unwatched = !follows && attempt->state == Attempt::State::ended &&
                             std::all_of(claims.begin(), claims.end(), is_claimed);
    } else {
        ledger_.enqueue(out.id, ledger_.need(attempt->request.resources));
    }
    start_waiting();
    co_return out;
}

Task<Result<bool>> LocalScheduler::adopt(AttemptRequest request) {
    const std::string id = id_of(request.job, request.attempt);
    if (attempts_.count(id) != 0) {
        co_return true;
    }
    const auto [attempt, claims] = make(std::move(request));
    if (std::none_of(claims.begin(), claims.end(), is_claimed)) {
        co_return false;
    }
    attempts_[id] = attempt;
    take_up(*attempt, claims, false);
    co_return true;
}

// An earlier daemon started this attempt. Live processes go on, even if the ledger has no room for
// them.
void LocalScheduler::take_up(Attempt& attempt, const std::vector<ClaimState>& claims,
                             bool start_missing) {
    ledger_.occupy(attempt.id, ledger_.need(attempt.request.resources),
                   read_gpus(attempt.request.directory));
    attempt.state = Attempt::State::running;
    log::info("attempt adopted", {{"job", attempt.request.job.value}, {"id", attempt.id}});
    for (std::size_t i = 0; i < claims.size(); ++i) {
        const auto node = static_cast<std::int32_t>(i);
        const auto& directory = attempt.request.directory;
        if (!is_claimed(claims[i]) && !start_missing) {
            // An agent that is about to claim is refused when it connects.
            agent_ended(attempt, node, "had not claimed its node");
        } else if (!is_claimed(claims[i])) {
            // The daemon died between two starts (or the agent has not claimed yet: then the
            // second one ends at once).
            start_node(attempt, node);
        } else if (auto process = adopt_agent(directory, node)) {
            watch_process(attempt, node, std::move(*process), false);
        } else if (read_claim(directory, node).kind == ClaimState::Kind::ended) {
            agent_ended(attempt, node, "had ended when the daemon started");
        }
        // Otherwise it lives but cannot be watched: check_locks() looks at every poll.
    }
    end_if_over(attempt);
}

void LocalScheduler::start(Attempt& attempt) {
    attempt.state = Attempt::State::running;
    const Status kept = write_gpus(attempt.request.directory, ledger_.gpus_of(attempt.id));
    for (std::int32_t node = 0; node < attempt.request.resources.allocated_nodes(); ++node) {
        if (kept) {
            start_node(attempt, node);
        } else {
            agent_ended(attempt, node, "could not be started: " + kept.error().message);
        }
    }
    log::info("attempt started", {{"job", attempt.request.job.value},
                                  {"id", attempt.id},
                                  {"nodes", attempt.request.resources.allocated_nodes()}});
    announce(attempt);
    end_if_over(attempt);
}

void LocalScheduler::start_node(Attempt& attempt, std::int32_t node_rank) {
    AgentCommand command;
    command.program = options_.agent_program;
    command.attempt_directory = attempt.request.directory;
    command.node_rank = node_rank;
    command.node_name = attempt.nodes[static_cast<std::size_t>(node_rank)];
    command.extra = options_.agent_arguments;
    if (attempt.request.resources.is_elastic()) {
        command.extra.insert(command.extra.end(), {"--restarts", std::to_string(limits::kReturns)});
    }
    command.gpus_given = ledger_.capacity().gpus > 0;
    const auto gpus = ledger_.gpus_of(attempt.id);
    const auto per_node = static_cast<std::size_t>(attempt.request.resources.gpus_per_node);
    const std::size_t first = static_cast<std::size_t>(node_rank) * per_node;
    for (std::size_t i = first; i < std::min(first + per_node, gpus.size()); ++i) {
        command.gpus += (command.gpus.empty() ? "" : ",") + gpus[i];
    }
    auto process = start_agent(command);
    if (!process) {
        agent_ended(attempt, node_rank, "could not be started: " + process.error().message);
        return;
    }
    watch_process(attempt, node_rank, std::move(*process), true);
}

void LocalScheduler::watch_process(Attempt& attempt, std::int32_t node_rank, AgentProcess process,
                                   bool child) {
    Agent& agent = attempt.agents[static_cast<std::size_t>(node_rank)];
    agent.pid = process.pid;
    agent.child = child;
    agent.process.assign(process.pidfd.release());
    tasks_.spawn("local agent", watch(attempts_.at(attempt.id), node_rank));
}

Task<void> LocalScheduler::watch(AttemptPointer attempt, std::int32_t node_rank) {
    Agent& agent = attempt->agents[static_cast<std::size_t>(node_rank)];
    ErrorCode ec;
    co_await agent.process.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    if (ec) {
        co_return;
    }
    std::string how = "ended";
    if (agent.child) {
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(agent.pid), &info, WEXITED | WNOHANG);
        how = how_it_ended(info);
        if (info.si_code == CLD_EXITED && info.si_status == kClaimedElsewhere) {
            // Somebody else's agent has this node: that one is the attempt's.
            if (auto other = adopt_agent(attempt->request.directory, node_rank)) {
                agent.process.close(ec);
                watch_process(*attempt, node_rank, std::move(*other), false);
                co_return;
            }
        }
    }
    agent.process.close(ec);
    // One that an earlier daemon started is watched itself, not the keeper above it, which may be
    // starting it again.
    if (!agent.child && attempt->request.resources.is_elastic()) {
        agent.waits = true;
        co_await sleep_on(agent.again_timer, limits::kKeeperPatience);
        agent.waits = false;
        auto again = stopped_ ? std::nullopt : adopt_agent(attempt->request.directory, node_rank);
        if (again) {
            watch_process(*attempt, node_rank, std::move(*again), false);
        }
        if (stopped_ || again) {
            co_return;
        }
    }
    agent_ended(*attempt, node_rank, how);
    end_if_over(*attempt);
}

void LocalScheduler::agent_ended(Attempt& attempt, std::int32_t node_rank, const std::string& how) {
    Agent& agent = attempt.agents[static_cast<std::size_t>(node_rank)];
    agent.ended = true;
    agent.lost = !read_claim(attempt.request.directory, node_rank).has_result;
    if (agent.lost) {
        const std::string what = "the agent of " +
                                 attempt.nodes[static_cast<std::size_t>(node_rank)] + " " + how +
                                 " and left no result";
        attempt.message += (attempt.message.empty() ? "" : "; ") + what;
        log::warn("agent lost",
                  {{"job", attempt.request.job.value}, {"id", attempt.id}, {"what", what}});
    }
    announce(attempt);
}

void LocalScheduler::check_locks(Attempt& attempt) {
    for (std::size_t i = 0; i < attempt.agents.size(); ++i) {
        const auto node = static_cast<std::int32_t>(i);
        if (!attempt.agents[i].ended && !attempt.agents[i].waits &&
            !attempt.agents[i].process.is_open() &&
            read_claim(attempt.request.directory, node).kind != ClaimState::Kind::alive) {
            agent_ended(attempt, node, "ended");
        }
    }
    end_if_over(attempt);
}

void LocalScheduler::end_if_over(Attempt& attempt) {
    const bool over = std::all_of(attempt.agents.begin(), attempt.agents.end(),
                                  [](const Agent& agent) { return agent.ended; });
    if (over && attempt.state == Attempt::State::running) {
        end(attempt, attempt.message.empty() ? "every agent has ended" : attempt.message);
    }
}

void LocalScheduler::end(Attempt& attempt, std::string message) {
    attempt.state = Attempt::State::ended;
    attempt.message = std::move(message);
    attempt.kill_timer.cancel();
    ledger_.release(attempt.id);
    ended_.push_back(attempt.id);
    announce(attempt);
    if (ended_.size() > limits::kEndedAttempts) {
        attempts_.erase(ended_.front());
        ended_.pop_front();
    }
    // Not at once: the caller may be iterating over what this would change.
    net::post(io_, [this] {
        if (!stopped_) {
            start_waiting();
        }
    });
}

void LocalScheduler::taking_up() {
    taking_up_ = true;
    net::post(io_, [this] {
        taking_up_ = false;
        if (!stopped_) {
            start_waiting();
        }
    });
}

void LocalScheduler::start_waiting() {
    if (taking_up_) {
        return;  // one that comes first would get the GPUs of one that runs and comes later
    }
    for (std::string id = ledger_.take_next(); !id.empty(); id = ledger_.take_next()) {
        start(*attempts_.at(id));
    }
}

// Later, so that the listener may call back into this object.
void LocalScheduler::announce(const Attempt& attempt) {
    net::post(io_, [this, job = attempt.request.job, number = attempt.request.attempt] {
        if (changed_ && !stopped_) {
            changed_(job, number);
        }
    });
}

Task<Observation> LocalScheduler::poll(JobId job, std::int32_t attempt) {
    Observation out;
    const auto found = find(job, attempt);
    if (!found) {
        out.kind = Observation::Kind::absent;
        co_return out;
    }
    if (found->state == Attempt::State::running) {
        check_locks(*found);
    }
    out.kind = Observation::Kind::state;
    for (std::size_t i = 0; i < found->agents.size(); ++i) {
        if (found->agents[i].lost) {
            out.lost_nodes.push_back(static_cast<std::int32_t>(i));
        }
    }
    out.message = found->message;
    switch (found->state) {
        case Attempt::State::waiting:
            out.state = AllocationState::pending;
            out.reason = ledger_.reason(found->id);
            break;
        case Attempt::State::running:
            out.state = AllocationState::running;
            out.nodes = found->nodes;
            break;
        case Attempt::State::ended:
            out.state = AllocationState::ended;
            out.ended_unwatched = found->unwatched;
            out.nodes = found->nodes;
            break;
    }
    co_return out;
}

Task<Status> LocalScheduler::cancel(JobId job, std::int32_t attempt) {
    const auto found = find(job, attempt);
    if (!found || found->state == Attempt::State::ended || found->cancelled) {
        co_return Status{};
    }
    if (found->state == Attempt::State::waiting) {
        end(*found, "cancelled before it started");
        co_return Status{};
    }
    found->cancelled = true;
    signal_all(*found, SIGTERM);
    tasks_.spawn("end attempt", enforce(found));
    co_return Status{};
}

Task<void> LocalScheduler::enforce(AttemptPointer attempt) {
    co_await sleep_on(attempt->kill_timer, options_.kill_after);
    if (!stopped_ && attempt->state == Attempt::State::running) {
        log::warn("agents did not end in time, killing them",
                  {{"job", attempt->request.job.value}, {"id", attempt->id}});
        signal_all(*attempt, SIGKILL);
    }
}

void LocalScheduler::signal_all(Attempt& attempt, int number) {
    for (Agent& agent : attempt.agents) {
        if (!agent.ended && agent.process.is_open()) {
            signal_agent(agent.process.native_handle(), number);
        }
    }
}

Cluster LocalScheduler::cluster() {
    const Machine all = ledger_.capacity();
    const Machine used = ledger_.used();
    Cluster out;
    out.name = host_;
    out.seen_at = SystemClock{}.wall();
    ClusterNode node;
    node.name = host_;
    node.idle = used.cores == 0 && used.memory_mb == 0 && used.gpus == 0;
    node.state = node.idle ? "idle" : used.cores >= all.cores ? "allocated" : "mixed";
    node.cpus = all.cores;
    node.cpus_used = std::min(used.cores, all.cores);
    node.memory_mb = all.memory_mb;
    node.gpus = all.gpus;
    node.gpus_used = used.gpus;
    out.nodes.push_back(std::move(node));
    return out;
}

Task<Status> LocalScheduler::ping() {
    if (::access(options_.agent_program.c_str(), X_OK) != 0) {
        co_return fail(Errc::unavailable,
                       "lockstep-agent cannot be executed: " + options_.agent_program);
    }
    co_return Status{};
}

Task<void> LocalScheduler::stop() {
    stopped_ = true;
    for (auto& [id, attempt] : attempts_) {
        attempt->kill_timer.cancel();
        for (Agent& agent : attempt->agents) {
            agent.again_timer.cancel();
            ErrorCode ec;
            agent.process.close(ec);
        }
    }
    co_await tasks_.join();
}

}  // namespace lockstep
