#include "daemon/control/actor/job_actor.hpp"

#include "daemon/control/actor/input_answers.hpp"
#include "job/async/sleep.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// A round of a large job costs time for each of its nodes once something happens to it: it is
// copied and written down whole. So its messages are let gather before one, for some times what the
// last one took: a thousand nodes call in one by one.
constexpr int kGatherTimes = 6;
constexpr auto kGatherLeast = std::chrono::microseconds{1'000};
constexpr auto kGatherMost = std::chrono::microseconds{100'000};
}  // namespace

JobActor::JobActor(ControlContext& context, JobHooks hooks, Job job)
    : context_(context),
      hooks_(std::move(hooks)),
      files_(context.scheduler),
      machine_(std::move(job), files_,
               [this](std::int32_t attempt, const std::string& allocation) {
                   return context_.scheduler.may_claim(this->job().id, attempt, allocation);
               }),
      effects_(context_, machine_, inputs_, finished_),
      face_(context_, machine_),
      placement_(context_, machine_, *this, files_, this->job().state == JobState::held),
      append_(*this, *this, {context_, hooks_, machine_, effects_, face_, placement_}),
      wake_(context.io),
      retry_(context.io) {}

void JobActor::start() {
    if (!started_) {
        started_ = true;
        // The coroutine holds the actor until it ends.
        auto self = shared_from_this();
        auto task = [](std::shared_ptr<JobActor> actor) -> Task<void> { co_await actor->run(); };
        context_.tasks.spawn("job", task(std::move(self)));
    }
}

void JobActor::stop() {
    stopping_ = true;
    wake_.cancel();
    retry_.cancel();
}

void JobActor::post(JobInput input) {
    if (finished_) {
        take_late(std::move(input));
        return;
    }
    if (stopping_) {
        answer(input, fail(Errc::unavailable, "the daemon is stopping"));
        return;
    }
    inputs_.push_back(std::move(input));
    start();
    wake_.cancel();
}

// Late news of a job that is over: the agent is told that it was heard, so that it can leave.
void JobActor::take_late(JobInput input) {
    if (auto* agent = std::get_if<AgentInput>(&input)) {
        // One that was away when the job ended delivers what it still has, and goes.
        perform(machine_.acknowledge_late(*agent, "the job is over"));
    } else if (auto* gone = std::get_if<AgentGoneInput>(&input)) {
        std::erase_if(machine_.run().links,
                      [&](const auto& entry) { return entry.second == gone->link; });
    } else if (auto* cancel = std::get_if<CancelInput>(&input)) {
        cancel->done({});
    } else {
        answer(input, fail(Errc::conflict, "the job is over"));
    }
}

void JobActor::close_agents(const std::string& why) {
    for (const auto& [node, link] : links()) {
        link_of(link).close(why);
    }
}

void JobActor::forget_agents() {
    machine_.run().links.clear();
    inputs_.clear();
}

bool JobActor::large() const {
    return job().spec.resources.allocated_nodes() > kLargeJob;
}

Task<void> JobActor::wait_for_input() {
    if (inputs_.empty() && !stopping_) {
        // The timer's own clock, not the job's: it is about how late the timer is.
        const bool skipped = placement_.take_skipped_look();
        const auto pause = skipped ? kLookAtNodes : context_.settings.tick;
        const auto until = std::chrono::steady_clock::now() + pause;
        co_await sleep_on(wake_, pause);
        if (std::chrono::steady_clock::now() - until >= context_.settings.stalled) {
            machine_.restart_silence_timers(now());
        }
    }
}

Task<void> JobActor::run() {
    while (!stopping_ && !finished_) {
        co_await take_inputs();
        if (stopping_ || finished_) {
            break;
        }
        co_await act();
        if (finished_) {
            break;
        }
        co_await wait_for_input();
        perform(machine_.pass(now()));
    }
    perform(machine_.dismiss(stopping_ ? fail(Errc::unavailable, "the daemon is stopping")
                                       : fail(Errc::conflict, "the job is over")));
}

Surroundings JobActor::now() const {
    Surroundings out;
    out.steady = context_.clock.steady();
    out.wall = context_.clock.wall();
    out.timers = std::chrono::steady_clock::now();
    out.series = context_.series.find(job().id.value);
    out.scheduler = context_.scheduler.name();
    out.scheduler_title = context_.scheduler.title();
    out.scheduler_keeps_time_limit = context_.scheduler.keeps_time_limit();
    out.deaf = context_.settings.deaf;
    out.doubtful_ends_recover = context_.settings.doubtful_ends_recover;
    out.keep_on_node_fail = context_.settings.keep_on_node_fail;
    return out;
}

Task<bool> JobActor::commit_and_look(Draft draft) {
    const bool stored = co_await commit(draft);
    if (stored) {
        look_again();
    } else {
        co_await rest();
    }
    co_return stored;
}

Task<void> JobActor::rest() {
    co_await sleep_on(retry_, kStoreRetry);
}

Task<void> JobActor::take_inputs() {
    while (!inputs_.empty() && !stopping_) {
        const bool agents_spoke = std::any_of(
            inputs_.begin(), inputs_.end(),
            [](const JobInput& input) { return std::holds_alternative<AgentInput>(input); });
        if (large() && agents_spoke) {
            co_await sleep_on(retry_, std::clamp(kGatherTimes * round_, kGatherLeast, kGatherMost));
        }
        round_ = {};
        // Everything that has gathered shares one append.
        std::vector<JobInput> taken(std::make_move_iterator(inputs_.begin()),
                                    std::make_move_iterator(inputs_.end()));
        inputs_.clear();
        for (;;) {
            Draft next = [&] {
                const RoundTime time{round_};
                return machine_.take_all(taken, now());
            }();
            std::vector<JobInput> deferred = std::move(next.deferred);
            const bool stored = co_await commit(next);
            if (stored || stopping_) {
                inputs_.insert(inputs_.begin(), std::make_move_iterator(deferred.begin()),
                               std::make_move_iterator(deferred.end()));
                break;
            }
            // What agents said is tried again as a whole. Nobody else waits for room: neither who
            // has given a command, meanwhile too, nor ranks for a key.
            const Status full = fail(Errc::exhausted, "there is no room to store it");
            refuse_commands(taken, {});
            refuse_commands(inputs_, full);
            perform(machine_.dismiss(full));
            perform(machine_.pass(now()));
            co_await rest();
        }
    }
}

Task<void> JobActor::act() {
    const Action action = machine_.what_is_due(now());
    if (action.fault) {
        Draft next = machine_.draft(now());
        const bool added = next.add(*action.fault);
        prepare(next);
        if (added) {
            co_await commit_and_look(std::move(next));
        }
        co_return;
    }
    switch (action.kind) {
        case ActionKind::create_attempt:
            co_return co_await placement_.create_attempt();
        case ActionKind::place:
            co_return co_await placement_.place();
        case ActionKind::gather:
        case ActionKind::watch:
            co_return co_await placement_.look_at_allocation();
        case ActionKind::restart:
            if (machine_.run().stopping) {
                // STOP has been sent, and cannot be taken back: nobody is left here to start ranks.
                co_return co_await placement_.stop_attempt(action.cause);
            }
            co_return co_await placement_.restart_ranks(action.cause);
        case ActionKind::next_attempt:
        case ActionKind::stop:
            co_return co_await placement_.stop_attempt(action.cause);
        case ActionKind::conclude: {
            const bool known = co_await placement_.verdict();
            if (known && machine_.what_is_due(now()).kind == ActionKind::conclude) {
                co_await conclude();
            } else if (known) {
                look_again();  // the scheduler's word changes what follows
            }
            break;
        }
        case ActionKind::none:
            break;
    }
}

Task<void> JobActor::conclude() {
    const bool ended = co_await append_.append_end(round_);
    if (ended) {
        finish();
    }
}

void JobActor::finish() {
    finished_ = true;
    const auto say = job().state == JobState::failed ? log::warn : log::info;
    say("job finished", {{"job", job().id.value},
                         {"state", to_string(job().state)},
                         {"cause", job().cause.message}});
    perform(machine_.say_stop("the job is over"));
    // Whatever is still in the queue is answered as late news.
    std::deque<JobInput> late;
    late.swap(inputs_);
    for (JobInput& input : late) {
        post(std::move(input));
    }
    if (job().attempt() != nullptr) {
        context_.scheduler.over(job().id, job().attempt()->number);
    }
    hooks_.on_finished(*this);
}

}  // namespace lockstep
