// The ranks' side of a node: what is made for a generation, how its processes start, how they end.
#include "job/agent/machine/start_cause.hpp"
#include "job/agent/node/node.hpp"
#include "job/agent/ranks/failure_notes.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/spec/own_variables.hpp"
#include "job/model/state.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace lockstep {

RankGroup::Handlers Node::group_handlers() {
    RankGroup::Handlers out;
    out.captured = [this](std::int32_t rank, const std::vector<RankReport>& reports) {
        reports_.captured(rank, reports);
    };
    out.ending = [this](std::int32_t rank) { on_rank_ending(rank); };
    out.judge = [this](wire::Exited& exited, const RankGroup::LastWords& words) {
        judge(exited, words);
    };
    out.exited = [this](wire::Exited exited) { on_rank_exited(std::move(exited)); };
    out.unkillable = [this](std::int32_t rank, std::string why) {
        fault(rank, CauseClass::node_lost, std::move(why));
    };
    out.all_ended = [this] { take(node_input::RanksEnded{}); };
    out.printed = [this](std::string_view bytes) { children_.printed(bytes); };
    out.warned = [this](std::int32_t rank, std::string what) { warn(rank, std::move(what)); };
    out.warm = [this](std::int32_t rank, const SpawnRequest& request) {
        return standbys_.take(rank - here_->world.first_rank, request);
    };
    return out;
}

NodeChildren::Handlers Node::child_handlers() {
    NodeChildren::Handlers out;
    out.captured = [this](std::int32_t rank, const std::vector<RankReport>& reports) {
        reports_.captured(rank, reports);
    };
    out.node_log = [this](std::string_view bytes) {
        group_.append_log(here_->world.first_rank, bytes);
    };
    out.changed = [this] {
        take(node_input::RanksChanged{children_.started()});
        follow_ranks();
    };
    out.warn = [this](std::int32_t rank, std::string message) { warn(rank, std::move(message)); };
    out.stopping = [this] { return group_.stopping(); };
    out.catch_up = [this] { reports_.catch_up(); };
    return out;
}

RankReports::Handlers Node::report_handlers() {
    RankReports::Handlers out;
    out.connected = [this] { return machine_.connected(); };
    out.wake = [this] { wake_(); };
    out.warn = [this](std::int32_t rank, std::string message) { warn(rank, std::move(message)); };
    return out;
}

NcclReports::Handlers Node::nccl_handlers() {
    NcclReports::Handlers out;
    out.seen = [this](std::int32_t rank, const RankReport& row) { reports_.seen(rank, row); };
    out.wake = [this] { wake_(); };
    out.warn = [this](std::string message) { warn(-1, std::move(message)); };
    return out;
}

RankPlanner Node::planner() const {
    return {config_,      job_.spec(),    job_.welcome(), here_->world,      sockets_,
            environment_, job_.address(), ports_.ras(),   &nccl_.inspector()};
}

void Node::perform(const node_effect::PrepareRanks& prepare) {
    here_.reset();  // first: what it has listened on is free again
    here_.emplace(Generation{prepare.world, CheckpointSignal{job_.spec(), group_}});
    rank_tasks_.look_again();  // of the generation before, whose ABORT may have been lost
    if (!here_->world.address.empty()) {
        job_.reached_at(here_->world.address);  // where its peers have reached it
    }
    reports_.expect(here_->world, job_.spec().roles.empty(), has_launcher());
    const Status prepared = prepare_ranks();
    take(prepared ? node_input::RanksPrepared{}
                  : node_input::RanksPrepared{environment_.masked(prepared.error().message),
                                              cause_of_start(prepared.error())});
}

// Everything that can be wrong is found here, before any rank starts anywhere.
Status Node::prepare_ranks() {
    if (auto good = ports_.check(here_->world, needs_endpoints(job_.spec())); !good) {
        return good;
    }
    if (!environment_.problem().empty()) {
        return fail(Errc::invalid, environment_.problem());
    }
    nccl_.expect(job_.spec(), here_->world);
    const RankPlanner plan = planner();
    const auto directory = plan.prepare_folders();
    LOCKSTEP_TRY(directory);
    here_->directory = *directory;
    if (job_.spec().launch == Launch::task) {
        if (auto open = rank_tasks_.open(sockets_.task_path()); !open) {
            return open;
        }
    }
    const std::int32_t started = has_launcher() ? 1 : here_->world.local_ranks;
    for (std::int32_t local = 0; local < started; ++local) {
        auto one = plan.plan_of(local, *directory, environment_.base());
        LOCKSTEP_TRY(one);
        std::error_code ignored;  // of an earlier generation, if there was one
        std::filesystem::remove(plan.place_of(local).error_file, ignored);
        here_->plans.push_back(std::move(*one));
        if (auto listening = reports_.listen(local, sockets_.socket_path(local)); !listening) {
            return listening;
        }
    }
    for (std::string& warning : plan.bind(here_->plans)) {
        warn(-1, std::move(warning));
    }
    return open_meeting_place();
}

// A fresh one, before READY leaves: no key outlives its generation.
Status Node::open_meeting_place() {
    if (here_->world.first_rank != 0 || has_launcher() || here_->plans.empty()) {
        return {};
    }
    auto place = MeetingPlace::open(
        tasks_, here_->world, here_->plans.front().process.environment, ports_.master(),
        job_.address(), [this](std::string refused) {
            warn(-1, std::move(refused) +
                         ". If that was one of its ranks: with \"environment\": "
                         "{\"TORCHELASTIC_USE_AGENT_STORE\": \"False\"} rank 0 of torch serves "
                         "the store, to everybody");
        });
    LOCKSTEP_TRY(place);
    here_->meeting_place = std::move(*place);
    return {};
}

void Node::perform(const node_effect::DropRanks&) {
    reports_.close();
    rank_tasks_.look_again();
}

void Node::perform(const node_effect::StartRanks&) {
    ports_.release(here_->world, here_->meeting_place.serves());
    warn_of_missing_hooks();
    if (job_.spec().launch == Launch::task) {
        expect_tasks();
        return;
    }
    start_processes();
}

void Node::start_processes() {
    std::vector<SpawnRequest> requests;
    if (!job_.spec().recovery.warm_standby.empty()) {
        for (const RankGroup::RankPlan& plan : here_->plans) {
            requests.push_back(plan.process);
        }
    }
    auto started = group_.start(here_->world.generation, std::exchange(here_->plans, {}));
    if (!started) {
        take(node_input::RanksNotStarted{cause_of_start(started.error()),
                                         environment_.masked(started.error().message),
                                         group_.running()});
        return;
    }
    take(node_input::RanksStarted{here_->world.generation, *started});
    if (has_launcher()) {
        begin_children(started->front().pid);
    }
    begin_standbys(std::move(requests), *started);
}

void Node::perform(const node_effect::StopRanks& stop) {
    group_.stop(stop.grace);
}

// Once the ranks run, for the generation that may follow.
void Node::begin_standbys(std::vector<SpawnRequest> requests,
                          const std::vector<wire::StartedRank>& started) {
    std::vector<Standbys::Rank> ranks;
    for (std::size_t local = 0; local < requests.size(); ++local) {
        ranks.push_back({std::move(requests[local]), started[local].pid});
    }
    standbys_.begin(job_.spec().recovery.warm_standby, std::move(ranks), environment_.mask());
}

// Launch node: one process of this node starts its ranks itself. What they say and how they end
// comes to the same places as of ranks that the agent has started.
void Node::begin_children(std::int64_t launcher) {
    NodeChildren::Setup setup;
    setup.generation = here_->world.generation;
    setup.first_rank = here_->world.first_rank;
    setup.count = here_->world.local_ranks;
    setup.world_size = here_->world.world_size;
    setup.launcher = launcher;
    setup.node = config_.name;
    setup.logs = config_.attempt_directory;
    setup.mask = environment_.mask();
    if (job_.spec().capture.preset != "none" || !job_.spec().capture.loss.empty()) {
        setup.capture = std::pair{job_.spec().capture.preset, job_.spec().capture.loss};
    }
    children_.begin(std::move(setup));
}

void Node::on_rank_ending(std::int32_t rank) {
    standbys_.ended(rank - here_->world.first_rank);
    reports_.ending(rank);
}

void Node::on_rank_exited(wire::Exited exited) {
    reports_.flush();
    if (!has_launcher()) {
        exited.step = reports_.last_step(exited.rank);
        environment_.mask_end(exited);
        take(node_input::RankExited{std::move(exited)});
        return;
    }
    for (NodeChildren::Ended& one : children_.ends(exited)) {
        judge_child(one);
        if (!one.exited.launcher) {
            one.exited.step = reports_.last_step(one.exited.rank);
        }
        environment_.mask_end(one.exited);
        take(node_input::RankExited{std::move(one.exited)});
    }
}

void Node::judge(wire::Exited& exited, const RankGroup::LastWords& words) {
    if (has_launcher()) {
        here_->launcher_words = words;  // judged with its ranks
        return;
    }
    std::vector<ExceptionNote> notes = reports_.take_notes(exited.rank);
    auto recorded = read_error_file(
        planner().place_of(exited.rank - here_->world.first_rank).error_file, words.pid);
    if (recorded) {  // what the hooks have told is told better
        notes.insert(notes.begin(), std::move(*recorded));
    }
    judge_exit(exited, words, std::move(notes), clock_.known_offset());
}

// Why a rank failed: by what its own processes have told and printed. Of a launcher by all that is
// known of no rank.
void Node::judge_child(NodeChildren::Ended& ended) {
    if (ended.exited.exit_code == 0) {
        return;
    }
    RankGroup::LastWords words;
    std::vector<ExceptionNote> notes;
    if (ended.exited.launcher) {
        words = here_->launcher_words;
        notes = reports_.launcher_notes();
    } else {
        words.pid = ended.pid;
        words.output = std::move(ended.output);
        notes = reports_.take_notes(ended.exited.rank);
    }
    judge_exit(ended.exited, words, std::move(notes), clock_.known_offset());
}

void Node::follow_ranks() {
    // Before there is a generation there may be no specification either.
    if (here_ && !machine_.finished()) {
        nccl_.follow(job_.spec(), here_->world);
    }
    gpus_.follow(machine_.started(), !machine_.finished() && !preflight_.looking());
}

// Programs that were copied without their share folder run every job, and then name the wrong rank.
void Node::warn_of_missing_hooks() {
    const auto wanted = job_.spec().environment.find(std::string{kPythonHooks});
    const bool off = wanted != job_.spec().environment.end() && wanted->second == "off";
    if (config_.missing_hooks.empty() || job_.spec().framework == Framework::native || off) {
        return;
    }
    log::warn("Lockstep's Python hooks are missing", {{"looked_for", config_.missing_hooks}});
    warn(-1, "Lockstep's Python hooks are not installed with its agent (" + config_.missing_hooks +
                 " is missing): exceptions of Python ranks, the stacks of a hang and the "
                 "ranks of torchrun or mp.spawn are not seen, so the wrong rank may be "
                 "named as the cause of a failure");
}

void Node::warn(std::int32_t rank, std::string message) {
    take(node_input::WarningSeen{rank, environment_.masked(std::move(message))});
}

void Node::fault(std::int32_t rank, CauseClass cause, std::string message) {
    take(node_input::FaultSeen{rank, cause, environment_.masked(std::move(message))});
}

void Node::perform(const node_effect::Profile& profile) {
    ProfileQuestion question;
    question.sockets = sockets_.path();
    question.folder = config_.attempt_directory;
    question.generation = profile.asked.generation;
    question.number = profile.asked.number;
    question.seconds = std::clamp<std::int64_t>(profile.asked.seconds, 1, limits::kProfileSeconds);
    question.living = profile.living;
    for (const std::int32_t local : profile.asked.ranks) {
        question.wanted.push_back(here_->world.first_rank + local);
    }
    profiles_.take(std::move(question), [this](wire::Profiled profiled) {
        outbox_.control(std::move(profiled));
        wake_();
    });
}

}  // namespace lockstep
