// size: the scheduler interface for Slurm, and the course of one submission
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include "job/async/sleep.hpp"
#include "job/base/check.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/scheduler/admission.hpp"
#include "scheduler-integration/slurm/slurm_copies.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace lockstep {
namespace {

// The part of an attempt's Slurm name that no other attempt has: <ulid>-a<attempt>.
std::string key_of(const JobId& job, std::int32_t attempt) {
    std::string out = job.value.substr(job.value.find('-') + 1) + "-a" + std::to_string(attempt);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

}  // namespace

SlurmScheduler::SlurmScheduler(net::io_context& io, const Clock& clock,
                               std::unique_ptr<SlurmBackend> backend, Options options)
    : io_(io),
      clock_(clock),
      backend_(std::move(backend)),
      options_(std::move(options)),
      turns_(options_),
      pace_(io, clock, options_),
      site_(clock, *backend_, options_, pace_, link_),
      leftovers_(clock, *backend_, options_, pace_, counters_),
      files_(options_.submissions_at_once, options_.steady_clock),
      cancels_(*backend_, pace_, files_),
      questions_({clock_, *backend_, options_, pace_, site_, files_, cancels_, counters_},
                 [this](SlurmTracked& tracked) {
                     tell(tracked);
                     forget_ended();
                 }),
      tasks_(io) {}

SlurmScheduler::~SlurmScheduler() = default;

Task<Status> SlurmScheduler::begin() {
    begun_ = clock_.wall();
    const Status found = co_await site_.begin();
    if (!found && (found.error().code == Errc::not_found || found.error().code == Errc::invalid)) {
        co_return fail(found.error());
    }
    if (!found) {
        link_.reachable = false;
        link_.why = "Slurm does not answer: " + found.error().message;
        log::warn("Slurm does not answer yet", {{"what", found.error().message}});
    }
    tasks_.spawn("slurm poll", poll_loop());
    co_return Status{};
}

Cluster SlurmScheduler::cluster() {
    if (site_.want_nodes()) {
        pace_.look_again();
    } else {
        pace_.soon();
    }
    return site_.cluster();
}

Result<Admission> SlurmScheduler::admit(const JobSpec& spec) const {
    return admit_to_slurm(spec, site_.facts(), site_.nodes(), site_.batch_site(spec.slurm));
}

Result<std::optional<std::string>> SlurmScheduler::script(const AttemptRequest& request) const {
    auto made = slurm::make_batch_script(request, site_.batch_site(request.slurm));
    LOCKSTEP_TRY(made);
    return std::optional<std::string>{std::move(made->text)};
}

Task<Result<std::optional<StartEstimate>>> SlurmScheduler::estimate(AttemptRequest request) {
    auto made = slurm::make_batch_script(request, site_.batch_site(request.slurm));
    LOCKSTEP_CO_TRY(made);
    if (estimates_ >= options_.estimates_at_once) {
        co_return fail(Errc::exhausted, "Slurm is asked for others at the moment; ask again");
    }
    ++estimates_;
    auto reply = co_await backend_->estimate(std::move(made->text));
    --estimates_;
    LOCKSTEP_CO_TRY(reply);
    if (!*reply) {
        co_return std::optional<StartEstimate>{};
    }
    StartEstimate out;
    if (!(*reply)->accepted) {
        out.refusal = std::move((*reply)->message);
    } else if ((*reply)->start > 0) {
        out.start = (*reply)->start * 1000;
        out.nodes = std::move((*reply)->nodes);
        out.partition = std::move((*reply)->partition);
    } else {
        co_return fail(Errc::unavailable, "Slurm gives the start as " + (*reply)->start_text +
                                              ", without its time zone");
    }
    co_return std::optional<StartEstimate>{std::move(out)};
}

// --- attempts ------------------------------------------------------------------------------------

SlurmTrackedPointer SlurmScheduler::find(const JobId& job, std::int32_t attempt) const {
    const auto found = tracked_.find(key_of(job, attempt));
    return found == tracked_.end() ? nullptr : found->second;
}

void SlurmScheduler::agents_moved() {
    for (const auto& [key, place] : tracked_) {
        AttemptRequest request = place->attempt.request;
        request.intent_is_fresh = false;  // an existing job is found, whenever it was submitted
        if (!request.signature.empty() && !stopped_) {
            tasks_.spawn("told", backend_->took_up(std::move(request)));
        }
    }
}

SlurmTrackedPointer SlurmScheduler::track(const AttemptRequest& request) {
    std::string key = key_of(request.job, request.attempt);
    auto& place = tracked_[key];
    if (!place) {
        place = std::make_shared<SlurmTracked>();
        place->key = std::move(key);
        const std::int64_t age = clock_.wall() - request.intent_at;
        place->attempt = take_up(
            request, clock_.steady(),
            std::chrono::milliseconds{request.intent_at == 0 ? 0 : std::max<std::int64_t>(age, 0)});
        if (place->attempt.stage == SlurmAttempt::Stage::in_doubt) {
            ++counters_.unclear;
        }
        if (place->attempt.stage != SlurmAttempt::Stage::idle ||
            request.submission == Submission::manual) {
            pace_.soon();
        }
        pace_.look_again();  // the loop may be in a long sleep: nothing was followed
        if (!stopped_) {
            if (place->attempt.stage == SlurmAttempt::Stage::in_doubt) {
                tasks_.spawn("doubt", files_.take_up_doubt(place));
            } else if (place->attempt.stage == SlurmAttempt::Stage::known) {
                place->asks_file = true;
                tasks_.spawn("seen before", files_.take_up_job(place));
            }
            tasks_.spawn("taken up", backend_->took_up(request));
        }
    } else {
        place->attempt.request = request;
    }
    return place;
}

void SlurmScheduler::give_turn_back(SlurmTracked& tracked) {
    turns_.give_back(tracked);
    if (turns_.anybody_waits()) {
        if (const auto next = tracked_.find(turns_.first()); next != tracked_.end()) {
            net::post(io_, [this, request = next->second->attempt.request] {
                if (changed_ && !stopped_) {
                    changed_(request.job, request.attempt);
                }
            });
        } else {
            turns_.drop_first();
        }
    }
}

Task<Handover> SlurmScheduler::submit(AttemptRequest request) {
    const SlurmTrackedPointer tracked = track(request);
    Handover out = handover(tracked->attempt);
    const bool sends = out.kind == Handover::Kind::again && request.intent_is_fresh;
    if (tracked->has_turn && !sends && tracked->attempt.stage != SlurmAttempt::Stage::sending) {
        // No intent has followed the last "again", or there is something of it in Slurm after all:
        // those in line must not wait for it.
        give_turn_back(*tracked);
    }
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
    if (clock_.steady() < tracked->attempt.not_before) {
        out.kind = Handover::Kind::wait;
        out.reason = (tracked->unwritten ? ""
                                         : "at Slurm's limit of submitted jobs, waits until "
                                           "others have ended: ") +
                     tracked->attempt.message;
        co_return out;
    }
    if (tracked->unwritten) {  // each try to submit would leave another intent in the job's events
        if (const Status written = co_await write_script(request); !written) {
            note_unwritten(*tracked, written.error().message);
            out.kind = Handover::Kind::wait;
            out.reason = tracked->attempt.message;
            co_return out;
        }
        tracked->unwritten = false;
        out = handover(tracked->attempt);
        if (out.kind != Handover::Kind::again) {
            co_return out;
        }
    }
    if (!turns_.take(*tracked, link_.reachable)) {
        out.kind = Handover::Kind::wait;
        out.reason = link_.reachable ? "waiting for its turn to be submitted to Slurm" : link_.why;
        co_return out;
    }
    if (!request.intent_is_fresh) {
        co_return out;  // again: the intent first
    }
    LOCKSTEP_CHECK(request.intent_at != 0);
    tracked->attempt.stage = SlurmAttempt::Stage::sending;
    tracked->attempt.id = 0;
    tracked->attempt.sending_since = clock_.steady();
    tasks_.spawn("sbatch", send(tracked));
    co_return handover(tracked->attempt);
}

Task<Status> SlurmScheduler::write_script(const AttemptRequest& request) {
    auto made = slurm::make_batch_script(request, site_.batch_site(request.slurm));
    LOCKSTEP_CO_TRY(made);
    if (!backend_->writes_scripts()) {
        co_return Status{};
    }
    auto writing = files_.write_script(std::move(*made));
    co_return co_await std::move(writing);
}

void SlurmScheduler::note_unwritten(SlurmTracked& tracked, const std::string& why) {
    std::string words = "cannot write the batch script: " + why;
    if (!std::exchange(tracked.unwritten, true)) {
        log::warn("cannot write a batch script", {{"job", tracked.attempt.request.job.value},
                                                  {"name", tracked.attempt.name},
                                                  {"what", why}});
    }
    tracked.attempt.message = std::move(words);
    tracked.attempt.not_before = clock_.steady() + options_.poll_min;
}

Task<void> SlurmScheduler::send(SlurmTrackedPointer tracked) {
    const SteadyTime start = turns_.next_send(clock_.steady());
    if (start > clock_.steady()) {
        net::steady_timer pause{io_};
        const auto rest = start - clock_.steady();
        co_await sleep_on(pause, rest);
    }
    SubmitReply reply;
    reply.kind = SubmitReply::Kind::not_submitted;
    reply.message = "lockstepd is stopping";
    bool unwritten = false;
    if (!stopped_) {
        ++counters_.sending;
        AttemptRequest request = tracked->attempt.request;
        if (tracked->attempt.without_exclusion) {
            request.exclude.clear();
        }
        const Status written = co_await write_script(request);
        if (written) {
            slurm::BatchSite where = site_.batch_site(request.slurm);
            reply = co_await backend_->submit_attempt(std::move(request), std::move(where));
        } else if (written.error().code == Errc::invalid) {
            reply.kind = SubmitReply::Kind::rejected;
            reply.message = "cannot write the batch script: " + written.error().message;
        } else {  // nothing of Slurm's: others may be submitted
            unwritten = true;
            reply.kind = SubmitReply::Kind::later;
            reply.message = written.error().message;
        }
        --counters_.sending;
    }
    SlurmAttempt& attempt = tracked->attempt;
    take_reply(attempt, reply, clock_.steady());
    if (unwritten) {
        note_unwritten(*tracked, reply.message);
    }
    switch (attempt.stage) {
        case SlurmAttempt::Stage::known:
            ++counters_.submitted;
            log::info("handed to Slurm", {{"job", attempt.request.job.value},
                                          {"name", attempt.name},
                                          {"slurm_job", attempt.id}});
            break;
        case SlurmAttempt::Stage::refused:
            ++counters_.refused;
            log::warn("Slurm refuses a job", {{"job", attempt.request.job.value},
                                              {"name", attempt.name},
                                              {"what", reply.message}});
            break;
        case SlurmAttempt::Stage::in_doubt:
            if (!attempt.denied) {
                ++counters_.unclear;
                log::warn("a submission of unknown outcome", {{"job", attempt.request.job.value},
                                                              {"name", attempt.name},
                                                              {"what", reply.message}});
            }
            pace_.soon();
            tasks_.spawn("doubt", files_.keep_doubt(tracked));
            break;
        case SlurmAttempt::Stage::safe:
            if (reply.kind == SubmitReply::Kind::later) {
                break;
            }
            if (reply.kind == SubmitReply::Kind::rejected) {  // to be asked in another way
                log::warn("Slurm has too few nodes without those that failed",
                          {{"job", attempt.request.job.value},
                           {"name", attempt.name},
                           {"what", reply.message}});
                break;
            }
            [[fallthrough]];
        default:
            // Slurm is down: no further submission until it answers.
            if (link_.reachable && !stopped_) {
                link_.reachable = false;
                ++link_.failures;
                link_.why = "Slurm does not answer: " + reply.message;
                log::warn("Slurm takes no jobs", {{"what", reply.message}});
            }
            pace_.soon();
            break;
    }
    give_turn_back(*tracked);
    if (attempt.cancel_wanted && attempt.id != 0) {
        tasks_.spawn("scancel", cancels_.end(tracked, attempt.id));
    }
    tell(*tracked);
}

Task<Result<bool>> SlurmScheduler::adopt(AttemptRequest request) {
    const SlurmTrackedPointer tracked = track(request);
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
    const SlurmTrackedPointer tracked = find(job, attempt);
    if (!tracked) {
        Observation absent;
        absent.kind = Observation::Kind::absent;
        co_return absent;
    }
    co_return observe(tracked->attempt, link_.reachable, link_.why);
}

// Of an attempt that is not followed yet no copy is being ended.
bool SlurmScheduler::may_claim(const JobId& job, std::int32_t attempt,
                               const std::string& allocation) {
    const SlurmTrackedPointer tracked = find(job, attempt);
    const auto id = to_int(allocation);
    return !tracked || !id || lockstep::may_claim(tracked->attempt, *id);
}

void SlurmScheduler::claimed(const JobId& job, std::int32_t attempt,
                             const std::string& allocation) {
    const SlurmTrackedPointer tracked = find(job, attempt);
    const auto id = to_int(allocation);
    if (!tracked || !id || tracked->attempt.claimed == *id) {
        return;
    }
    tracked->attempt.claimed = *id;
    std::erase(tracked->attempt.surplus, *id);  // settle() may be about to end them
    tracked->attempt.claimed_at = clock_.steady();
    if (tracked->attempt.id != *id) {
        log::warn("an attempt runs in another Slurm job than the one that was acknowledged",
                  {{"job", tracked->attempt.request.job.value},
                   {"name", tracked->attempt.name},
                   {"acknowledged", tracked->attempt.id},
                   {"claimed", *id}});
        tracked->attempt.id = *id;
        tracked->attempt.seen.reset();
        tracked->attempt.last_verdict = {};
        if (tracked->attempt.stage != SlurmAttempt::Stage::sending) {
            tracked->attempt.stage = SlurmAttempt::Stage::known;
        }
        pace_.soon();
    }
}

void SlurmScheduler::expect_end(const JobId& job, std::int32_t attempt, bool done) {
    const SlurmTrackedPointer tracked = find(job, attempt);
    if (!tracked) {
        return;
    }
    tracked->attempt.done = done;
    if (!std::exchange(tracked->attempt.ending, true)) {
        pace_.soon();
    }
}

Task<Status> SlurmScheduler::cancel(JobId job, std::int32_t attempt) {
    const SlurmTrackedPointer tracked = find(job, attempt);
    if (!tracked) {
        co_return Status{};
    }
    tracked->attempt.cancel_wanted = true;
    if (tracked->attempt.stage != SlurmAttempt::Stage::sending) {
        give_turn_back(*tracked);
    }
    if (tracked->attempt.id != 0 && !tracked->attempt.ended() && !tracked->attempt.cancelled) {
        const std::int64_t id = tracked->attempt.id;
        const Status done = co_await backend_->cancel(id, tracked->attempt.name_of(id));
        if (!done) {
            co_return done;  // asked again
        }
        tracked->attempt.cancelled = true;
        pace_.soon();
    }
    co_return co_await cancels_.end_unseen(tracked);
}

void SlurmScheduler::over(const JobId& job, std::int32_t attempt) {
    if (const SlurmTrackedPointer tracked = find(job, attempt)) {
        tracked->attempt.over = true;
        tracked->attempt.over_at = clock_.steady();
        if (tracked->attempt.stage != SlurmAttempt::Stage::sending) {
            give_turn_back(*tracked);
        }
        forget_ended();
    }
}

void SlurmScheduler::know_ends(EndOf end_of) {
    leftovers_.know_ends(std::move(end_of));
    pace_.soon();
}

std::optional<std::string> SlurmScheduler::leaving(const JobId& job) const {
    for (const auto& [key, tracked] : tracked_) {
        const SlurmAttempt& attempt = tracked->attempt;
        if (attempt.request.job == job && attempt.over && attempt.id != 0 &&
            !attempt.nothing_left() &&
            clock_.steady() - attempt.over_at >= limits::kLeavePatience) {
            const bool finishing =
                attempt.seen && attempt.last_verdict.phase == SlurmPhase::finishing;
            return finishing ? attempt.seen->nodes : "";
        }
    }
    return std::nullopt;
}

Task<Status> SlurmScheduler::ping() {
    if (!link_.reachable) {
        co_return fail(Errc::unavailable, link_.why);
    }
    co_return Status{};
}

const SlurmCounters& SlurmScheduler::counters() {
    counters_.attempts = tracked_.size();
    counters_.reachable = link_.reachable;
    return counters_;
}

Task<void> SlurmScheduler::stop() {
    stopped_ = true;
    pace_.look_again();
    // An sbatch that is let finish leaves its job to be found at once; one that is killed leaves a
    // doubt that only the credential's lifetime ends.
    net::steady_timer pause{io_};
    const auto until = clock_.steady() + limits::kLastSubmissions;
    while (counters_.sending > 0 && clock_.steady() < until) {
        co_await sleep_on(pause, std::chrono::milliseconds{20});
    }
    backend_->stop();
    co_await tasks_.join();
}

}  // namespace lockstep
