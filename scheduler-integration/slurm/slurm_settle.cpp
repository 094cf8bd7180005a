// What the answer of a poll asks for, attempt by attempt: more of Slurm's words, the end of surplus
// copies, of what nobody has come from and of what is left.
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/sort.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/hostlist.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include <algorithm>
#include <utility>

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

// squeue says that a job lost a node, and only sinfo which.
void take_down_nodes(SlurmAttempt& attempt, const std::vector<ClusterNode>& nodes) {
    constexpr std::size_t kNamed = 8;
    const auto own = expand_hostlist(attempt.seen->nodes).value_or(std::vector<std::string>{});
    for (const ClusterNode& node : nodes) {
        const bool down = node.state.starts_with("down") &&
                          std::find(own.begin(), own.end(), node.name) != own.end();
        if (down && attempt.down_nodes.size() < kNamed) {
            if (attempt.down_nodes.empty()) {
                attempt.down_why =
                    printable(std::string_view{node.reason}.substr(0, limits::kTextBytes));
            }
            attempt.down_nodes.push_back(node.name);
        }
    }
}

}  // namespace

// Those that have a question, in turn; who must not wait comes first.
std::vector<SlurmScheduler::Question> SlurmScheduler::questions(SteadyTime asked) const {
    std::vector<Question> line;
    const auto add = [&](const SlurmTrackedPointer& tracked) {
        const bool history = site_.has_accounting() && wants_history(tracked->attempt, asked);
        if (history || wants_detail(tracked->attempt)) {
            line.push_back({tracked, place_in_line(tracked->attempt, history), history});
        }
    };
    const auto next = tracked_.upper_bound(question_turn_);
    for (auto at = next; at != tracked_.end(); ++at) {
        add(at->second);
    }
    for (auto at = tracked_.begin(); at != next; ++at) {
        add(at->second);
    }
    sort_stably(line, [](const Question& a, const Question& b) { return a.place < b.place; });
    return line;
}

// Questions about single attempts, each of which may take its whole time: a few at each answer, in
// turn, out of the budget that the polls have. What is asked beyond kQuestions is not waited for:
// the next squeue comes as soon as after those.
void SlurmScheduler::ask_some(SteadyTime asked) {
    const std::vector<Question> line = questions(asked);
    const auto unclaimed = static_cast<std::size_t>(std::count_if(
        line.begin(), line.end(), [](const Question& one) { return one.place == 0; }));
    const std::size_t most = std::clamp(unclaimed / 4, kQuestions, kUnclaimedQuestions);
    std::size_t count = 0;
    for (const auto& [tracked, place, history] : line) {
        const std::size_t bound = place == 0 ? most : kQuestions;
        std::size_t& in_flight = history ? histories_ : details_;
        if (stopped_ || count >= bound) {
            break;  // later ones have no higher bound
        }
        if (tracked->in_question || in_flight >= bound) {
            continue;
        }
        ++in_flight;
        if (count < kQuestions) {
            pace_.spend();
        }
        ++count;
        tracked->in_question = true;
        question_turn_ = tracked->key;
        if (history) {
            tasks_.spawn("history", ask_history(tracked, asked));
        } else {
            tasks_.spawn("detail", ask_detail(tracked));
        }
    }
}

Task<void> SlurmScheduler::ask_history(SlurmTrackedPointer tracked, SteadyTime asked) {
    SlurmAttempt& attempt = tracked->attempt;
    const std::int64_t since = attempt.request.intent_at / 1000 - 24L * 3600;
    auto history = co_await backend_->history(attempt.name, std::max<std::int64_t>(since, 0));
    tracked->in_question = false;
    --histories_;
    if (history) {  // without an answer absence is not proven
        std::vector<SlurmJob> rows = std::move(history->jobs);
        co_await settle_history(tracked, std::move(rows), asked);
    }
    tell(*tracked);
    forget_ended();
}

// What squeue has shown meanwhile counts more.
Task<void> SlurmScheduler::settle_history(SlurmTrackedPointer tracked, std::vector<SlurmJob> rows,
                                          SteadyTime asked) {
    SlurmAttempt& attempt = tracked->attempt;
    if (!wants_history(attempt, asked)) {
        co_return;
    }
    const bool acknowledged = attempt.stage == SlurmAttempt::Stage::known;
    take_history(attempt, rows, asked, site_.patience());
    if (attempt.stage == SlurmAttempt::Stage::gone && acknowledged) {
        ++counters_.forgotten;
        log::warn("Slurm has forgotten a job that it had acknowledged",
                  {{"job", attempt.request.job.value},
                   {"name", attempt.name},
                   {"claimed", attempt.claimed}});
    }
    if (attempt.stage == SlurmAttempt::Stage::refused && attempt.unseen_in_a_row > 0) {
        ++counters_.refused;
        log::warn("squeue does not show what Slurm takes; it is not submitted again",
                  {{"job", attempt.request.job.value},
                   {"name", attempt.name},
                   {"what", attempt.message}});
        const Status all = co_await end_unseen(tracked);
        if (!all) {
            log::warn("cannot cancel a Slurm job",
                      {{"job", attempt.request.job.value}, {"what", all.error().message}});
        }
    }
}

// Many jobs may have ended at once. One whose ranks have told how they ended need not wait for the
// little that Slurm adds; of what nobody has claimed it decides whether the job is lost.
void SlurmScheduler::give_up_detail(SlurmTracked& tracked) {
    SlurmAttempt& attempt = tracked.attempt;
    if (!wants_detail(attempt)) {
        tracked.detail_wanted.reset();
        return;
    }
    const auto now = clock_.steady();
    tracked.detail_wanted = tracked.detail_wanted.value_or(now);
    if (attempt.claimed != 0 && !tracked.in_question &&
        now - *tracked.detail_wanted >= options_.detail_patience) {
        take_detail(attempt, SlurmJobDetail{}, site_.patience());
    }
}

// What one answer asks for beside ask_some(): the end of surplus copies and of what is left.
Task<void> SlurmScheduler::settle(SlurmTrackedPointer tracked, SteadyTime asked) {
    SlurmAttempt& attempt = tracked->attempt;
    if (!site_.has_accounting()) {
        std::vector<SlurmJob> none;
        co_await settle_history(tracked, std::move(none), asked);
    }
    give_up_detail(*tracked);
    // Its end is believed at the next answer.
    if (attempt.seen && attempt.claimed == attempt.id && attempt.claimed != 0 &&
        attempt.last_verdict.end == SlurmEnd::node_fail &&
        !std::exchange(attempt.nodes_asked, true)) {
        if (site_.nodes_at() < asked) {  // a node is lost by all of its jobs at once
            pace_.spend();
            co_await site_.ask_nodes();
        }
        if (attempt.seen) {
            take_down_nodes(attempt, site_.nodes());
        }
    }
    for (std::size_t& told = tracked->stillborn_told; told < attempt.stillborn.size(); ++told) {
        log::warn("a Slurm job that no agent had claimed is submitted again",
                  {{"job", attempt.request.job.value},
                   {"name", attempt.name},
                   {"why", attempt.stillborn[told].how}});
    }
    // A copy: an agent may claim one while another is being ended.
    const std::vector<std::int64_t> surplus = attempt.surplus;
    for (const std::int64_t id : surplus) {
        if (std::count(attempt.surplus.begin(), attempt.surplus.end(), id) == 0) {
            continue;
        }
        ++counters_.surplus;
        log::warn("ending a surplus copy of an attempt", {{"job", attempt.request.job.value},
                                                          {"name", attempt.name},
                                                          {"slurm_job", id},
                                                          {"kept", attempt.id}});
        co_await end(tracked, id);
    }
    if (nobody_came(attempt, asked, site_.patience())) {
        co_await abandon(tracked);
    }
    const bool left_over =
        attempt.over && clock_.steady() - attempt.over_at >= options_.over_patience;
    if (attempt.stage == SlurmAttempt::Stage::known && !attempt.ended() && !wants_detail(attempt) &&
        !attempt.cancelled && (attempt.cancel_wanted || left_over)) {
        co_await end(tracked, attempt.id);
    }
}

Task<void> SlurmScheduler::ask_detail(SlurmTrackedPointer tracked) {
    SlurmAttempt& attempt = tracked->attempt;
    const std::int64_t id = attempt.id;
    bool ours = false;
    if (attempt.claimed == 0) {
        ours = co_await files_.was_abandoned(attempt);
    }
    Result<SlurmJobDetail> detail = SlurmJobDetail{};
    if (!ours && attempt.claimed == 0) {
        std::string words = co_await files_.last_batch_words(attempt);
        if (attempt.id == id) {
            attempt.batch_words = std::move(words);
        }
    }
    if (!ours) {
        detail = co_await backend_->detail(id, attempt.name_of(id));
    }
    tracked->in_question = false;
    --details_;
    const bool answered = detail || detail.error().code == Errc::not_found;
    // What nobody has claimed waits for the answer: it decides whether the job is lost.
    if (attempt.id == id && wants_detail(attempt) && (answered || attempt.claimed != 0)) {
        attempt.abandoned = ours && attempt.claimed == 0;
        take_detail(attempt, detail.value_or(SlurmJobDetail{}), site_.patience());
    }
    tell(*tracked);
    forget_ended();
}

// It is written down before: the cancel is done by the jobs' user, and the next daemon would take
// it for a person's.
Task<void> SlurmScheduler::abandon(SlurmTrackedPointer tracked) {
    SlurmAttempt& attempt = tracked->attempt;
    const std::int64_t id = attempt.id;
    Status done = co_await files_.write_abandoned(attempt.request, id);
    if (done && attempt.claimed == 0) {
        done = co_await backend_->cancel(id, attempt.name_of(id));
    }
    if (!done) {
        log::warn("cannot cancel a Slurm job that no agent has come from",
                  {{"job", attempt.request.job.value},
                   {"slurm_job", id},
                   {"what", done.error().message}});
    } else if (attempt.claimed == 0 && attempt.id == id) {
        attempt.abandoned = true;
        log::warn("no agent has come from a running Slurm job; it is cancelled",
                  {{"job", attempt.request.job.value}, {"name", attempt.name}, {"slurm_job", id}});
    }
}

// What squeue has never shown may wait in Slurm all the same. Not before another is submitted: a
// slurmctld that has lost a job gives its number out again, and the name is the same.
Task<Status> SlurmScheduler::end_unseen(SlurmTrackedPointer tracked) {
    const std::vector<std::int64_t> ids = std::exchange(tracked->attempt.unseen, {});
    Status all;
    for (const std::int64_t id : ids) {
        const Status done = co_await backend_->cancel(id, tracked->attempt.name_of(id));
        if (!done) {
            tracked->attempt.unseen.push_back(id);
            all = done;
        }
    }
    co_return all;
}

Task<void> SlurmScheduler::end(SlurmTrackedPointer tracked, std::int64_t id) {
    const Status done = co_await backend_->cancel(id, tracked->attempt.name_of(id));
    if (!done) {
        log::warn("cannot cancel a Slurm job", {{"job", tracked->attempt.request.job.value},
                                                {"slurm_job", id},
                                                {"what", done.error().message}});
    } else if (id == tracked->attempt.id) {
        tracked->attempt.cancelled = true;
        pace_.soon();
    }
}

}  // namespace lockstep
