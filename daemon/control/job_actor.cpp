// size: one input at a time: the loop, what it appends, what it does then, and what others see of
// it
#include "daemon/control/job_actor.hpp"

#include "daemon/control/node_notes.hpp"
#include "job/async/sleep.hpp"
#include "job/base/check.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kTick = std::chrono::seconds{1};
constexpr auto kViewAge = std::chrono::milliseconds{250};
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

}  // namespace

JobActor::JobActor(ControlContext& context, JobHooks hooks, Job job)
    : context_(context),
      hooks_(std::move(hooks)),
      job_(std::move(job)),
      wake_(context.io),
      retry_(context.io),
      run_(job_),
      anomaly_watch_(job_.spec.watch.straggler_score),
      resumed_(job_.generation() != nullptr) {
    aside_ = job_.state == JobState::held;
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
            if (std::holds_alternative<wire::Hello>(agent->message)) {
                // It was away when the job ended: let it deliver what it still has, and go.
                agent->link->send_text(welcome(*agent->link));
                agent->link->send(wire::Stop{"the job is over", 0});
            }
            std::visit(
                [&](const auto& message) {
                    if constexpr (requires { message.event; }) {
                        agent->link->acknowledge_event(message.event);
                    }
                },
                agent->message);
        } else if (auto* gone = std::get_if<AgentGoneInput>(&input)) {
            std::erase_if(run_.links,
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

void JobActor::forget_agents() {
    run_.links.clear();
    inputs_.clear();
}

bool JobActor::large() const {
    return job_.spec.resources.allocated_nodes() > kLargeJob;
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
            forgive_silence();
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
        if (run_.generation.keys) {
            send_answers(run_.generation.keys->expire(context_.clock.steady()));
        }
        if (saving_) {
            inputs_.emplace_back(LookInput{});
        }
    }
    end_saving(stopping_ ? fail(Errc::unavailable, "the daemon is stopping")
                         : fail(Errc::conflict, "the job is over"));
}

// Adds the event to the draft if it has a place there. What has none is stale or a repeat.
bool JobActor::add(Draft& draft, EventData data) {
    Event event;
    event.seq = job_.last_seq;  // the real number is given at the append
    event.job = job_.id;
    event.time = context_.clock.wall();
    event.data = std::move(data);
    if (const auto broken = broken_by(draft.job(), event.data)) {
        Job tried = draft.job();    // a copy
        if (apply(tried, event)) {  // else it is stale, and nothing is wrong
            report_broken(*broken, event);
        }
        return false;
    }
    if (const auto applied = apply(draft.own(), event); !applied) {
        log::debug("event has no place", {{"job", job_.id.value},
                                          {"event", to_string(event.kind())},
                                          {"why", applied.error().message}});
        return false;
    }
    draft.events.push_back(std::move(event));
    return true;
}

void JobActor::report_broken(Invariant invariant, const Event& event) {
    const auto index = static_cast<std::size_t>(invariant);
    if (!std::exchange(broken_reported_[index], true)) {
        context_.metrics.invariant_broken(index);
        log::error("a step was not taken: it would break a promise",
                   {{"job", job_.id.value},
                    {"invariant", kInvariantNames[index]},
                    {"event", to_string(event.kind())},
                    {"data", encode_event_data(event.data)}});
    }
}

JobRow JobActor::row(const Job& job) const {
    LiveView at_end = live();
    if (is_final(job.state)) {
        at_end.pending_reason.clear();
        at_end.expected_start = 0;
    }
    return row_of(job, dump_json(job_json(job, at_end)));
}

// What the events say of nodes that are the job's, by the scheduler's word. `later`: of those that
// it has not told of yet.
NodeNotes JobActor::vouched_notes(const Draft& draft, NodeNotes& later) const {
    const std::string machine = one_machine(context_.scheduler);
    NodeNotes notes = notes_of(draft.job(), draft.events, machine);
    if (!machine.empty()) {
        return notes;  // they all have lockstepd's own name for it
    }
    NodeWitness::Sorted sorted = witness_.sort(std::move(notes));
    later = std::move(sorted.later);
    if (sorted.foreign > 0) {
        log::info("not kept of nodes that are not the job's",
                  {{"job", job_.id.value}, {"notes", sorted.foreign}});
    }
    return std::move(sorted.now);
}

// Appends the draft's events and makes it the job. False: the disk is full, nothing changed.
Task<bool> JobActor::commit(Draft draft) {
    if (!draft.events.empty()) {
        Append append;
        NodeNotes later;
        bool notices = false;
        {
            const RoundTime time{round_};
            for (Event& event : draft.events) {
                event.seq = context_.store.next_seq();
            }
            draft.own().last_seq = draft.events.back().seq;
            append.events = draft.events;
            append.row = row(draft.job());
            append.notes = vouched_notes(draft, later);
            append.notices = hooks_.notices_of(draft.job(), draft.events);
            notices = !append.notices.empty();
        }
        const Status stored = co_await context_.store.append(std::move(append));
        if (!stored) {
            log::error("cannot store what happened to a job",
                       {{"job", job_.id.value}, {"what", stored.error().message}});
            for (const auto& answer : draft.answers) {
                answer(stored);
            }
            co_return false;
        }
        const bool was_waiting = job_.attempt() == nullptr || job_.attempt()->placed_at == 0;
        job_ = std::move(draft.own());
        witness_.keep(std::move(later));
        view_.reset();
        if (was_waiting && job_.attempt() != nullptr && job_.attempt()->placed_at != 0) {
            set_pending_reason("");  // of the queue, whoever told that it is over
            set_aside(false);
        }
        hooks_.on_events(*this, draft.events);
        if (notices) {
            hooks_.on_notices();
        }
    }
    for (const auto& [link, event] : draft.heard) {
        link->heard(event);
    }
    for (const auto& [link, event] : draft.heard) {
        link->acknowledge();
    }
    for (const auto& effect : draft.effects) {
        effect();
    }
    for (const auto& answer : draft.answers) {
        answer({});
    }
    co_return true;
}

// After what must be acted on at once; on a full disk not before it has been tried again in a
// while.
Task<void> JobActor::commit_and_look(Draft draft) {
    const bool stored = co_await commit(std::move(draft));
    if (stored) {
        inputs_.emplace_back(LookInput{});
    } else {
        co_await sleep_on(retry_, kStoreRetry);
    }
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
            deferred_.clear();
            Draft next = draft();
            {
                const RoundTime time{round_};
                for (JobInput& input : taken) {
                    std::visit([&](auto& one) { take(next, one); }, input);
                }
            }
            const bool stored = co_await commit(std::move(next));
            if (stored || stopping_) {
                inputs_.insert(inputs_.begin(), std::make_move_iterator(deferred_.begin()),
                               std::make_move_iterator(deferred_.end()));
                deferred_.clear();
                break;
            }
            // The commands were answered; the rest is tried again as a whole.
            std::erase_if(taken, [](const JobInput& input) {
                return std::visit(
                    [](const auto& one) {
                        return requires {
                            one.done;
                        };
                    },
                    input);
            });
            co_await sleep_on(retry_, kStoreRetry);
        }
    }
}

Task<void> JobActor::act() {
    const Action action = due(job_, context_.clock.wall());
    if (action.fault) {
        Draft next = draft();
        if (add(next, *action.fault)) {
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
            if (known && due(job_, context_.clock.wall()).kind == ActionKind::conclude) {
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
    event::Finished end = outcome(job_);
    run_.generation.stats.reset();
    if (const auto* stats = this->stats(); stats != nullptr && stats->step) {
        end.step = *stats->step;
    }
    const Attempt* attempt = job_.attempt();
    if (attempt != nullptr && attempt->finished_at == 0) {
        add_attempt_end(next, end.cause);
    }
    set_pending_reason("");
    if (!add(next, end)) {
        // Silence is no end: somebody has to look at it, or to cancel it.
        set_pending_reason("it seems to have ended, and nothing says how");
        co_await sleep_on(retry_, kStoreRetry);
        co_return;
    }
    const bool stored = co_await commit(std::move(next));
    if (!stored) {
        co_await sleep_on(retry_, kStoreRetry);
        co_return;
    }
    finished_ = true;
    log::info(
        "job finished",
        {{"job", job_.id.value}, {"state", to_string(job_.state)}, {"cause", job_.cause.message}});
    for (const auto& [node_rank, link] : run_.links) {
        if (!link->stop_sent) {
            link->stop_sent = true;
            wire::Stop stop;
            stop.reason = "the job is over";
            link->send(stop);
        }
    }
    // Whatever is still in the queue is answered as late news.
    std::deque<JobInput> late;
    late.swap(inputs_);
    for (JobInput& input : late) {
        post(std::move(input));
    }
    if (job_.attempt() != nullptr) {
        context_.scheduler.over(job_.id, job_.attempt()->number);
    }
    hooks_.on_finished(*this);
}

void JobActor::set_pending_reason(std::string reason, UnixMillis expected_start) {
    if (reason != pending_reason_ || expected_start != expected_start_) {
        pending_reason_ = std::move(reason);
        expected_start_ = expected_start;
        view_.reset();
    }
}

LiveView JobActor::live() const {
    LiveView out;
    out.pending_reason = pending_reason_;
    out.expected_start = expected_start_;
    if (run_.generation.stats) {
        out.step = run_.generation.stats->step;
        out.total_steps = run_.generation.stats->total_steps;
    }
    // Before that the view is not made anew as time passes, and it would tell of an old queue.
    out.now = job_.started_at != 0 ? context_.clock.wall() : 0;
    if (const auto* series = context_.series.find(job_.id.value)) {
        out.reports = series->generations();
    }
    return out;
}

const telemetry::JobStats* JobActor::stats() {
    const auto* series = context_.series.find(job_.id.value);
    if (series == nullptr) {
        return nullptr;
    }
    const auto now = context_.clock.steady();
    if (!run_.generation.stats || now - run_.generation.stats_at > kViewAge) {
        run_.generation.stats = telemetry::compute_job_stats(*series, context_.now_seconds());
        run_.generation.stats_at = now;
    }
    return &*run_.generation.stats;
}

std::shared_ptr<const std::string> JobActor::view() {
    const auto now = context_.clock.steady();
    const bool moving = job_.started_at != 0;
    if (!view_ || (moving && now - view_at_ > kViewAge)) {
        stats();
        view_ = std::make_shared<const std::string>(dump_json(job_json(job_, live())));
        view_at_ = now;
    }
    return view_;
}

const wire::StartedRank* JobActor::process(std::int32_t rank) const {
    const auto index = static_cast<std::size_t>(rank);
    const bool known = rank >= 0 && index < run_.processes.size() && run_.processes[index].pid > 0;
    return known ? &run_.processes[index] : nullptr;
}

}  // namespace lockstep
