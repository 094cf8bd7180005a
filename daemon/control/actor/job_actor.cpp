// size: one input at a time: the loop, what it appends, what it does then, and what others see of
// it
#include "daemon/control/actor/job_actor.hpp"

#include "job/async/sleep.hpp"
#include "job/base/check.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kTick = std::chrono::seconds{1};
// A round of a large job costs time for each of its nodes once something happens to it: it is
// copied and written down whole. So its messages are let gather before one, for some times what the
// last one took: a thousand nodes call in one by one.
constexpr int kGatherTimes = 6;
constexpr auto kGatherLeast = std::chrono::microseconds{1'000};
constexpr auto kGatherMost = std::chrono::microseconds{100'000};
// How soon the nodes of a large job are looked at again for who is not heard any more.
constexpr auto kLookAtNodes = std::chrono::milliseconds{100};
constexpr std::int32_t kLargeJob = 512;

// Adds what passes while it lives.
class RoundTime {
  public:
    explicit RoundTime(std::chrono::microseconds& sum) : sum_(sum) {}
    ~RoundTime() {
        sum_ += std::chrono::duration_cast<std::chrono::microseconds>(
            std::chrono::steady_clock::now() - began_);
    }
    RoundTime(const RoundTime&) = delete;
    RoundTime& operator=(const RoundTime&) = delete;

  private:
    std::chrono::microseconds& sum_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

AgentLink& link_of(const AgentPtr& agent) {
    return static_cast<AgentLink&>(*agent);  // a job has no other agents here
}

bool begins_generation(const std::vector<Event>& events) {
    return std::any_of(events.begin(), events.end(), [](const Event& one) {
        return std::holds_alternative<event::GenerationStarted>(one.data);
    });
}

}  // namespace

JobActor::JobActor(ControlContext& context, JobHooks hooks, Job job)
    : context_(context),
      hooks_(std::move(hooks)),
      files_(context.scheduler),
      machine_(std::move(job), files_,
               [this](std::int32_t attempt, const std::string& allocation) {
                   return context_.scheduler.may_claim(this->job().id, attempt, allocation);
               }),
      wake_(context.io),
      retry_(context.io) {
    aside_ = this->job().state == JobState::held;
}

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

namespace {

// Of a command that will not be taken up.
void answer(const JobInput& input, const Status& status) {
    std::visit(
        [&](const auto& one) {
            if constexpr (requires { one.done(status); }) {
                one.done(status);
            }
        },
        input);
}

}  // namespace

void JobActor::post(JobInput input) {
    if (finished_) {
        // Late news of a job that is over: the agent is told that it was heard, so that it can
        // leave.
        if (auto* agent = std::get_if<AgentInput>(&input)) {
            // One that was away when the job ended delivers what it still has, and goes.
            perform(JobMachine::acknowledge_late(*agent, "the job is over"));
        } else if (auto* gone = std::get_if<AgentGoneInput>(&input)) {
            std::erase_if(machine_.run().links,
                          [&](const auto& entry) { return entry.second == gone->link; });
        } else if (auto* cancel = std::get_if<CancelInput>(&input)) {
            cancel->done({});
        } else {
            answer(input, fail(Errc::conflict, "the job is over"));
        }
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

// Nobody's silence is told within less. A look that was too soon is made up for once it is due.
bool JobActor::nodes_are_due() {
    const auto now = context_.clock.steady();
    look_skipped_ = large() && nodes_looked_ && now - *nodes_looked_ < kLookAtNodes;
    if (!look_skipped_) {
        nodes_looked_ = now;
    }
    return !look_skipped_;
}

Task<void> JobActor::wait_for_input() {
    if (inputs_.empty() && !stopping_) {
        // The timer's own clock, not the job's: it is about how late the timer is.
        const bool skipped = std::exchange(look_skipped_, false);
        const auto pause = skipped ? kLookAtNodes : std::chrono::milliseconds{kTick};
        const auto until = std::chrono::steady_clock::now() + pause;
        co_await sleep_on(wake_, pause);
        if (std::chrono::steady_clock::now() - until >= context_.settings.stalled) {
            machine_.forgive_silence(now());
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
    out.deaf = context_.settings.deaf;
    out.doubtful_ends_recover = context_.settings.doubtful_ends_recover;
    out.keep_on_node_fail = context_.settings.keep_on_node_fail;
    return out;
}

void JobActor::prepare(Draft& draft) {
    for (const auto& [promise, event] : draft.broken) {
        report_broken(promise, event);
    }
    draft.broken.clear();
    perform(std::move(draft.at_once));
}

void JobActor::perform(Effects effects) {
    for (Effect& effect : effects.take()) {
        std::visit([this](auto& one) { perform(one); }, effect);
    }
}

void JobActor::perform(effect::Send& one) {
    link_of(one.to).send(one.message);
}

void JobActor::perform(effect::SendShared& one) {
    link_of(one.to).send_encoded(std::move(one.text));
}

void JobActor::perform(effect::Greet& one) {
    link_of(one.to).send_text(welcome(*one.to));
}

void JobActor::perform(effect::Close& one) {
    link_of(one.link).close(std::move(one.reason));
}

void JobActor::perform(effect::Acknowledge& one) {
    link_of(one.to).acknowledge_event(one.event);
}

void JobActor::perform(effect::Answer& one) {
    one.done(one.status);
}

void JobActor::perform(effect::Claimed& one) {
    context_.scheduler.claimed(job().id, one.attempt, one.allocation);
}

void JobActor::perform(effect::ExpectEnd& one) {
    context_.scheduler.expect_end(job().id, one.attempt);
}

void JobActor::perform(effect::AttemptOver& one) {
    context_.scheduler.over(job().id, one.attempt);
}

void JobActor::perform(effect::LookAgain&) {
    inputs_.emplace_back(LookInput{});
}

void JobActor::perform(effect::HearAgain& one) {
    inputs_.emplace_front(std::move(one.input));
}

void JobActor::report_broken(Invariant invariant, const Event& event) {
    const auto index = static_cast<std::size_t>(invariant);
    if (!std::exchange(broken_reported_[index], true)) {
        context_.metrics.invariant_broken(index);
        log::error("a step was not taken: it would break a promise",
                   {{"job", job().id.value},
                    {"invariant", kInvariantNames[index]},
                    {"event", to_string(event.kind())},
                    {"data", encode_event_data(event.data)}});
    }
}

// Appends the draft's events and makes it the job. False: the disk is full, its commands have been
// answered, and it is of no more use.
Task<bool> JobActor::commit(Draft& draft) {
    prepare(draft);
    NodeNotes later;
    OwedNotices owed;
    if (!draft.events.empty()) {
        Append append;
        {
            const RoundTime time{round_};
            for (Event& event : draft.events) {
                event.seq = context_.store.next_seq();
            }
            draft.own().last_seq = draft.events.back().seq;
            append.events = draft.events;
            append.row = row(draft.job());
            append.notes = vouched_notes(draft, later);
            owed = hooks_.notices_of(draft.job(), draft.events);
            append.notices = owed.rows;
        }
        const Status stored = co_await context_.store.append(std::move(append));
        if (!stored) {
            log::error("cannot store what happened to a job",
                       {{"job", job().id.value}, {"what", stored.error().message}});
            for (const auto& answer : draft.answers) {
                answer(stored);
            }
            machine_.not_stored(draft);
            co_return false;
        }
    }
    settle(draft, std::move(later), std::move(owed));
    co_return true;
}

// Its events are durable: tells and does what follows.
void JobActor::settle(Draft& draft, NodeNotes later, OwedNotices owed) {
    const bool was_waiting = job().attempt() == nullptr || job().attempt()->placed_at == 0;
    if (begins_generation(draft.events)) {
        if (auto* known = context_.series.at(job().id.value)) {
            known->have_ranks(static_cast<std::size_t>(draft.job().world_size()));
        }
    }
    Effects effects = machine_.stored(draft, now());
    if (!draft.events.empty()) {
        witness_.keep(std::move(later));
        view_.reset();
        if (was_waiting && job().attempt() != nullptr && job().attempt()->placed_at != 0) {
            set_pending_reason("");  // of the queue, whoever told that it is over
            set_aside(false);
        }
        hooks_.on_events(*this, draft.events);
        hooks_.on_notices(std::move(owed));
    }
    for (const auto& [link, event] : draft.heard) {
        link_of(link).heard(event);
    }
    for (const auto& [link, event] : draft.heard) {
        link_of(link).acknowledge();
    }
    perform(std::move(effects));
    for (const auto& answer : draft.answers) {
        answer({});
    }
}

namespace {

// Takes the commands out, whoever gave them is told why; nobody if they have been answered.
template <class Inputs>
void refuse_commands(Inputs& inputs, const std::optional<Status>& why) {
    std::erase_if(inputs, [&](const JobInput& input) {
        const bool command = std::visit(
            [](const auto& one) {
                return requires {
                    one.done;
                };
            },
            input);
        if (command && why) {
            answer(input, *why);
        }
        return command;
    });
}

}  // namespace

// After what must be acted on at once; on a full disk not before it has been looked at again in a
// while.
Task<bool> JobActor::commit_and_look(Draft draft) {
    const bool stored = co_await commit(draft);
    if (stored) {
        inputs_.emplace_back(LookInput{});
    } else {
        co_await sleep_on(retry_, kStoreRetry);
    }
    co_return stored;
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
            co_await sleep_on(retry_, kStoreRetry);
        }
    }
}

Task<void> JobActor::act() {
    const Action action = due(job(), context_.clock.wall());
    if (action.fault) {
        Draft next = draft();
        const bool added = next.add(*action.fault);
        prepare(next);
        if (added) {
            co_await commit_and_look(std::move(next));
        }
        co_return;
    }
    switch (action.kind) {
        case ActionKind::create_attempt:
            co_await create_attempt();
            break;
        case ActionKind::place:
            co_await place();
            break;
        case ActionKind::gather:
        case ActionKind::watch:
            co_await look_at_allocation();
            break;
        case ActionKind::restart:
            co_await restart_ranks(action.cause);
            break;
        case ActionKind::next_attempt:
        case ActionKind::stop:
            co_await stop_attempt(action.cause);
            break;
        case ActionKind::conclude: {
            const bool known = co_await verdict();
            if (known && due(job(), context_.clock.wall()).kind == ActionKind::conclude) {
                co_await conclude();
            } else if (known) {
                inputs_.emplace_back(LookInput{});  // the scheduler's word changes what follows
            }
            break;
        }
        case ActionKind::none:
            break;
    }
}

Task<void> JobActor::conclude() {
    co_await hooks_.flush_telemetry();
    Draft next = draft();
    event::Finished end = outcome(job());
    machine_.run().generation.stats.reset();  // the last reports may be younger
    if (const auto* stats = this->stats(); stats != nullptr && stats->step) {
        end.step = *stats->step;
    }
    const Attempt* attempt = job().attempt();
    if (attempt != nullptr && attempt->finished_at == 0) {
        machine_.end_attempt(next, end.cause);
    }
    set_pending_reason("");
    const bool added = next.add(end);
    prepare(next);
    if (!added) {
        // Silence is no end: somebody has to look at it, or to cancel it.
        set_pending_reason("it seems to have ended, and nothing says how");
        co_await sleep_on(retry_, kStoreRetry);
        co_return;
    }
    const bool stored = co_await commit(next);
    if (!stored) {
        co_await sleep_on(retry_, kStoreRetry);
        co_return;
    }
    finished_ = true;
    log::info("job finished", {{"job", job().id.value},
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
