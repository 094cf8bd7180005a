// size: the actor's loop and every action due() can ask for, which share its private state
#include "daemon/control/job_actor.hpp"

#include "daemon/control/attempt_files.hpp"
#include "daemon/control/job_metrics.hpp"
#include "job/async/sleep.hpp"
#include "job/base/check.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

namespace lockstep {
namespace {

constexpr auto kTick = std::chrono::seconds{1};
// A full disk is looked at again this often; nothing of the job is lost meanwhile.
constexpr auto kRetry = std::chrono::seconds{1};
constexpr auto kViewAge = std::chrono::milliseconds{250};

}  // namespace

JobActor::JobActor(ControlContext& context, Hooks hooks, Job job)
    : context_(context),
      hooks_(std::move(hooks)),
      job_(std::move(job)),
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
        // Late news of a job that is over: the agent is told that it was heard, so that it can
        // leave.
        if (auto* agent = std::get_if<AgentInput>(&input)) {
            if (std::holds_alternative<wire::Hello>(agent->message)) {
                // It was away when the job ended: let it deliver what it still has, and go.
                agent->link->send(welcome(*agent->link));
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
            std::erase_if(links_, [&](const auto& entry) { return entry.second == gone->link; });
        } else if (auto* cancel = std::get_if<CancelInput>(&input)) {
            cancel->done({});
        }
        return;
    }
    if (stopping_) {
        if (auto* cancel = std::get_if<CancelInput>(&input)) {
            cancel->done(fail(Errc::unavailable, "the daemon is stopping"));
        }
        return;
    }
    inputs_.push_back(std::move(input));
    start();
    wake_.cancel();
}

void JobActor::forget_agents() {
    links_.clear();
    inputs_.clear();
}

Task<void> JobActor::wait_for_input() {
    if (inputs_.empty() && !stopping_) {
        co_await sleep_on(wake_, kTick);
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
        if (exchange_) {
            send_answers(exchange_->expire(context_.clock.steady()));
        }
    }
}

JobActor::Draft JobActor::draft() const {
    Draft out;
    out.job = job_;
    return out;
}

// Adds the event to the draft if it has a place there. What has none is stale or a repeat.
bool JobActor::add(Draft& draft, EventData data) {
    Event event;
    event.seq = job_.last_seq;  // the real number is given at the append
    event.job = job_.id;
    event.time = context_.clock.wall();
    event.data = std::move(data);
    if (const auto applied = apply(draft.job, event); !applied) {
        log::debug("event has no place", {{"job", job_.id.value},
                                          {"event", to_string(event.kind())},
                                          {"why", applied.error().message}});
        return false;
    }
    draft.events.push_back(std::move(event));
    return true;
}

JobRow JobActor::row(const Job& job) const {
    JobRow out;
    out.id = job.id;
    out.user = job.user;
    out.name = job.spec.name;
    out.state = job.state;
    out.submitted_at = job.submitted_at;
    out.finished_at = job.finished_at;
    out.last_seq = job.last_seq;
    LiveView at_end = live();
    if (is_final(job.state)) {
        at_end.pending_reason.clear();
    }
    out.view = dump_json(job_json(job, at_end));
    return out;
}

// Appends the draft's events and makes it the job. False: the disk is full, nothing changed.
Task<bool> JobActor::commit(Draft draft) {
    if (!draft.events.empty()) {
        for (Event& event : draft.events) {
            event.seq = context_.store.next_seq();
        }
        draft.job.last_seq = draft.events.back().seq;
        Append append;
        append.events = draft.events;
        append.row = row(draft.job);
        const Status stored = co_await context_.store.append(std::move(append));
        if (!stored) {
            log::error("cannot store what happened to a job",
                       {{"job", job_.id.value}, {"what", stored.error().message}});
            for (const auto& answer : draft.answers) {
                answer(stored);
            }
            co_return false;
        }
        job_ = std::move(draft.job);
        view_.reset();
        hooks_.on_events(*this, draft.events);
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
        co_await sleep_on(retry_, kRetry);
    }
}

Task<void> JobActor::take_inputs() {
    while (!inputs_.empty() && !stopping_) {
        // Everything that has gathered shares one append.
        std::vector<JobInput> taken(std::make_move_iterator(inputs_.begin()),
                                    std::make_move_iterator(inputs_.end()));
        inputs_.clear();
        for (;;) {
            deferred_.clear();
            Draft next = draft();
            for (JobInput& input : taken) {
                std::visit([&](auto& one) { take(next, one); }, input);
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
                return std::holds_alternative<CancelInput>(input);
            });
            co_await sleep_on(retry_, kRetry);
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
        case ActionKind::stop:
            co_await stop_attempt(action.cause);
            break;
        case ActionKind::conclude:
            co_await conclude();
            break;
        case ActionKind::none:
            break;
    }
}

AttemptRequest JobActor::request() const {
    const Attempt& attempt = *job_.attempt();
    AttemptRequest out;
    out.job = job_.id;
    out.attempt = attempt.number;
    out.name = job_.spec.name;
    out.resources = job_.spec.resources;
    out.directory = attempt.directory;
    return out;
}

Task<void> JobActor::create_attempt() {
    const auto number = static_cast<std::int32_t>(job_.attempts.size()) + 1;
    const std::function<Result<PreparedAttempt>()> prepare =
        [runs = context_.settings.runs_dir, id = job_.id, number, nodes = job_.spec.resources.nodes,
         url = context_.settings.agent_url] {
            return prepare_attempt(runs, id, number, nodes, url);
        };
    const auto prepared = co_await on_thread<Result<PreparedAttempt>>(context_.files, prepare);
    if (!prepared) {
        set_pending_reason("cannot prepare the attempt: " + prepared.error().message);
        log::warn("cannot prepare an attempt",
                  {{"job", job_.id.value}, {"what", prepared.error().message}});
        co_return;  // tried again at the next tick
    }
    event::AttemptCreated created;
    created.attempt = number;
    created.ticket_hash = prepared->ticket_hash;
    created.directory = prepared->directory;
    Draft next = draft();
    add(next, std::move(created));
    const bool stored = co_await commit(std::move(next));
    if (stored) {
        set_pending_reason("");
        hooks_.on_attempt(*this);
        inputs_.emplace_back(LookInput{});
    }
}

Task<void> JobActor::place() {
    const std::int32_t number = job_.attempt()->number;
    if (!submitted_) {
        const auto placed = co_await context_.scheduler.submit(request());
        if (!placed && placed.error().code == Errc::unavailable) {
            set_pending_reason("the scheduler does not answer: " + placed.error().message);
            co_return;
        }
        if (!placed) {
            event::FaultSeen fault;
            fault.attempt = number;
            fault.cause_class = to_string(CauseClass::scheduler);
            fault.message = placed.error().message;
            fault.at = context_.clock.wall();
            Draft next = draft();
            add(next, std::move(fault));
            co_await commit_and_look(std::move(next));
            co_return;
        }
        submitted_ = true;
    }
    const Observation seen = co_await context_.scheduler.poll(job_.id, number);
    if (seen.kind == Observation::Kind::absent) {
        submitted_ = false;  // forgotten: hand it over again
    } else if (seen.kind == Observation::Kind::state && seen.state == AllocationState::pending) {
        set_pending_reason(seen.reason);
    } else if (seen.kind == Observation::Kind::state) {
        event::AttemptPlaced placed;
        placed.attempt = number;
        placed.scheduler_id = std::string{context_.scheduler.name()} + "-" + job_.id.value + "-a" +
                              std::to_string(number);
        Draft next = draft();
        add(next, std::move(placed));
        const bool stored = co_await commit(std::move(next));
        if (stored) {
            set_pending_reason("");
            inputs_.emplace_back(LookInput{});
        }
    }
}

Task<void> JobActor::look_at_allocation() {
    if (!submitted_) {
        // After a restart of the daemon: the driver adopts what it finds of the attempt.
        const auto adopted = co_await context_.scheduler.submit(request());
        submitted_ = adopted.has_value();
    }
    const Observation seen = co_await context_.scheduler.poll(job_.id, job_.attempt()->number);
    Draft next = draft();
    if (seen.kind == Observation::Kind::state) {
        read_results(next, seen);
    }
    note_lost_agents(next);
    if (!next.events.empty()) {
        co_await commit_and_look(std::move(next));
    }
}

// Ends what runs: STOP to every agent, then by force. What the ranks did is heard as usual; this is
// called again with every input and tick until due() says conclude.
Task<void> JobActor::stop_attempt(Cause cause) {
    const auto now = context_.clock.steady();
    if (!stop_sent_) {
        stop_sent_ = now;
        log::info(
            "stopping job",
            {{"job", job_.id.value}, {"class", to_string(cause.kind)}, {"why", cause.message}});
    }
    for (const auto& [node_rank, link] : links_) {
        if (!link->stop_sent) {
            link->stop_sent = true;
            wire::Stop stop;
            stop.reason = cause.message;
            stop.grace_ms = std::chrono::milliseconds{limits::kStopGrace}.count();
            link->send(stop);
        }
    }
    const std::int32_t number = job_.attempt()->number;
    if (!submitted_) {
        // The daemon was restarted while it was stopping this attempt: the driver must know its
        // agents before it can end them. What was not started must not start now.
        const auto adopted = co_await context_.scheduler.adopt(request());
        if (!adopted) {
            set_pending_reason("the scheduler does not answer: " + adopted.error().message);
            co_return;
        }
        submitted_ = true;
    }
    const bool overdue = now - *stop_sent_ > limits::kStopGrace + std::chrono::seconds{5};
    if ((links_.empty() || overdue) && !cancel_sent_) {
        const Status cancelled = co_await context_.scheduler.cancel(job_.id, number);
        cancel_sent_ = cancelled.has_value();
    }
    const Observation seen = co_await context_.scheduler.poll(job_.id, number);
    const bool over =
        seen.kind == Observation::Kind::absent ||
        (seen.kind == Observation::Kind::state && seen.state == AllocationState::ended);
    Draft next = draft();
    if (over) {
        read_results(next, seen);
    }
    const bool stored = co_await commit(std::move(next));
    if (!stored) {
        co_await sleep_on(retry_, kRetry);  // what the ranks did is not lost: their files are there
        co_return;
    }
    if (over && inputs_.empty()) {
        co_await conclude();
    }
}

Task<void> JobActor::conclude() {
    co_await hooks_.flush_telemetry();
    Draft next = draft();
    event::Finished end = outcome(job_);
    stats_.reset();
    if (const auto* stats = this->stats(); stats != nullptr && stats->step) {
        end.step = *stats->step;
    }
    const Attempt* attempt = job_.attempt();
    if (attempt != nullptr && attempt->finished_at == 0) {
        if (const Generation* generation = job_.generation()) {
            event::GenerationEnded ended;
            ended.attempt = attempt->number;
            ended.generation = generation->number;
            ended.cause = end.cause;
            add(next, std::move(ended));
        }
        event::AttemptEnded ended;
        ended.attempt = attempt->number;
        ended.cause = end.cause;
        add(next, std::move(ended));
    }
    pending_reason_.clear();
    LOCKSTEP_CHECK(add(next, end));
    const bool stored = co_await commit(std::move(next));
    if (!stored) {
        co_await sleep_on(retry_, kRetry);
        co_return;
    }
    finished_ = true;
    log::info(
        "job finished",
        {{"job", job_.id.value}, {"state", to_string(job_.state)}, {"cause", job_.cause.message}});
    for (const auto& [node_rank, link] : links_) {
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
    hooks_.on_finished(*this);
}

void JobActor::set_pending_reason(std::string reason) {
    if (reason != pending_reason_) {
        pending_reason_ = std::move(reason);
        view_.reset();
    }
}

LiveView JobActor::live() const {
    LiveView out;
    out.pending_reason = pending_reason_;
    if (stats_) {
        out.step = stats_->step;
        out.total_steps = stats_->total_steps;
    }
    if (const auto* series = context_.series.find(job_.id.value)) {
        out.ettr = ettr(job_, *series, context_.clock.wall());
    }
    return out;
}

const telemetry::JobStats* JobActor::stats() {
    const auto* series = context_.series.find(job_.id.value);
    if (series == nullptr) {
        return nullptr;
    }
    const auto now = context_.clock.steady();
    if (!stats_ || now - stats_at_ > kViewAge) {
        stats_ = telemetry::compute_job_stats(*series, context_.now_seconds());
        stats_at_ = now;
    }
    return &*stats_;
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

std::optional<std::size_t> JobActor::stragglers() {
    const telemetry::JobStats* now = stats();
    if (now == nullptr || now->straggler_score.empty()) {
        return std::nullopt;
    }
    return straggler_watch_.update(*now, context_.now_seconds()).size();
}

std::int64_t JobActor::pid(std::int32_t rank) const {
    const auto found = pids_.find(rank);
    return found == pids_.end() ? 0 : found->second;
}

}  // namespace lockstep
