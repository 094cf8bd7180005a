// size: a small function per message of the daemon, and how a node ends
// The daemon's side of a node: messages in, messages out. node_ranks.cpp is the ranks' side.
#include "job/agent/node.hpp"

#include "job/agent/rank_state.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/sort.hpp"
#include "job/base/version.hpp"
#include "job/model/state.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

// The daemon may be another Unix user: then the folder's access control list says who reads it, and
// the mode's group bits bound that.
constexpr unsigned kFileMode = 0660;

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
      group_(tasks,
             {[this](std::int32_t rank, std::vector<RankReport> reports) {
                  on_captured(rank, std::move(reports));
              },
              [this](std::int32_t rank) { on_rank_ending(rank); },
              [this](wire::Exited exited) { on_rank_exited(std::move(exited)); },
              [this](std::int32_t rank, std::string why) {
                  fault(rank, to_string(CauseClass::node_lost), std::move(why));
              },
              [this] { on_all_ended(); }},
             config_.timing),
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
    watch_gpus();
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
    outbox_.reconnected(welcome.acked_batch);
    if (!spec_) {
        auto spec = parse_spec(welcome.spec);
        if (!spec) {
            fault(-1, to_string(CauseClass::internal),
                  "the agent does not understand the job: " + spec.error().message);
            wake();
            return;
        }
        spec_ = std::move(*spec);
    }
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
    begin_preflight(welcome);
    if (settling_ && outbox_.settled()) {
        settle_timer_.cancel();
    }
    wake();
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
    outbox_.control_last(join);
}

// As NTP does: its answer was made half way between HELLO and WELCOME, give or take that half.
void Node::begin_preflight(const wire::Welcome& welcome) {
    if (!welcome.preflight || stopping_) {
        return;
    }
    Preflight::Start start;
    start.spec = *spec_;
    start.checkpoint_directory = welcome.checkpoint_directory;
    start.address = address_;
    start.ports_problem = ports_problem_;
    start.ports_needed = 1 + (needs_endpoints(*spec_) ? spec_->processes_per_node() : 0);
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
        started_.clear();
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
    if (spec_->resources.spares == 0) {
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

void Node::on(const wire::Save& save) {
    if (world_ && save.generation == world_->generation) {
        warn_ranks();
    }
}

void Node::on(const wire::Examine& examine) {
    if (!world_ || examine.generation != world_->generation) {
        return;
    }
    wire::Examined examined;
    examined.generation = examine.generation;
    for (const wire::StartedRank& rank : started_) {
        examined.ranks.push_back(look_at_rank(rank.rank, rank.pid));
    }
    outbox_.control(examined);
    // Of ranks that have ended, the numbers may be others' by now.
    std::vector<wire::StartedRank> ranks = group_.running() ? started_ : decltype(started_){};
    const auto wanted = [&](const wire::StartedRank& one) {
        const std::int32_t local = one.rank - world_->first_rank;
        return std::find(examine.first.begin(), examine.first.end(), local) != examine.first.end();
    };
    sort_stably(ranks, [&](const wire::StartedRank& a, const wire::StartedRank& b) {
        return wanted(a) && !wanted(b);
    });
    const bool begun =
        evidence_.take(examine.generation, std::move(ranks), [this](wire::EvidenceSaved saved) {
            log::info("evidence is written", {{"generation", saved.generation}});
            outbox_.control(std::move(saved));
            wake();
        });
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

void Node::done() {
    wire::Done done;
    done.generation = world_->generation;
    outbox_.event(done);
    wake();
}

// Of the generation before: the daemon has all of it on disk, or there would be no next one. It
// must not speak for ranks that come.
void Node::forget_result() {
    std::error_code ignored;
    std::filesystem::remove(config_.attempt_directory / wire::result_file_name(config_.node_rank),
                            ignored);
    result_saved_ = false;
}

void Node::save_result() {
    const auto path = config_.attempt_directory / wire::result_file_name(config_.node_rank);
    if (auto saved = write_file_atomic(path, wire::encode_result_file(result_), kFileMode);
        !saved) {
        log::error("cannot write the node's result", {{"why", saved.error().message}});
        return;
    }
    result_saved_ = true;
}

// Where the daemon finds them, whatever keeps the two from talking.
void Node::save_last_words(const std::string& reason) const {
    const auto path = config_.attempt_directory / wire::gave_up_file_name(config_.node_rank);
    const wire::GaveUpFile file{config_.incarnation, config_.name, reason};
    const auto saved = write_file_atomic(path, wire::encode_gave_up_file(file), kFileMode);
    if (!saved) {
        log::warn("cannot leave a word for the daemon", {{"why", saved.error().message}});
    }
}

void Node::warn_ranks() {
    if (!spec_ || !group_.running()) {
        return;
    }
    constexpr std::array<std::pair<std::string_view, int>, 5> kSignals{{{"USR2", SIGUSR2},
                                                                        {"USR1", SIGUSR1},
                                                                        {"TERM", SIGTERM},
                                                                        {"INT", SIGINT},
                                                                        {"HUP", SIGHUP}}};
    for (const auto& [name, number] : kSignals) {
        if (name == spec_->checkpoint.signal) {
            log::info("ranks are told to write a checkpoint", {{"signal", name}});
            group_.signal_ranks(number);
        }
    }
}

void Node::shut_down(std::chrono::milliseconds grace, std::string farewell) {
    stopping_ = true;
    evidence_.stop();
    farewell_ = std::move(farewell);
    next_world_.reset();
    awaiting_.reset();
    if (group_.running()) {
        group_.stop(grace);
        return;
    }
    if (phase_ == Phase::ready) {
        phase_ = Phase::waiting;
        ranks_.clear();
        done();
    }
    if (!std::exchange(settling_, true)) {
        tasks_.spawn("settle", settle());
    }
}

// Everything that was accepted from the ranks reaches the daemon before the agent goes, if the
// daemon is there to take it.
Task<void> Node::settle() {
    flush_rows();
    if (!result_saved_) {
        save_result();
    }
    if (!farewell_.empty()) {
        wire::Bye bye;
        bye.reason = farewell_;
        outbox_.event(std::move(bye));
    }
    wake();
    const auto until = std::chrono::steady_clock::now() + config_.settle;
    while (!finished_once_ && !outbox_.settled() && std::chrono::steady_clock::now() < until) {
        ErrorCode ec;
        settle_timer_.expires_at(until);
        co_await settle_timer_.async_wait(into(ec));
    }
    if (!finished_once_ && !outbox_.settled()) {
        log::warn("leaving with messages that were not acknowledged");
    }
    finish(kAgentDone);
}

void Node::fence(const std::string& why) {
    if (settling_ && !fenced_) {
        // The attempt is over for the daemon too: it takes nothing any more.
        finish(kAgentDone);
        return;
    }
    if (finished_once_ || std::exchange(fenced_, true)) {
        return;
    }
    stopping_ = true;
    log::error("the daemon does not want this agent", {{"why", why}});
    save_last_words(why);
    next_world_.reset();
    group_.stop(std::chrono::milliseconds{0});
    tasks_.spawn("fenced", exit_fenced());
}

Task<void> Node::exit_fenced() {
    const auto until = std::chrono::steady_clock::now() + config_.settle;
    settling_ = true;  // on_all_ended() wakes the timer instead of settling
    while (!finished_once_ && group_.running() && std::chrono::steady_clock::now() < until) {
        ErrorCode ec;
        settle_timer_.expires_at(until);
        co_await settle_timer_.async_wait(into(ec));
    }
    finish(kAgentFenced);
}

void Node::give_up(const std::string& why) {
    log::error("no daemon for too long", {{"result", result_saved_}, {"why", why}});
    save_last_words("no daemon for too long: " + why);
    finish(result_saved_ ? kAgentDone : kAgentLonely);
}

void Node::finish(int code) {
    if (std::exchange(finished_once_, true)) {
        return;
    }
    gpus_.reset();
    ranks_.clear();
    gate_.reset();
    store_.reset();
    runner_.kill_all();
    evidence_.stop();
    preflight_.stop();
    tick_timer_.cancel();
    settle_timer_.cancel();
    finished_(code);
}

Task<void> Node::tick() {
    auto next_beat = std::chrono::steady_clock::now();
    while (!finished_once_) {
        flush_rows();
        if (connected_ && std::chrono::steady_clock::now() >= next_beat) {
            next_beat = std::chrono::steady_clock::now() + limits::kBeatInterval;
            wire::Beat beat;
            beat.time = SystemClock{}.wall();
            beat.generation = world_ ? world_->generation : 0;
            beat.dropped_rows = outbox_.dropped_rows() + bad_reports_ + telemetry_.refused_values();
            outbox_.control(beat);
            tell_gpu_watch();
            wake();
        }
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
