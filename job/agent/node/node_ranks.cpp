#include "job/agent/node/node_ranks.hpp"

#include "job/agent/machine/start_cause.hpp"
#include "job/base/clock.hpp"
#include "job/base/log.hpp"
#include "job/model/spec/own_variables.hpp"

#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {

NodeRanks::NodeRanks(TaskGroup& tasks, Parts parts, Handlers handlers)
    : tasks_(tasks),
      parts_(parts),
      handlers_(std::move(handlers)),
      group_(tasks, group_handlers(), parts.config.timing),
      standbys_(tasks, parts.sockets.path(),
                {[this](std::int32_t local, std::string text) {
                     handlers_.warn(here_->world.first_rank + local, std::move(text));
                 },
                 [this] { group_.other_was_killed(); }},
                {}),
      children_(tasks, child_handlers()),
      rank_tasks_(tasks, parts.config, group_, task_handlers()),
      reports_(tasks, parts.config, {parts.outbox, children_, standbys_}, report_handlers()),
      ends_({children_, reports_, parts.environment, parts.clock}, [this](wire::Exited exited) {
          handlers_.take(node_input::RankExited{std::move(exited)});
      }) {}

RankGroup::Handlers NodeRanks::group_handlers() {
    RankGroup::Handlers out;
    out.captured = [this](std::int32_t rank, const std::vector<RankReport>& reports) {
        reports_.captured(rank, reports);
    };
    out.ending = [this](std::int32_t rank) {
        standbys_.ended(rank - here_->world.first_rank);
        reports_.ending(rank);
    };
    out.judge = [this](wire::Exited& exited, const RankGroup::LastWords& words) {
        const RankPlace place = planner().place_of(exited.rank - here_->world.first_rank);
        ends_.judge(exited, words, place.error_file);
    };
    out.exited = [this](wire::Exited exited) { ends_.exited(std::move(exited)); };
    out.unkillable = [this](std::int32_t rank, std::string why) {
        handlers_.fault(rank, CauseClass::node_lost, std::move(why));
    };
    out.all_ended = [this] { handlers_.take(node_input::RanksEnded{}); };
    out.printed = [this](std::string_view bytes) { children_.printed(bytes); };
    out.warned = handlers_.warn;
    out.warm = [this](std::int32_t rank, const SpawnRequest& request) {
        return standbys_.take(rank - here_->world.first_rank, request);
    };
    return out;
}

NodeChildren::Handlers NodeRanks::child_handlers() {
    NodeChildren::Handlers out;
    out.captured = [this](std::int32_t rank, const std::vector<RankReport>& reports) {
        reports_.captured(rank, reports);
    };
    out.node_log = [this](std::string_view bytes) {
        group_.append_log(here_->world.first_rank, bytes);
    };
    out.changed = [this] {
        handlers_.take(node_input::RanksChanged{children_.started()});
        handlers_.changed();
    };
    out.warn = handlers_.warn;
    out.stopping = [this] { return group_.stopping(); };
    out.catch_up = [this] { reports_.catch_up(); };
    return out;
}

RankReports::Handlers NodeRanks::report_handlers() {
    RankReports::Handlers out;
    out.connected = [this] { return parts_.machine.connected(); };
    out.wake = handlers_.wake;
    out.warn = handlers_.warn;
    return out;
}

RankPlanner NodeRanks::planner() const {
    return {parts_.config,           spec(),
            parts_.job.welcome(),    here_->world,
            parts_.sockets,          parts_.environment,
            parts_.job.address(),    parts_.ports.ras(),
            &parts_.nccl.inspector()};
}

void NodeRanks::perform(const node_effect::PrepareRanks& wanted) {
    here_.reset();  // first: what it has listened on is free again
    here_.emplace(Generation{wanted.world, CheckpointSignal{spec(), group_}});
    rank_tasks_.look_again();  // of the generation before, whose ABORT may have been lost
    if (!here_->world.address.empty()) {
        parts_.job.reached_at(here_->world.address);  // where its peers have reached it
    }
    reports_.expect(here_->world, spec().roles.empty(), has_launcher());
    ends_.begin(has_launcher());
    const Status prepared = prepare();
    handlers_.take(
        prepared ? node_input::RanksPrepared{}
                 : node_input::RanksPrepared{parts_.environment.masked(prepared.error().message),
                                             cause_of_start(prepared.error())});
}

// Everything that can be wrong is found here, before any rank starts anywhere.
Status NodeRanks::prepare() {
    if (auto good = parts_.ports.check(here_->world, needs_endpoints(spec())); !good) {
        return good;
    }
    if (!parts_.environment.problem().empty()) {
        return fail(Errc::invalid, parts_.environment.problem());
    }
    parts_.nccl.expect(spec(), here_->world);
    const RankPlanner plan = planner();
    const auto directory = plan.prepare_folders();
    LOCKSTEP_TRY(directory);
    here_->directory = *directory;
    if (spec().launch == Launch::task) {
        if (auto open = rank_tasks_.open(parts_.sockets.task_path()); !open) {
            return open;
        }
    }
    const std::int32_t started = has_launcher() ? 1 : here_->world.local_ranks;
    for (std::int32_t local = 0; local < started; ++local) {
        auto one = plan.plan_of(local, *directory, parts_.environment.base());
        LOCKSTEP_TRY(one);
        std::error_code ignored;  // of an earlier generation, if there was one
        std::filesystem::remove(plan.place_of(local).error_file, ignored);
        here_->plans.push_back(std::move(*one));
        if (auto listening = reports_.listen(local, parts_.sockets.socket_path(local));
            !listening) {
            return listening;
        }
    }
    for (std::string& warning : plan.bind(here_->plans)) {
        handlers_.warn(-1, std::move(warning));
    }
    return open_meeting_place();
}

// A fresh one, before READY leaves: no key outlives its generation.
Status NodeRanks::open_meeting_place() {
    if (here_->world.first_rank != 0 || has_launcher() || here_->plans.empty()) {
        return {};
    }
    auto place = MeetingPlace::open(
        tasks_, here_->world, here_->plans.front().process.environment, parts_.ports.master(),
        parts_.job.address(), [this](std::string refused) {
            handlers_.warn(-1, std::move(refused) +
                                   ". If that was one of its ranks: with \"environment\": "
                                   "{\"TORCHELASTIC_USE_AGENT_STORE\": \"False\"} rank 0 of torch "
                                   "serves the store, to everybody");
        });
    LOCKSTEP_TRY(place);
    here_->meeting_place = std::move(*place);
    return {};
}

void NodeRanks::perform(const node_effect::DropRanks&) {
    reports_.close();
    rank_tasks_.look_again();
}

void NodeRanks::perform(const node_effect::StartRanks&) {
    parts_.ports.release(here_->world, here_->meeting_place.serves());
    warn_of_missing_hooks();
    if (spec().launch == Launch::task) {
        expect_tasks();
        return;
    }
    start_processes();
}

void NodeRanks::start_processes() {
    std::vector<SpawnRequest> requests;
    if (!spec().recovery.warm_standby.empty()) {
        for (const RankGroup::RankPlan& plan : here_->plans) {
            requests.push_back(plan.process);
        }
    }
    auto started = group_.start(here_->world.generation, std::exchange(here_->plans, {}));
    if (!started) {
        not_started(started.error());
        return;
    }
    handlers_.take(node_input::RanksStarted{here_->world.generation, *started});
    if (has_launcher()) {
        begin_children(started->front().pid);
    }
    begin_standbys(std::move(requests), *started);
}

void NodeRanks::not_started(const Error& error) {
    handlers_.take(node_input::RanksNotStarted{
        cause_of_start(error), parts_.environment.masked(error.message), group_.running()});
}

// Once the ranks run, for the generation that may follow.
void NodeRanks::begin_standbys(std::vector<SpawnRequest> requests,
                               const std::vector<wire::StartedRank>& started) {
    std::vector<Standbys::Rank> ranks;
    for (std::size_t local = 0; local < requests.size(); ++local) {
        ranks.push_back({std::move(requests[local]), started[local].pid});
    }
    standbys_.begin(spec().recovery.warm_standby, std::move(ranks), parts_.environment.mask());
}

// Launch node: one process of this node starts its ranks itself. What they say and how they end
// comes to the same places as of ranks that the agent has started.
void NodeRanks::begin_children(std::int64_t launcher) {
    NodeChildren::Setup setup;
    setup.generation = here_->world.generation;
    setup.first_rank = here_->world.first_rank;
    setup.count = here_->world.local_ranks;
    setup.world_size = here_->world.world_size;
    setup.launcher = launcher;
    setup.node = parts_.config.name;
    setup.logs = parts_.config.attempt_directory;
    setup.mask = parts_.environment.mask();
    if (spec().capture.preset != "none" || !spec().capture.loss.empty()) {
        setup.capture = std::pair{spec().capture.preset, spec().capture.loss};
    }
    children_.begin(std::move(setup));
}

void NodeRanks::perform(const node_effect::LookForSignal& look) {
    const auto deaf = look.running ? here_->signal.find_deaf() : CheckpointSignal::Deaf{};
    wire::CanSave answer;
    answer.generation = look.asked.generation;
    answer.round = look.asked.round;
    answer.rank = deaf.rank;
    answer.problem = deaf.problem;
    parts_.outbox.control(answer);
}

void NodeRanks::perform(const node_effect::WarnRanks& warn) {
    const auto deaf = here_->signal.warn(std::chrono::steady_clock::now());
    wire::SaveAsked asked;
    asked.generation = warn.generation;
    asked.rank = deaf.rank;
    asked.problem = deaf.problem;
    asked.time = SystemClock{}.wall();
    parts_.outbox.event(std::move(asked));
}

void NodeRanks::look() {
    children_.look();
    if (group_.running() && !group_.stopping()) {
        standbys_.look();
    }
    reports_.look();
    if (here_) {
        here_->signal.warn_the_rest(std::chrono::steady_clock::now());
    }
}

void NodeRanks::close() {
    children_.close();
    standbys_.close();
    reports_.stop();
    rank_tasks_.close();
    if (here_) {
        here_->meeting_place = {};
    }
}

// Programs that were copied without their share folder run every job, and then name the wrong rank.
void NodeRanks::warn_of_missing_hooks() {
    const auto wanted = spec().environment.find(std::string{kPythonHooks});
    const bool off = wanted != spec().environment.end() && wanted->second == "off";
    const std::string& missing = parts_.config.missing_hooks;
    if (missing.empty() || spec().framework == Framework::native || off) {
        return;
    }
    log::warn("Lockstep's Python hooks are missing", {{"looked_for", missing}});
    handlers_.warn(-1, "Lockstep's Python hooks are not installed with its agent (" + missing +
                           " is missing): exceptions of Python ranks, the stacks of a hang and the "
                           "ranks of torchrun or mp.spawn are not seen, so the wrong rank may be "
                           "named as the cause of a failure");
}

}  // namespace lockstep
