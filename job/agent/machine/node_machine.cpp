// What the daemon orders, and what becomes of a generation; node_machine_end.cpp is how a node
// ends.
#include "job/agent/machine/node_machine.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::chrono::milliseconds grace_of(std::int64_t milliseconds) {
    return std::chrono::milliseconds{std::clamp<std::int64_t>(milliseconds, 0, 600'000)};
}

}  // namespace

NodeMachine::NodeMachine(std::string incarnation, Timing timing)
    : incarnation_(std::move(incarnation)), timing_(timing) {
    run_.result.incarnation = incarnation_;
}

NodeEffects NodeMachine::take(const NodeInput& input, const NodeTime& now) {
    now_ = now;
    std::visit([this](const auto& one) { hear(one); }, input);
    return std::exchange(out_, {});
}

bool NodeMachine::is_current(std::int32_t generation) const {
    return run_.world.generation != 0 && generation == run_.world.generation;
}

void NodeMachine::hear(const node_input::Welcomed& welcomed) {
    const bool other_daemon = !daemon_.empty() && daemon_ != welcomed.daemon;
    daemon_ = welcomed.daemon;
    connected_ = true;
    // Its generation may be over by now: the daemon, which has JOIN, sends it again if it is not.
    awaiting_.reset();
    if (!welcomed.job) {
        fault(-1, to_string(CauseClass::internal), welcomed.problem);
        return;
    }
    job_ = welcomed.job;
    if (other_daemon) {
        log::info("the daemon has restarted", {});
    }
    want(node_effect::AskKeysAgain{other_daemon});
    if (!run_.started.empty() && is_current(welcomed.generation)) {
        // The first STARTED may have been lost with the connection; the daemon ignores a repeat.
        say_started();
    } else if (!stopping_) {
        join();
    }
    if (welcomed.preflight && !stopping_) {
        want(node_effect::BeginPreflight{});
    }
    want(node_effect::LookAtLeaving{});
}

void NodeMachine::join() {
    want(node_effect::HoldPorts{});
}

void NodeMachine::hear(const node_input::PortsHeld& held) {
    wire::Join join = held.join;
    // A generation that was prepared and never started has left nothing here.
    if (run_.world.generation != 0) {
        join.generation =
            run_.phase == Phase::waiting ? run_.world.generation : run_.world.generation - 1;
    }
    want(node_effect::SendLast{std::move(join)});
}

void NodeMachine::hear(const node_input::PortsMissing& missing) {
    log::error("cannot hold a port", {{"why", missing.why}});
}

void NodeMachine::say_started() {
    wire::Started started;
    started.generation = run_.world.generation;
    started.ranks = run_.started;
    send(std::move(started));
}

void NodeMachine::hear(const wire::World& world) {
    const std::int32_t current = run_.world.generation;
    if (stopping_ || !job_ || world.generation < current || world.generation <= aborted_ ||
        (is_current(world.generation) && run_.phase != Phase::ready)) {
        log::info("world ignored", {{"generation", world.generation}, {"current", current}});
        return;
    }
    if (ranks_run()) {
        next_world_ = world;
        want(node_effect::StopRanks{timing_.grace});
        return;
    }
    prepare(world);
}

// Whether the ranks' environment can be made from this world; if not, it waits for its table. A
// large world's ranks are told nothing of each other but where they meet.
bool NodeMachine::has_hosts(const wire::World& world) {
    const bool wanted = job_->endpoints || world.nodes <= limits::kEnvironmentHosts;
    if (world.table.empty() || world.table == table_.digest || !wanted) {
        awaiting_.reset();
        return true;
    }
    awaiting_ = world;
    wire::TableRequest request;
    request.generation = world.generation;
    send(request);
    return false;
}

void NodeMachine::hear(const wire::Table& table) {
    table_ = table;
    if (awaiting_ && awaiting_->table == table.digest && !stopping_) {
        hear_awaited();
    }
}

void NodeMachine::hear(const node_input::SetupEnded&) {
    setup_running_ = false;
    if (stopping_) {
        want(node_effect::LookAtLeaving{});
    } else if (awaiting_) {
        hear_awaited();
    }
}

// Meanwhile ranks may have started: of that generation, if its WORLD had come before.
void NodeMachine::hear_awaited() {
    const wire::World world = *std::exchange(awaiting_, std::nullopt);
    hear(world);
}

void NodeMachine::prepare(const wire::World& given) {
    if (!has_hosts(given)) {
        return;
    }
    if (setup_running_) {
        awaiting_ = given;
        return;
    }
    const bool again = is_current(given.generation);
    if (!again) {
        run_ = Generation{};
        run_.result.incarnation = incarnation_;
        run_.result.generation = given.generation;
        want(node_effect::BeginGeneration{given.generation});
    }
    run_.world = given;
    if (!given.table.empty() && given.table == table_.digest) {
        run_.world.hosts = table_.hosts;
        run_.world.addresses = table_.addresses;
        run_.world.ports = table_.ports;
    }
    want(node_effect::PrepareRanks{run_.world});
}

void NodeMachine::hear(const node_input::RanksPrepared& prepared) {
    if (!prepared.problem.empty()) {
        run_.phase = Phase::waiting;
        want(node_effect::DropRanks{});
        fault(-1, to_string(prepared.cause), prepared.problem);
        save_result();
        done();
        return;
    }
    run_.phase = Phase::ready;
    wire::Ready ready;
    ready.generation = run_.world.generation;
    send(ready);
}

void NodeMachine::hear(const wire::Start& start) {
    if (!is_current(start.generation) || run_.phase != Phase::ready) {
        log::info("start ignored", {{"generation", start.generation}});
        return;
    }
    if (job_->fixed) {
        want(node_effect::NoMorePeers{});
    }
    run_.phase = Phase::running;
    run_.saved = false;
    want(node_effect::StartRanks{});
}

void NodeMachine::hear(const node_input::RanksStarted& started) {
    if (!is_current(started.generation)) {
        return;  // the last task that came had ended already, and with it the generation
    }
    run_.started = started.ranks;
    log::info("ranks started",
              {{"generation", run_.world.generation}, {"ranks", run_.started.size()}});
    say_started();
}

void NodeMachine::hear(const node_input::RanksNotStarted& failed) {
    fault(-1, to_string(failed.cause), failed.why);
    if (!failed.running) {
        ranks_ended();
    }
}

void NodeMachine::hear(const node_input::RanksChanged& changed) {
    run_.started = changed.ranks;
    if (connected_) {
        say_started();
    }
}

void NodeMachine::hear(const node_input::RankExited& one) {
    run_.result.exits.push_back(one.exited);
    want(node_effect::Report{one.exited});
}

// The next generation may have begun with the effects beside that one.
void NodeMachine::hear(const node_input::ResultSaved& saved) {
    run_.saved = run_.saved || saved.generation == run_.result.generation;
}

void NodeMachine::ranks_ended() {
    run_.phase = Phase::waiting;
    want(node_effect::SendRows{});
    save_result();
    done();
    if (!stopping_) {
        want(node_effect::HoldPortsAgain{});
    }
    if (settling_) {
        want(node_effect::LookAtLeaving{});
    } else if (stopping_) {
        shut_down(std::chrono::milliseconds{0});
    } else if (next_world_) {
        const wire::World world = *std::exchange(next_world_, std::nullopt);
        if (world.generation > aborted_) {
            prepare(world);
        } else if (connected_) {
            join();
        }
    } else if (std::exchange(run_.join_wanted, false) && connected_) {
        join();
    }
}

void NodeMachine::hear(const wire::Abort& abort) {
    aborted_ = std::max(aborted_, abort.generation);
    if (awaiting_ && awaiting_->generation == abort.generation) {
        awaiting_.reset();
        if (!is_current(abort.generation)) {  // it left nothing here
            if (!stopping_) {
                join();
            }
            return;
        }
    }
    if (!is_current(abort.generation)) {
        return;
    }
    want(node_effect::StopEvidence{});
    log::info("generation aborted", {{"generation", abort.generation}, {"reason", abort.reason}});
    if (ranks_run()) {
        run_.join_wanted = true;
        want(node_effect::StopRanks{grace_of(abort.grace_ms)});
        return;
    }
    drop_ready_ranks();
    if (!stopping_) {
        join();
    }
}

void NodeMachine::hear(const wire::Stop& stop) {
    log::info("attempt is over", {{"reason", stop.reason}});
    farewell_.clear();
    outcome_ = parse_job_state(stop.outcome);
    shut_down(grace_of(stop.grace_ms));
}

void NodeMachine::hear(const wire::Fenced& fenced) {
    fence(fenced.message);
}

void NodeMachine::fence(const std::string& why) {
    if (settling_ && !fenced_) {
        // The attempt is over for the daemon too: it takes nothing any more.
        finish(code_at_end());
        return;
    }
    if (finished_ || std::exchange(fenced_, true)) {
        return;
    }
    stopping_ = true;
    settling_ = true;
    leave_until_ = now_.steady + timing_.settle;
    want(node_effect::LeaveLastWords{why});
    next_world_.reset();
    want(node_effect::EndStandbys{});
    want(node_effect::StopRanks{std::chrono::milliseconds{0}});
    want(node_effect::Leave{false});
}

void NodeMachine::hear(const wire::Examine& examine) {
    if (!is_current(examine.generation)) {
        return;
    }
    node_effect::Examine out;
    out.asked = examine;
    out.examined.generation = examine.generation;
    for (const wire::StartedRank& rank : run_.started) {
        const auto& exits = run_.result.exits;
        // Its process's number may be another's by now.
        const bool ended = !ranks_run() || std::any_of(exits.begin(), exits.end(), [&](auto& exit) {
            return exit.rank == rank.rank;
        });
        out.examined.ranks.push_back({rank.rank, rank.pid, ended ? "X" : "", ""});
        if (!ended) {
            out.living.push_back(rank);
        }
    }
    want(std::move(out));
}

void NodeMachine::hear(const wire::Profile& profile) {
    if (!is_current(profile.generation)) {
        return;
    }
    node_effect::Profile out;
    out.asked = profile;
    const auto& exits = run_.result.exits;
    for (const wire::StartedRank& rank : run_.started) {
        const bool ended = !ranks_run() || std::any_of(exits.begin(), exits.end(), [&](auto& exit) {
            return exit.rank == rank.rank;
        });
        if (!ended) {
            out.living.push_back(rank);
        }
    }
    want(std::move(out));
}

void NodeMachine::hear(const wire::AskSave& ask) {
    if (is_current(ask.generation)) {
        want(node_effect::LookForSignal{ask, ranks_run()});
    }
}

void NodeMachine::hear(const wire::Save& save) {
    if (is_current(save.generation) && ranks_run()) {
        want(node_effect::SignalRanks{});
    }
}

void NodeMachine::hear(const node_input::TimeLimitNear&) {
    if (ranks_run()) {
        want(node_effect::WarnRanks{run_.world.generation});
    }
}

void NodeMachine::hear(const node_input::FaultSeen& seen) {
    fault(seen.rank, to_string(seen.cause), seen.message);
}

void NodeMachine::fault(std::int32_t rank, std::string_view cause, const std::string& message) {
    log::error("fault", {{"rank", rank}, {"class", cause}, {"message", message}});
    wire::Fault fault;
    fault.generation = run_.world.generation;
    fault.rank = rank;
    fault.cause_class = cause;
    fault.message = message;
    fault.time = now_.wall;
    run_.result.faults.push_back(fault);
    want(node_effect::Report{std::move(fault)});
}

void NodeMachine::hear(const node_input::WarningSeen& seen) {
    if (!run_.warned.insert(seen.message).second) {
        return;
    }
    wire::Warned out;
    out.generation = run_.world.generation;
    out.rank = seen.rank;
    out.message = seen.message;
    want(node_effect::Report{std::move(out)});
}

}  // namespace lockstep
