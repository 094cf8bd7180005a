// The driver of a node's machine: what the daemon says goes in, and what is to be done is done.
#include "job/agent/node/node.hpp"

#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/version.hpp"
#include "job/model/state.hpp"

#include <unistd.h>

#include <utility>

namespace lockstep {
namespace {

Preflight::Options preflight_options(const NodeConfig& config) {
    Preflight::Options out;
    out.root = config.preflight_root;
    out.attempt_directory = config.attempt_directory;
    out.slot = config.node_rank;
    out.ticket = config.ticket;
    out.train_program = config.train_program;
    out.gpu_test_program = config.gpu_test_program;
    out.nccl_test_program = config.nccl_test_program;
    out.environment = config.inherited;
    return out;
}

}  // namespace

Node::Node(TaskGroup& tasks, NodeConfig config, SocketDirectory sockets)
    : tasks_(tasks),
      config_(std::move(config)),
      sockets_(std::move(sockets)),
      machine_(config_.incarnation, {config_.timing.grace, config_.settle}),
      job_(config_),
      environment_(tasks, config_, sockets_.path(),
                   [this] {
                       if (!environment_.problem().empty() && !machine_.stopping()) {
                           log::error("setup has failed", {{"why", environment_.problem()}});
                       }
                       take(node_input::SetupEnded{});
                   }),
      nccl_(tasks, config_, machine_, outbox_, nccl_handlers()),
      ranks_(tasks,
             {config_, sockets_, machine_, job_, environment_, ports_, nccl_, clock_, outbox_},
             rank_handlers()),
      looks_(tasks, {config_, sockets_, nccl_, ranks_, outbox_},
             {[this] { wake_(); }, [this](std::string found) { warn(-1, std::move(found)); }}),
      preflight_(tasks, preflight_options(config_),
                 [this](wire::AgentMessage message) {
                     if (machine_.connected()) {
                         outbox_.control(message);
                         wake_();
                     }
                 }),
      tick_timer_(tasks.io()),
      leaving_(tasks, config_, machine_, outbox_,
               [this](NodeInput input) { take(std::move(input)); }),
      gpus_(tasks, config_, machine_, outbox_, [this] { wake_(); }) {}

NcclReports::Handlers Node::nccl_handlers() {
    NcclReports::Handlers out;
    out.seen = [this](std::int32_t rank, const RankReport& row) {
        ranks_.reports().seen(rank, row);
    };
    out.wake = [this] { wake_(); };
    out.warn = [this](std::string message) { warn(-1, std::move(message)); };
    return out;
}

NodeRanks::Handlers Node::rank_handlers() {
    NodeRanks::Handlers out;
    out.take = [this](NodeInput input) { take(std::move(input)); };
    out.warn = [this](std::int32_t rank, std::string message) { warn(rank, std::move(message)); };
    out.fault = [this](std::int32_t rank, CauseClass cause, std::string message) {
        fault(rank, cause, std::move(message));
    };
    out.changed = [this] { follow_ranks(); };
    out.wake = [this] { wake_(); };
    return out;
}

void Node::start() {
    tasks_.spawn("tick", tick());
}

wire::Hello Node::hello() {
    wire::Hello hello;
    hello.node_rank = config_.node_rank;
    hello.node = config_.name;
    hello.pid = ::getpid();
    hello.incarnation = config_.incarnation;
    hello.allocation = config_.allocation;
    hello.version = kVersion;
    hello.generation = machine_.generation();
    hello.ranks_running = machine_.ranks_run();
    hello.time = clock_.hello();
    hello.preflight = true;
    hello.profiles = true;
    return hello;
}

// An answer to an effect is taken once all the effects beside it are done.
void Node::take(NodeInput input) {
    inputs_.push_back(std::move(input));
    if (inputs_.size() > 1) {
        return;
    }
    while (!inputs_.empty()) {
        const NodeTime now{std::chrono::steady_clock::now(), SystemClock{}.wall()};
        for (const NodeEffect& effect : machine_.take(inputs_.front(), now)) {
            std::visit([this](const auto& one) { perform(one); }, effect);
        }
        inputs_.pop_front();
    }
    wake_();
}

void Node::welcome(const wire::Welcome& welcome, const std::string& local_address) {
    clock_.welcomed();
    outbox_.reconnected(welcome.acked_batch);
    ranks_.reports().begin_after(welcome.acked_batch);
    node_input::Welcomed input;
    input.daemon = welcome.daemon;
    input.generation = welcome.generation;
    input.preflight = welcome.preflight;
    const bool first = !job_.known();
    if (const Status taken = job_.take(welcome, local_address); !taken) {
        input.problem =
            environment_.masked("the agent does not understand the job: " + taken.error().message);
        take(std::move(input));
        return;
    }
    if (first) {
        begin_job();
    }
    job_.forget_secrets();
    log::info(
        "connected",
        {{"job", welcome.job_id}, {"attempt", welcome.attempt}, {"node_rank", config_.node_rank}});
    const Resources& resources = job_.spec().resources;
    const bool fixed = resources.spares == 0 && !resources.is_elastic();
    input.job = NodeJob{needs_endpoints(job_.spec()), fixed};
    take(std::move(input));
}

// Of the first WELCOME.
void Node::begin_job() {
    if (std::string missing = job_.give_secrets(environment_); !missing.empty()) {
        fault(-1, CauseClass::user_error, std::move(missing));
    }
    if (environment_.begin(job_.spec())) {
        take(node_input::SetupBegun{});
        environment_.run_setup();
    }
}

void Node::on(const wire::Ack& ack) {
    outbox_.acknowledge(ack.event, ack.batch);
    if (outbox_.settled()) {
        leaving_.look();
    }
}

void Node::disconnected() {
    outbox_.disconnected();
    take(node_input::Disconnected{});
}

void Node::handle(const wire::DaemonMessage& message) {
    std::visit([this](const auto& one) { on(one); }, message);
    wake_();
}

void Node::perform(const node_effect::Send& send) {
    outbox_.control(send.message);
}

void Node::perform(const node_effect::SendLast& send) {
    outbox_.control_last(send.join);
}

void Node::perform(const node_effect::Report& report) {
    std::visit([this](const auto& event) { outbox_.event(event); }, report.event);
}

void Node::perform(const node_effect::HoldPorts&) {
    const std::int32_t endpoints = needs_endpoints(job_.spec()) ? job_.spec().ranks_per_node() : 0;
    const Status held =
        ports_.hold(job_.address(), {endpoints, job_.spec().resources.gpus_per_node > 0});
    if (!held) {
        take(node_input::PortsMissing{held.error().message});
        return;
    }
    const Machine machine = read_machine();
    wire::Join join;
    join.address = job_.address();
    join.port = ports_.master()->number();
    join.ports = ports_.ranks();
    join.cores = machine.cores;
    join.gpus = machine.gpus;
    join.memory_mb = machine.memory_mb;
    join.addresses = own_addresses();
    if (join.addresses.size() > limits::kNodeAddresses) {
        join.addresses.clear();  // some would not be enough
    }
    take(node_input::PortsHeld{std::move(join)});
}

void Node::perform(const node_effect::HoldPortsAgain&) {
    ports_.hold_again(job_.address());
}

void Node::perform(const node_effect::BeginPreflight&) {
    Preflight::Start start;
    start.spec = job_.spec();
    start.checkpoint_directory = job_.welcome().checkpoint_directory;
    start.address = job_.address();
    start.ports_problem = ports_.problem();
    start.ports_needed = 1 + (needs_endpoints(job_.spec()) ? job_.spec().ranks_per_node() : 0);
    const DaemonClock::Rough clock = clock_.by_welcome(job_.welcome().time);
    start.clock_error_ms = clock.error_ms;
    start.clock_offset_ms = clock.offset_ms;
    preflight_.begin(start);
}

void Node::perform(const node_effect::BeginGeneration& begin) {
    ranks_.reports().start_generation(begin.generation);
    // The daemon has all of the generation before on disk, or there would be no next one.
    leaving_.forget_result();
}

void Node::perform(const node_effect::EndSetup&) {
    environment_.terminate();
}

void Node::perform(const node_effect::NoMorePeers&) {
    preflight_.no_more_peers();
}

void Node::perform(const node_effect::Exit& exit) {
    ranks_.close();
    environment_.kill();
    looks_.stop();
    nccl_.stop();
    preflight_.stop();
    tick_timer_.cancel();
    leaving_.look();
    finished_(exit.code);
    gpus_.close();  // the last: it waits for a driver that may not answer
}

Task<void> Node::tick() {
    auto next_beat = std::chrono::steady_clock::now();
    while (!machine_.finished()) {
        ranks_.look();
        if (const auto now = std::chrono::steady_clock::now();
            machine_.connected() && now >= next_beat) {
            next_beat = now + limits::kBeatInterval;
            beat();
        }
        co_await sleep_on(tick_timer_, config_.tick);
    }
}

void Node::beat() {
    wire::Beat beat;
    beat.time = SystemClock{}.wall();
    beat.generation = machine_.generation();
    beat.dropped_rows = outbox_.dropped_rows() + ranks_.reports().refused();
    clock_.fill(beat);
    outbox_.control(beat);
    follow_ranks();
    wake_();
}

void Node::follow_ranks() {
    // Before there is a generation there may be no specification either.
    if (const wire::World* world = ranks_.world(); world != nullptr && !machine_.finished()) {
        nccl_.follow(job_.spec(), *world);
    }
    gpus_.follow(machine_.started(), !machine_.finished() && !preflight_.looking());
}

void Node::warn(std::int32_t rank, std::string message) {
    take(node_input::WarningSeen{rank, environment_.masked(std::move(message))});
}

void Node::fault(std::int32_t rank, CauseClass cause, std::string message) {
    take(node_input::FaultSeen{rank, cause, environment_.masked(std::move(message))});
}

}  // namespace lockstep
