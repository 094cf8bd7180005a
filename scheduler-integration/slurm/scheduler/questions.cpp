#include "scheduler-integration/slurm/scheduler/questions.hpp"

#include "job/base/log.hpp"
#include "job/base/sort.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

// At each answer, and of each kind in flight.
constexpr std::size_t kQuestions = 4;
// Of those that nobody has claimed, a quarter of what wants a detail, up to so many: without
// Slurm's word they are judged wrongly once it has forgotten them (MinJobAge). Each is a process.
constexpr std::size_t kUnclaimedQuestions = 32;

// Who can wait the longest comes last: an unclaimed job's detail decides whether the job is lost,
// one that ended well has only a preemption to tell.
int place_in_line(const SlurmAttempt& attempt, bool history) {
    if (history) {
        return 1;
    }
    return attempt.claimed == 0 ? 0 : attempt.last_verdict.end == SlurmEnd::ok ? 2 : 1;
}

}  // namespace

// Those that have a question, in turn; who must not wait comes first.
std::vector<SlurmQuestions::Question> SlurmQuestions::line(const SlurmTrackedMap& all,
                                                           SteadyTime asked) const {
    std::vector<Question> out;
    const auto add = [&](const SlurmTrackedPointer& tracked) {
        const bool history = parts_.site.has_accounting() && wants_history(tracked->attempt, asked);
        if (history || wants_detail(tracked->attempt)) {
            out.push_back({tracked, place_in_line(tracked->attempt, history), history});
        }
    };
    const auto next = all.upper_bound(last_);
    for (auto at = next; at != all.end(); ++at) {
        add(at->second);
    }
    for (auto at = all.begin(); at != next; ++at) {
        add(at->second);
    }
    sort_stably(out, [](const Question& a, const Question& b) { return a.place < b.place; });
    return out;
}

void SlurmQuestions::ask_some(const SlurmTrackedMap& all, SteadyTime asked, TaskGroup& tasks) {
    const std::vector<Question> asking = line(all, asked);
    const auto unclaimed = static_cast<std::size_t>(std::count_if(
        asking.begin(), asking.end(), [](const Question& one) { return one.place == 0; }));
    const std::size_t most = std::clamp(unclaimed / 4, kQuestions, kUnclaimedQuestions);
    std::size_t count = 0;
    for (const auto& [tracked, place, history] : asking) {
        const std::size_t bound = place == 0 ? most : kQuestions;
        std::size_t& in_flight = history ? histories_ : details_;
        if (count >= bound) {
            break;  // later ones have no higher bound
        }
        if (tracked->in_question || in_flight >= bound) {
            continue;
        }
        ++in_flight;
        if (count < kQuestions) {
            parts_.pace.spend();
        }
        ++count;
        tracked->in_question = true;
        last_ = tracked->key;
        if (history) {
            tasks.spawn("history", ask_history(tracked, asked));
        } else {
            tasks.spawn("detail", ask_detail(tracked));
        }
    }
}

Task<void> SlurmQuestions::ask_history(SlurmTrackedPointer tracked, SteadyTime asked) {
    SlurmAttempt& attempt = tracked->attempt;
    const std::int64_t since = attempt.request.intent_at / 1000 - 24L * 3600;
    auto history = co_await parts_.backend.history(attempt.name, std::max<std::int64_t>(since, 0));
    tracked->in_question = false;
    --histories_;
    if (history) {  // without an answer absence is not proven
        std::vector<SlurmJob> rows = std::move(history->jobs);
        co_await settle_history(tracked, std::move(rows), asked);
    }
    done_(*tracked);
}

Task<void> SlurmQuestions::settle_history(SlurmTrackedPointer tracked, std::vector<SlurmJob> rows,
                                          SteadyTime asked) {
    SlurmAttempt& attempt = tracked->attempt;
    if (!wants_history(attempt, asked)) {
        co_return;
    }
    const bool acknowledged = attempt.stage == SlurmAttempt::Stage::known;
    take_history(attempt, rows, asked, parts_.site.patience());
    if (attempt.stage == SlurmAttempt::Stage::gone && acknowledged) {
        ++parts_.counters.forgotten;
        log::warn("Slurm has forgotten a job that it had acknowledged",
                  {{"job", attempt.request.job.value},
                   {"name", attempt.name},
                   {"claimed", attempt.claimed}});
    }
    if (attempt.stage == SlurmAttempt::Stage::refused && attempt.unseen_in_a_row > 0) {
        ++parts_.counters.refused;
        log::warn("squeue does not show what Slurm takes; it is not submitted again",
                  {{"job", attempt.request.job.value},
                   {"name", attempt.name},
                   {"what", attempt.message}});
        const Status all = co_await parts_.cancels.end_unseen(tracked);
        if (!all) {
            log::warn("cannot cancel a Slurm job",
                      {{"job", attempt.request.job.value}, {"what", all.error().message}});
        }
    }
}

void SlurmQuestions::give_up_detail(SlurmTracked& tracked) {
    SlurmAttempt& attempt = tracked.attempt;
    if (!wants_detail(attempt)) {
        tracked.detail_wanted.reset();
        return;
    }
    const auto now = parts_.clock.steady();
    tracked.detail_wanted = tracked.detail_wanted.value_or(now);
    if (attempt.claimed != 0 && !tracked.in_question &&
        now - *tracked.detail_wanted >= parts_.options.detail_patience) {
        take_detail(attempt, SlurmJobDetail{}, parts_.site.patience());
    }
}

Task<void> SlurmQuestions::ask_detail(SlurmTrackedPointer tracked) {
    SlurmAttempt& attempt = tracked->attempt;
    const std::int64_t id = attempt.id;
    bool ours = false;
    if (attempt.claimed == 0) {
        ours = co_await parts_.files.was_abandoned(attempt);
    }
    Result<SlurmJobDetail> detail = SlurmJobDetail{};
    if (!ours && attempt.claimed == 0) {
        std::string words = co_await parts_.files.last_batch_words(attempt);
        if (attempt.id == id) {
            attempt.batch_words = std::move(words);
        }
    }
    if (!ours) {
        detail = co_await parts_.backend.detail(id, attempt.name_of(id));
    }
    tracked->in_question = false;
    --details_;
    const bool answered = detail || detail.error().code == Errc::not_found;
    // What nobody has claimed waits for the answer: it decides whether the job is lost.
    if (attempt.id == id && wants_detail(attempt) && (answered || attempt.claimed != 0)) {
        attempt.abandoned = ours && attempt.claimed == 0;
        take_detail(attempt, detail.value_or(SlurmJobDetail{}), parts_.site.patience());
    }
    done_(*tracked);
}

}  // namespace lockstep
