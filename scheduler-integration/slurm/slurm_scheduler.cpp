// size: one coroutine class: turns, sending, the poll loop and the answers share its private state
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include "job/async/on_thread.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace lockstep {
namespace {

constexpr auto kClockSkew = std::chrono::seconds{60};
constexpr double kReadBurst = 4;
constexpr auto kLastSends = std::chrono::seconds{3};
// What was acknowledged is looked at this soon: slurmctld saves its state within 5 s, and what it
// had not saved when it died is forgotten.
constexpr auto kFirstAudit = std::chrono::seconds{10};

std::string signature(const Observation& seen) {
    return std::to_string(static_cast<int>(seen.kind)) + "/" +
           std::to_string(static_cast<int>(seen.state)) + "/" + seen.id + "/" + seen.reason + "/" +
           seen.message;
}

// The part of an attempt's Slurm name that no other attempt has: <ulid>-a<attempt>.
std::string key_of(const JobId& job, std::int32_t attempt) {
    std::string out = job.value.substr(job.value.find('-') + 1) + "-a" + std::to_string(attempt);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

// The same of a job's name in Slurm; "" if it is not one of ours.
std::string key_of(const std::string& name) {
    constexpr std::size_t kUlid = 26;
    if (!is_slurm_job_name(name)) {
        return "";
    }
    return name.substr(name.rfind("-a") - kUlid);
}

}  // namespace

SlurmScheduler::SlurmScheduler(net::io_context& io, const Clock& clock,
                               std::unique_ptr<SlurmBackend> backend, Options options)
    : io_(io),
      clock_(clock),
      backend_(std::move(backend)),
      options_(std::move(options)),
      files_(options_.submissions_at_once),
      poll_timer_(io),
      tasks_(io) {
    tokens_at_ = clock_.steady();
    last_query_ = tokens_at_;
    last_change_ = tokens_at_;
}

SlurmScheduler::~SlurmScheduler() = default;

Task<Status> SlurmScheduler::begin() {
    auto facts = co_await backend_->probe();
    if (facts) {
        facts_ = std::move(*facts);
        for (const std::string& warning : version_warnings(facts_->version)) {
            log::warn("about this Slurm", {{"what", warning}});
        }
        log::info("Slurm answers", {{"version", to_string(facts_->version)},
                                    {"cluster", facts_->config.cluster},
                                    {"partitions", facts_->partitions.size()},
                                    {"accounting", facts_->config.has_accounting()},
                                    {"min_job_age", facts_->config.min_job_age}});
    } else if (facts.error().code == Errc::not_found || facts.error().code == Errc::invalid) {
        co_return fail(facts.error());
    } else {
        reachable_ = false;
        unreachable_why_ = "Slurm does not answer: " + facts.error().message;
        log::warn("Slurm does not answer yet", {{"what", facts.error().message}});
    }
    tasks_.spawn("slurm poll", poll_loop());
    co_return Status{};
}

// --- attempts ------------------------------------------------------------------------------------

SlurmScheduler::TrackedPointer SlurmScheduler::find(const JobId& job, std::int32_t attempt) const {
    const auto found = tracked_.find(key_of(job, attempt));
    return found == tracked_.end() ? nullptr : found->second;
}

SlurmScheduler::TrackedPointer SlurmScheduler::track(const AttemptRequest& request) {
    std::string key = key_of(request.job, request.attempt);
    auto& place = tracked_[key];
    if (!place) {
        place = std::make_shared<Tracked>();
        place->key = std::move(key);
        place->attempt = take_up(request, clock_.steady());
        if (place->attempt.stage == SlurmAttempt::Stage::in_doubt) {
            ++counters_.unclear;
        }
        if (place->attempt.stage != SlurmAttempt::Stage::idle ||
            request.submission == Submission::manual) {
            hurry();
        }
        poll_timer_.cancel();  // the loop may be in a long sleep: nothing was followed
    } else {
        place->attempt.request = request;
    }
    return place;
}

// A turn is given before the intent is written: what only waits in line is not in doubt after a
// crash.
bool SlurmScheduler::take_turn(Tracked& tracked) {
    if (tracked.has_turn) {
        return true;
    }
    const bool first = turn_.empty() || turn_.front() == tracked.key;
    if (reachable_ && first && turns_taken_ < options_.submissions_at_once) {
        if (std::exchange(tracked.in_line, false)) {
            turn_.pop_front();
        }
        tracked.has_turn = true;
        ++turns_taken_;
        return true;
    }
    if (!std::exchange(tracked.in_line, true)) {
        turn_.push_back(tracked.key);
    }
    return false;
}

void SlurmScheduler::give_turn_back(Tracked& tracked) {
    if (std::exchange(tracked.has_turn, false)) {
        --turns_taken_;
    }
    if (std::exchange(tracked.in_line, false)) {
        std::erase(turn_, tracked.key);
    }
    if (!turn_.empty()) {
        if (const auto next = tracked_.find(turn_.front()); next != tracked_.end()) {
            net::post(io_, [this, request = next->second->attempt.request] {
                if (changed_ && !stopped_) {
                    changed_(request.job, request.attempt);
                }
            });
        } else {
            turn_.pop_front();
        }
    }
}

Task<Handover> SlurmScheduler::submit(AttemptRequest request) {
    const TrackedPointer tracked = track(request);
    Handover out = handover(tracked->attempt);
    if (request.submission == Submission::manual && tracked->attempt.id == 0 &&
        out.kind == Handover::Kind::placed) {
        const Status written = co_await write_script(request);
        if (!written) {
            out.kind = Handover::Kind::wait;
            out.reason = "cannot write the batch script: " + written.error().message;
        }
        co_return out;
    }
    if (out.kind != Handover::Kind::again) {
        co_return out;
    }
    if (!take_turn(*tracked)) {
        out.kind = Handover::Kind::wait;
        out.reason = reachable_ ? "waiting for its turn to be handed to Slurm" : unreachable_why_;
        co_return out;
    }
    if (!request.intent_is_fresh) {
        co_return out;  // again: the intent first
    }
    tracked->attempt.stage = SlurmAttempt::Stage::sending;
    tracked->attempt.id = 0;
    tasks_.spawn("sbatch", send(tracked));
    co_return handover(tracked->attempt);
}

Task<Status> SlurmScheduler::write_script(const AttemptRequest& request) {
    auto made = slurm::make_batch_script(request, site(request.slurm));
    if (!made) {
        co_return fail(made.error());
    }
    // The directory may be on a file server that takes its time.
    const std::function<Status()> write = [script = std::move(*made)] {
        return replace_file(script.path, script.text, 0700);
    };
    co_return co_await on_thread<Status>(files_, write);
}

Task<void> SlurmScheduler::send(TrackedPointer tracked) {
    const auto gap = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(1 / options_.submissions_per_second));
    next_send_ = std::max(next_send_ + gap, clock_.steady());
    if (next_send_ > clock_.steady()) {
        net::steady_timer pause{io_};
        const auto rest = next_send_ - clock_.steady();
        co_await sleep_on(pause, rest);
    }
    SubmitReply reply;
    reply.kind = SubmitReply::Kind::not_submitted;
    reply.message = "lockstepd is stopping";
    if (!stopped_) {
        ++counters_.sending;
        const AttemptRequest request = tracked->attempt.request;
        const Status written = co_await write_script(request);
        if (written) {
            std::string path = request.directory + "/" + std::string{slurm::kBatchFileName};
            reply = co_await backend_->submit(std::move(path));
        } else {
            reply.kind = written.error().code == Errc::invalid ? SubmitReply::Kind::rejected
                                                               : SubmitReply::Kind::not_submitted;
            reply.message = "cannot write the batch script: " + written.error().message;
        }
        --counters_.sending;
    }
    SlurmAttempt& attempt = tracked->attempt;
    take_reply(attempt, reply, clock_.steady());
    switch (attempt.stage) {
        case SlurmAttempt::Stage::known:
            ++counters_.submitted;
            log::info("handed to Slurm", {{"name", attempt.name}, {"slurm_job", attempt.id}});
            break;
        case SlurmAttempt::Stage::refused:
            ++counters_.refused;
            log::warn("Slurm refuses a job", {{"name", attempt.name}, {"what", reply.message}});
            break;
        case SlurmAttempt::Stage::in_doubt:
            ++counters_.unclear;
            log::warn("a submission of unknown outcome",
                      {{"name", attempt.name}, {"what", reply.message}});
            hurry();
            break;
        default:
            // Slurm is not there: nobody else tries until it answers.
            if (reachable_ && !stopped_) {
                reachable_ = false;
                ++failures_;
                unreachable_why_ = "Slurm does not answer: " + reply.message;
                log::warn("Slurm takes no jobs", {{"what", reply.message}});
            }
            hurry();
            break;
    }
    give_turn_back(*tracked);
    if (attempt.cancel_wanted && attempt.id != 0) {
        tasks_.spawn("scancel", end(tracked, attempt.id));
    }
    tell(*tracked);
}

Task<Result<bool>> SlurmScheduler::adopt(AttemptRequest request) {
    const TrackedPointer tracked = track(request);
    SlurmAttempt& attempt = tracked->attempt;
    if (attempt.stage != SlurmAttempt::Stage::sending) {
        give_turn_back(*tracked);
    }
    if (attempt.id != 0 && attempt.stage != SlurmAttempt::Stage::gone) {
        co_return true;
    }
    if (attempt.nothing_left()) {
        co_return false;
    }
    co_return fail(Errc::unavailable, handover(attempt).reason);
}

Task<Observation> SlurmScheduler::poll(JobId job, std::int32_t attempt) {
    const TrackedPointer tracked = find(job, attempt);
    if (!tracked) {
        Observation absent;
        absent.kind = Observation::Kind::absent;
        co_return absent;
    }
    co_return observe(tracked->attempt, reachable_, unreachable_why_);
}

void SlurmScheduler::claimed(const JobId& job, std::int32_t attempt,
                             const std::string& allocation) {
    const TrackedPointer tracked = find(job, attempt);
    const auto id = to_int(allocation);
    if (!tracked || !id || tracked->attempt.claimed == *id) {
        return;
    }
    tracked->attempt.claimed = *id;
    if (tracked->attempt.id != *id) {
        log::warn("an attempt runs in another Slurm job than the one that was acknowledged",
                  {{"name", tracked->attempt.name},
                   {"acknowledged", tracked->attempt.id},
                   {"claimed", *id}});
        tracked->attempt.id = *id;
        tracked->attempt.seen.reset();
        tracked->attempt.last_verdict = {};
        if (tracked->attempt.stage != SlurmAttempt::Stage::sending) {
            tracked->attempt.stage = SlurmAttempt::Stage::known;
        }
        hurry();
    }
}

void SlurmScheduler::expect_end(const JobId& job, std::int32_t attempt) {
    const TrackedPointer tracked = find(job, attempt);
    if (tracked && !std::exchange(tracked->attempt.ending, true)) {
        tracked->attempt.detail_wanted = tracked->attempt.claimed != 0;
        hurry();
    }
}

Task<Status> SlurmScheduler::cancel(JobId job, std::int32_t attempt) {
    const TrackedPointer tracked = find(job, attempt);
    if (!tracked) {
        co_return Status{};
    }
    tracked->attempt.cancel_wanted = true;
    if (tracked->attempt.stage != SlurmAttempt::Stage::sending) {
        give_turn_back(*tracked);
    }
    if (tracked->attempt.id != 0 && !tracked->attempt.ended() && !tracked->attempt.cancelled) {
        const Status done = co_await backend_->cancel(tracked->attempt.id);
        if (!done) {
            co_return done;  // asked again
        }
        tracked->attempt.cancelled = true;
        hurry();
    }
    co_return Status{};
}

void SlurmScheduler::over(const JobId& job, std::int32_t attempt) {
    if (const TrackedPointer tracked = find(job, attempt)) {
        tracked->attempt.over = true;
        tracked->attempt.over_at = clock_.steady();
        if (tracked->attempt.stage != SlurmAttempt::Stage::sending) {
            give_turn_back(*tracked);
        }
        forget_ended();
    }
}

Task<Status> SlurmScheduler::ping() {
    if (!reachable_) {
        co_return fail(Errc::unavailable, unreachable_why_);
    }
    co_return Status{};
}

// --- following -----------------------------------------------------------------------------------

SlurmPatience SlurmScheduler::patience() const {
    SlurmPatience out;
    if (options_.quarantine.count() > 0) {
        out.quarantine = options_.quarantine;
    } else {
        out.quarantine =
            std::chrono::seconds{facts_ ? facts_->config.credential_lifetime() : 300} + kClockSkew;
    }
    return out;
}

void SlurmScheduler::hurry() {
    if (!std::exchange(hurried_, true)) {
        poll_timer_.cancel();
    }
}

// 5 s after a change and while something is about to change, then a tenth of the time since, up to
// a minute; never longer than a third of the time that slurmctld remembers a finished job.
std::chrono::milliseconds SlurmScheduler::next_pause() const {
    if (failures_ > 0) {
        const auto factor = std::min(failures_ - 1, 6);
        return std::min(options_.poll_max, options_.poll_min * (1 << factor));
    }
    std::chrono::milliseconds pause = options_.poll_max;
    const auto now = clock_.steady();
    for (const auto& [name, tracked] : tracked_) {
        const SlurmAttempt& attempt = tracked->attempt;
        const bool runs = attempt.seen && attempt.last_verdict.phase == SlurmPhase::running &&
                          !attempt.cancel_wanted && !attempt.ending && !attempt.over;
        const bool awaited = attempt.stage == SlurmAttempt::Stage::in_doubt ||
                             attempt.cancel_wanted || attempt.ending || attempt.over ||
                             attempt.empty_answers > 0 ||
                             now - attempt.last_try_end < kFirstAudit * 3;
        if (awaited) {
            pause = options_.poll_min;
            break;
        }
        if (!runs) {
            const auto quiet =
                std::chrono::duration_cast<std::chrono::milliseconds>(now - last_change_);
            pause = std::min(pause, std::max(options_.poll_min, quiet / 10));
        }
    }
    if (facts_ && facts_->config.min_job_age > 0) {
        const std::chrono::milliseconds third =
            std::chrono::seconds{facts_->config.min_job_age} / 3;
        pause = std::min(pause, std::max(third, std::chrono::milliseconds{1'000}));
    }
    return pause;
}

// When the next query may be made: counted from the last one, so that being woken, however often,
// never puts it off; and not before the budget has room for it.
SteadyTime SlurmScheduler::next_query() {
    constexpr auto kAtLeast = std::chrono::milliseconds{250};
    const auto now = clock_.steady();
    read_tokens_ = std::min(kReadBurst,
                            read_tokens_ + std::chrono::duration<double>(now - tokens_at_).count() *
                                               options_.reads_per_second);
    tokens_at_ = now;
    SteadyTime due = last_query_ + (hurried_ ? kAtLeast : next_pause());
    if (read_tokens_ < 1) {
        const auto refill = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::duration<double>((1 - read_tokens_) / options_.reads_per_second));
        due = std::max(due, now + refill + std::chrono::milliseconds{1});
    }
    return due;
}

Task<void> SlurmScheduler::poll_loop() {
    while (!stopped_) {
        const auto rest = next_query() - clock_.steady();
        if (rest.count() > 0) {
            co_await sleep_on(poll_timer_, rest);  // ended by hurry(): looked at anew
            continue;
        }
        hurried_ = false;
        last_query_ = clock_.steady();
        if (!facts_ || !tracked_.empty() || !reachable_) {
            co_await query();
        }
    }
}

Task<void> SlurmScheduler::query() {
    const SteadyTime asked = clock_.steady();
    read_tokens_ -= 1;
    ++counters_.polls;
    if (!facts_) {
        auto facts = co_await backend_->probe();
        if (facts) {
            facts_ = std::move(*facts);
            log::info("Slurm answers", {{"version", to_string(facts_->version)}});
        }
    }
    const auto table = co_await backend_->jobs();
    counters_.last_poll_seconds = std::chrono::duration<double>(clock_.steady() - asked).count();
    if (!table) {
        ++counters_.polls_failed;
        ++failures_;
        unreachable_why_ = "Slurm does not answer: " + table.error().message;
        if (std::exchange(reachable_, false)) {
            log::warn("Slurm does not answer", {{"what", table.error().message}});
        }
        for (const auto& [name, tracked] : tracked_) {
            tell(*tracked);
        }
        co_return;
    }
    failures_ = 0;
    if (!std::exchange(reachable_, true)) {
        log::info("Slurm answers again");
    }
    take_answer(*table, asked);
    // A copy: what is settled may be forgotten meanwhile.
    const std::map<std::string, TrackedPointer> all = tracked_;
    for (const auto& [name, tracked] : all) {
        co_await settle(tracked, asked);
        tell(*tracked);
    }
    forget_ended();
    while (!turn_.empty() && turns_taken_ < options_.submissions_at_once) {
        const auto next = tracked_.find(turn_.front());
        if (next != tracked_.end()) {
            const AttemptRequest& request = next->second->attempt.request;
            if (changed_) {
                changed_(request.job, request.attempt);
            }
            break;  // it takes its turn, and gives it to the next one after it
        }
        turn_.pop_front();
    }
}

void SlurmScheduler::take_answer(const JobTable& table, SteadyTime asked) {
    counters_.malformed += table.malformed;
    std::map<std::string, std::vector<SlurmJob>> rows;
    for (const SlurmJob& job : table.jobs) {
        const auto found = tracked_.find(key_of(job.name));
        if (found != tracked_.end() && found->second->attempt.name == job.name) {
            rows[found->first].push_back(job);
        }
    }
    const std::vector<SlurmJob> none;
    for (const auto& [key, tracked] : tracked_) {
        const auto found = rows.find(key);
        const bool was_in_doubt = tracked->attempt.stage == SlurmAttempt::Stage::in_doubt;
        take_rows(tracked->attempt, found == rows.end() ? none : found->second, asked, patience());
        if (was_in_doubt && tracked->attempt.stage == SlurmAttempt::Stage::known) {
            ++counters_.adopted;
            log::info("found in Slurm and taken up",
                      {{"name", tracked->attempt.name}, {"slurm_job", tracked->attempt.id}});
        }
    }
}

// What one answer asks for: a look into accounting, the end of surplus copies and of what is left.
Task<void> SlurmScheduler::settle(TrackedPointer tracked, SteadyTime asked) {
    SlurmAttempt& attempt = tracked->attempt;
    if (wants_history(attempt, asked)) {
        std::vector<SlurmJob> rows;
        bool known = true;
        if (facts_ && facts_->config.has_accounting()) {
            const std::int64_t since = attempt.request.intent_at / 1000 - 24L * 3600;
            auto history =
                co_await backend_->history(attempt.name, std::max<std::int64_t>(since, 0));
            known = history.has_value();  // without an answer absence is not proven
            if (known) {
                rows = std::move(history->jobs);
            }
        }
        if (known && wants_history(attempt, asked)) {
            const bool acknowledged = attempt.stage == SlurmAttempt::Stage::known;
            take_history(attempt, rows, asked);
            if (attempt.stage == SlurmAttempt::Stage::gone && acknowledged) {
                ++counters_.forgotten;
                log::warn("Slurm has forgotten a job that it had acknowledged",
                          {{"name", attempt.name}, {"claimed", attempt.claimed}});
            }
        }
    }
    if (attempt.detail_wanted && !attempt.detail_known && attempt.confirmed &&
        attempt.last_verdict.terminal) {
        const auto preempted = co_await backend_->was_preempted(attempt.id);
        attempt.preempted = preempted.value_or(false);
        attempt.detail_known = true;
    }
    for (const std::int64_t id : attempt.surplus) {
        ++counters_.surplus;
        log::warn("ending a surplus copy of an attempt",
                  {{"name", attempt.name}, {"slurm_job", id}, {"kept", attempt.id}});
        co_await end(tracked, id);
    }
    const bool left_over =
        attempt.over && clock_.steady() - attempt.over_at >= options_.over_patience;
    if (attempt.stage == SlurmAttempt::Stage::known && !attempt.ended() && !attempt.cancelled &&
        (attempt.cancel_wanted || left_over)) {
        co_await end(tracked, attempt.id);
    }
}

Task<void> SlurmScheduler::end(TrackedPointer tracked, std::int64_t id) {
    const Status done = co_await backend_->cancel(id);
    if (!done) {
        log::warn("cannot cancel a Slurm job", {{"slurm_job", id}, {"what", done.error().message}});
    } else if (id == tracked->attempt.id) {
        tracked->attempt.cancelled = true;
        hurry();
    }
}

void SlurmScheduler::tell(Tracked& tracked) {
    const Observation seen = observe(tracked.attempt, reachable_, unreachable_why_);
    std::string now = signature(seen);
    if (now != tracked.told) {
        tracked.told = std::move(now);
        last_change_ = clock_.steady();
        if (changed_ && !stopped_) {
            changed_(tracked.attempt.request.job, tracked.attempt.request.attempt);
        }
    }
}

void SlurmScheduler::forget_ended() {
    for (auto at = tracked_.begin(); at != tracked_.end();) {
        if (at->second->attempt.over && at->second->attempt.nothing_left()) {
            std::erase(turn_, at->first);
            at = tracked_.erase(at);
        } else {
            ++at;
        }
    }
}

const SlurmCounters& SlurmScheduler::counters() {
    counters_.attempts = tracked_.size();
    counters_.reachable = reachable_;
    return counters_;
}

Task<void> SlurmScheduler::stop() {
    stopped_ = true;
    poll_timer_.cancel();
    // An sbatch that is let finish leaves its job to be found at once; one that is killed leaves a
    // doubt that only the credential's lifetime ends.
    net::steady_timer pause{io_};
    const auto until = clock_.steady() + kLastSends;
    while (counters_.sending > 0 && clock_.steady() < until) {
        co_await sleep_on(pause, std::chrono::milliseconds{20});
    }
    backend_->stop();
    co_await tasks_.join();
}

}  // namespace lockstep
