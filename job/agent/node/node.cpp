// size: a small function per message of the daemon
// The daemon's side of a node: messages in, messages out. node_ranks.cpp is the ranks' side,
// node_end.cpp how it ends.
#include "job/agent/node/node.hpp"

#include "job/agent/ranks/rank_state.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/sort.hpp"
#include "job/base/version.hpp"
#include "job/model/spec/signed_statement.hpp"
#include "job/model/state.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

std::chrono::milliseconds grace_of(std::int64_t milliseconds) {
    return std::chrono::milliseconds{std::clamp<std::int64_t>(milliseconds, 0, 600'000)};
}

std::string path_of(const std::map<std::string, std::string>& environment) {
    const auto found = environment.find("PATH");
    return found == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : found->second;
}

Preflight::Options preflight_options(const NodeConfig& config) {
    Preflight::Options out;
    out.root = config.preflight_root;
    out.attempt_directory = config.attempt_directory;
    out.slot = config.node_rank;
    out.ticket = config.ticket;
    out.train_program = config.train_program;
    out.environment = config.inherited;
    return out;
}

}  // namespace

Node::Node(TaskGroup& tasks, NodeConfig config, SocketDirectory sockets)
    : tasks_(tasks),
      config_(std::move(config)),
      sockets_(std::move(sockets)),
      telemetry_(config_.node_rank),
      group_(
          tasks,
          {[this](std::int32_t rank, std::vector<RankReport> reports) {
               on_captured(rank, std::move(reports));
           },
           [this](std::int32_t rank) { on_rank_ending(rank); },
           [this](wire::Exited& exited, const RankGroup::LastWords& words) {
               judge(exited, words);
           },
           [this](wire::Exited exited) { on_rank_exited(std::move(exited)); },
           [this](std::int32_t rank, std::string why) {
               fault(rank, to_string(CauseClass::node_lost), std::move(why));
           },
           [this] { on_all_ended(); }, [this](std::string_view bytes) { children_.printed(bytes); },
           [this](std::int32_t rank, std::string what) { give_warning(rank, std::move(what)); },
           [this](std::int32_t rank, const SpawnRequest& request) {
               return standbys_.take(rank - world_->first_rank, request);
           }},
          config_.timing),
      standbys_(tasks, sockets_.path(),
                {[this](std::int32_t local, std::string text) {
                     give_warning(world_->first_rank + local, std::move(text));
                 },
                 [this] { group_.other_was_killed(); }},
                {}),
      children_(tasks, child_handlers()),
      runner_(tasks.io()),
      evidence_(tasks, config_.attempt_directory, path_of(config_.inherited)),
      preflight_(tasks, preflight_options(config_),
                 [this](wire::AgentMessage message) {
                     if (connected_) {
                         outbox_.control(message);
                         wake();
                     }
                 }),
      tick_timer_(tasks.io()),
      settle_timer_(tasks.io()) {
    result_.incarnation = config_.incarnation;
}

void Node::start() {
    tasks_.spawn("tick", tick());
}

void Node::wake() {
    wake_();
}

wire::Hello Node::hello() {
    wire::Hello hello;
    hello.node_rank = config_.node_rank;
    hello.node = config_.name;
    hello.pid = ::getpid();
    hello.incarnation = config_.incarnation;
    hello.allocation = config_.allocation;
    hello.version = kVersion;
    hello.generation = world_ ? world_->generation : 0;
    hello.ranks_running = group_.running();
    hello.time = SystemClock{}.wall();
    hello.preflight = true;
    hello_at_ = hello.time;
    hello_made_ = std::chrono::steady_clock::now();
    return hello;
}

void Node::welcome(const wire::Welcome& welcome, const std::string& local_address) {
    const bool other_daemon = !daemon_.empty() && daemon_ != welcome.daemon;
    daemon_ = welcome.daemon;
    address_ = local_address.empty() ? "127.0.0.1" : local_address;
    welcome_ = welcome;
    connected_ = true;
    clock_offset_.restart();
    outbox_.reconnected(welcome.acked_batch);
    telemetry_.begin_after(welcome.acked_batch);
    const bool first = !spec_;
    if (first) {
        auto spec = config_.signed_document.empty()
                        ? parse_spec(welcome.spec)
                        : read_signed_document(welcome.document, config_.signed_document,
                                               static_cast<std::size_t>(config_.signed_point));
        if (!spec) {
            fault(-1, to_string(CauseClass::internal),
                  "the agent does not understand the job: " + spec.error().message);
            wake();
            return;
        }
        spec_ = std::move(*spec);
    }
    keep_to_what_is_signed();
    if (first) {
        take_secrets(*welcome_);
        begin_setup();
    }
    // What is not needed any more need not be here.
    welcome_->secret_names.clear();
    welcome_->secret_values.clear();
    log::info("connected", {{"job", welcome.job_id},
                            {"attempt", welcome.attempt},
                            {"node_rank", config_.node_rank},
                            {"daemon_restarted", other_daemon}});
    for (const auto& request : keys_.after_reconnect(other_daemon)) {
        outbox_.control(request);
    }
    if (!started_.empty() && welcome.generation == world_->generation) {
        // The first STARTED may have been lost with the connection; the daemon ignores a repeat.
        send_started();
    } else if (!stopping_) {
        send_join();
    }
    begin_preflight(*welcome_);
    if (settling_ && outbox_.settled()) {
        settle_timer_.cancel();
    }
    wake();
}

// A folder that lockstepd chose could hold a checkpoint whose loading runs what is in it.
void Node::keep_to_what_is_signed() {
    if (config_.signed_document.empty()) {
        return;
    }
    const std::string& own = spec_->checkpoint.directory;
    welcome_->checkpoint_directory =
        own.empty() ? (config_.attempt_directory.parent_path() / "checkpoints").string() : own;
    welcome_->job_name = spec_->name;
    welcome_->document.clear();
}

void Node::on(const wire::Clock& clock) {
    clock_offset_.answered(clock.asked_us, clock.daemon_us, std::chrono::steady_clock::now());
}

void Node::disconnected() {
    connected_ = false;
    outbox_.disconnected();
}

void Node::handle(const wire::DaemonMessage& message) {
    std::visit([this](const auto& m) { on(m); }, message);
    wake();
}

void Node::send_join() {
    if (const Status held = hold_ports(); !held) {
        log::error("cannot hold a port", {{"why", held.error().message}});
        ports_problem_ = held.error().message;
        return;
    }
    ports_problem_.clear();
    const Machine machine = read_machine();
    wire::Join join;
    join.address = address_;
    join.port = port_->number();
    // A generation that was prepared and never started has left nothing here.
    if (world_) {
        join.generation = phase_ == Phase::waiting ? world_->generation : world_->generation - 1;
    }
    for (const HeldPort& port : rank_ports_) {
        join.ports.push_back(port.number());
    }
    join.cores = machine.cores;
    join.gpus = machine.gpus;
    join.memory_mb = machine.memory_mb;
    join.addresses = own_addresses();
    if (join.addresses.size() > limits::kNodeAddresses) {
        join.addresses.clear();  // some would not be enough
    }
    outbox_.control_last(join);
}

// As NTP does: its answer was made half way between HELLO and WELCOME, give or take that half. A
// machine that is busy takes long to answer, and that is not its clock.
void Node::begin_preflight(const wire::Welcome& welcome) {
    if (!welcome.preflight || stopping_) {
        return;
    }
    Preflight::Start start;
    start.spec = *spec_;
    start.checkpoint_directory = welcome.checkpoint_directory;
    start.address = address_;
    start.ports_problem = ports_problem_;
    start.ports_needed = 1 + (needs_endpoints(*spec_) ? spec_->ranks_per_node() : 0);
    const auto trip = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::steady_clock::now() - hello_made_)
                          .count();
    start.clock_error_ms = trip / 2;
    start.clock_offset_ms = hello_at_ + trip / 2 - welcome.time;
    preflight_.begin(start);
}

void Node::on(const wire::Probe& probe) {
    preflight_.probe(probe);
}

void Node::on(const wire::PairTest& test) {
    preflight_.pair_test(test);
}

void Node::send_started() {
    wire::Started started;
    started.generation = world_->generation;
    started.ranks = started_;
    outbox_.control(started);
}

void Node::on(const wire::World& world) {
    const std::int32_t current = world_ ? world_->generation : 0;
    if (stopping_ || !spec_ || world.generation < current ||
        (world.generation == current && phase_ != Phase::ready)) {
        log::info("world ignored", {{"generation", world.generation}, {"current", current}});
        return;
    }
    if (group_.running()) {
        next_world_ = world;
        group_.stop(config_.timing.grace);
        return;
    }
    prepare(world);
}

void Node::prepare(const wire::World& given) {
    if (!has_hosts(given)) {
        return;
    }
    if (setup_running_) {
        awaiting_ = given;
        return;
    }
    flush_rows();
    const bool again = world_ && world_->generation == given.generation;
    world_ = given;
    wire::World& world = *world_;
    if (!world.table.empty() && world.table == table_.digest) {
        world.hosts = table_.hosts;
        world.addresses = table_.addresses;
        world.ports = table_.ports;
    }
    if (!world.address.empty()) {
        address_ = world.address;  // where its peers have reached it
    }
    telemetry_.set_generation(world.generation);
    if (!again) {
        keys_.start_generation(world.generation);
        warned_.clear();
        started_.clear();
        unwarned_.clear();
        join_wanted_ = false;
        forget_result();
        result_.generation = world.generation;
        result_.exits.clear();
        result_.faults.clear();
    }
    if (auto prepared = prepare_ranks(); !prepared) {
        phase_ = Phase::waiting;
        ranks_.clear();
        fault(-1, to_string(CauseClass::user_error), prepared.error().message);
        save_result();
        done();
        return;
    }
    phase_ = Phase::ready;
    wire::Ready ready;
    ready.generation = world.generation;
    outbox_.control(ready);
}

void Node::on(const wire::Start& start) {
    if (!world_ || start.generation != world_->generation || phase_ != Phase::ready) {
        log::info("start ignored", {{"generation", start.generation}});
        return;
    }
    if (spec_->resources.spares == 0 && !spec_->resources.is_elastic()) {
        preflight_.no_more_peers();
    }
    start_ranks();
}

void Node::on(const wire::Abort& abort) {
    if (awaiting_ && awaiting_->generation == abort.generation) {
        awaiting_.reset();
        if (!world_ || world_->generation != abort.generation) {  // it left nothing here
            if (!stopping_) {
                send_join();
            }
            return;
        }
    }
    if (!world_ || abort.generation != world_->generation) {
        return;
    }
    evidence_.stop();
    log::info("generation aborted", {{"generation", abort.generation}, {"reason", abort.reason}});
    if (group_.running()) {
        join_wanted_ = true;
        group_.stop(grace_of(abort.grace_ms));
        return;
    }
    if (phase_ == Phase::ready) {
        phase_ = Phase::waiting;
        ranks_.clear();
        done();
    }
    if (!stopping_) {
        send_join();
    }
}

void Node::on(const wire::Examine& examine) {
    if (!world_ || examine.generation != world_->generation) {
        return;
    }
    wire::Examined examined;
    examined.generation = examine.generation;
    std::vector<wire::StartedRank> ranks;
    for (const wire::StartedRank& rank : started_) {
        const auto& exits = result_.exits;
        // Its process's number may be another's by now.
        const bool ended = !group_.running() ||
                           std::any_of(exits.begin(), exits.end(),
                                       [&](const auto& exit) { return exit.rank == rank.rank; });
        if (ended) {
            examined.ranks.push_back({rank.rank, rank.pid, "X", ""});
        } else {
            examined.ranks.push_back(look_at_rank(rank.rank, rank.pid));
            ranks.push_back(rank);
        }
    }
    outbox_.control(examined);
    const auto wanted = [&](const wire::StartedRank& one) {
        const std::int32_t local = one.rank - world_->first_rank;
        return std::find(examine.first.begin(), examine.first.end(), local) != examine.first.end();
    };
    sort_stably(ranks, [&](const wire::StartedRank& a, const wire::StartedRank& b) {
        return wanted(a) && !wanted(b);
    });
    const bool begun = evidence_.take(
        examine.generation, std::move(ranks),
        [this](wire::EvidenceSaved saved) {
            log::info("evidence is written", {{"generation", saved.generation}});
            outbox_.control(std::move(saved));
            wake();
        },
        examine.gentle);
    if (!begun) {
        log::info("evidence is being taken already", {{"generation", examine.generation}});
    }
}

// Whether the ranks' environment can be made from this world; if not, it waits for its table. A
// large world's ranks are told nothing of each other but where they meet.
bool Node::has_hosts(const wire::World& world) {
    const bool told = needs_endpoints(*spec_) || world.nodes <= limits::kEnvironmentHosts;
    if (world.table.empty() || world.table == table_.digest || !told) {
        awaiting_.reset();
        return true;
    }
    awaiting_ = world;
    wire::TableRequest request;
    request.generation = world.generation;
    outbox_.control(request);
    wake();
    return false;
}

void Node::on(const wire::Table& table) {
    table_ = table;
    if (awaiting_ && awaiting_->table == table.digest && !stopping_) {
        const wire::World world = std::move(*awaiting_);
        prepare(world);
    }
}

void Node::on(const wire::Stop& stop) {
    log::info("attempt is over", {{"reason", stop.reason}});
    shut_down(grace_of(stop.grace_ms));
}

void Node::on(const wire::Ack& ack) {
    outbox_.acknowledge(ack.event, ack.batch);
    if (settling_ && outbox_.settled()) {
        settle_timer_.cancel();
    }
}

void Node::on(const wire::Fenced& fenced) {
    fence(fenced.message);
}

void Node::fault(std::int32_t rank, std::string_view cause, std::string message) {
    message = masked(std::move(message));
    log::error("fault", {{"rank", rank}, {"class", cause}, {"message", message}});
    wire::Fault fault;
    fault.generation = world_ ? world_->generation : 0;
    fault.rank = rank;
    fault.cause_class = cause;
    fault.message = std::move(message);
    fault.time = SystemClock{}.wall();
    result_.faults.push_back(fault);
    outbox_.event(std::move(fault));
    wake();
}

Task<void> Node::tick() {
    auto next_beat = std::chrono::steady_clock::now();
    while (!finished_once_) {
        children_.look();
        if (phase_ == Phase::running && !group_.stopping()) {
            standbys_.look();
        }
        flush_rows();
        if (connected_ && std::chrono::steady_clock::now() >= next_beat) {
            next_beat = std::chrono::steady_clock::now() + limits::kBeatInterval;
            wire::Beat beat;
            beat.time = SystemClock{}.wall();
            beat.generation = world_ ? world_->generation : 0;
            beat.dropped_rows = outbox_.dropped_rows() + bad_reports_ + telemetry_.refused_values();
            if (const auto offset = clock_offset_.estimate()) {
                beat.offset_us = offset->offset_us;
                beat.offset_error_us = offset->error_us;
            }
            if (clock_offset_.due()) {
                beat.asks_us = SystemClock{}.wall_us();
                clock_offset_.asked(beat.asks_us, std::chrono::steady_clock::now());
            }
            outbox_.control(beat);
            tell_gpu_watch();
            wake();
        }
        warn_the_rest();
        co_await sleep_on(tick_timer_, config_.flush);
    }
}

void Node::flush_rows() {
    while (const auto batch = telemetry_.take()) {
        outbox_.batch(*batch);
        wake();
    }
}

}  // namespace lockstep
