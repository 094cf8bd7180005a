// How the Slurm scheduler follows what it handed over: the one loop of queries, what an answer says
// of each attempt, and what that asks for.
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/hostlist.hpp"
#include "scheduler-integration/slurm/slurm_renamed.hpp"
#include "scheduler-integration/slurm/slurm_scheduler.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::string signature(const Observation& seen) {
    return std::to_string(static_cast<int>(seen.kind)) + "/" +
           std::to_string(static_cast<int>(seen.state)) + "/" + seen.id + "/" + seen.reason + "/" +
           seen.message;
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

Task<void> SlurmScheduler::poll_loop() {
    while (!stopped_) {
        const SlurmFacts* facts = site_.facts();
        const SlurmPace::Needs needs{tracked_, link_.failures, leftovers_.one_waits(),
                                     site_.nodes_are_wanted(),
                                     facts != nullptr ? facts->config.min_job_age : 0};
        const auto rest = pace_.next_query(needs) - clock_.steady();
        if (rest.count() > 0) {
            co_await pace_.sleep(rest);  // ended by soon(): looked at anew
            continue;
        }
        pace_.begin_query();
        if (site_.facts() == nullptr || !tracked_.empty() || !link_.reachable ||
            leftovers_.looks()) {
            co_await query();
        }
        co_await site_.look_around();
    }
}

Task<void> SlurmScheduler::query() {
    const SteadyTime asked = clock_.steady();
    pace_.spend();
    ++counters_.polls;
    const auto table = co_await backend_->jobs();
    counters_.last_poll_seconds = std::chrono::duration<double>(clock_.steady() - asked).count();
    if (!table) {
        ++counters_.polls_failed;
        ++link_.failures;
        link_.why = "Slurm does not answer: " + table.error().message;
        if (std::exchange(link_.reachable, false)) {
            log::warn("Slurm does not answer", {{"what", table.error().message}});
        }
        for (const auto& [name, tracked] : tracked_) {
            tracked->attempt.unseen_in_a_row = 0;  // it may have lost them
            tell(*tracked);
        }
        co_return;
    }
    link_.failures = 0;
    counters_.last_success = clock_.wall();
    if (!std::exchange(link_.reachable, true)) {
        log::info("Slurm answers again");
    }
    take_answer(*table, asked);
    measure_waits(counters_, tracked_, begun_, options_.waited);
    co_await leftovers_.audit(*table, tracked_);
    turns_.free_hanging(tracked_, clock_.steady(), counters_.sending);
    if (!stopped_) {
        questions_.ask_some(tracked_, asked, tasks_);
    }
    // A copy: what is settled may be forgotten meanwhile.
    const SlurmTrackedMap all = tracked_;
    for (const auto& [name, tracked] : all) {
        co_await settle(tracked, asked);
        tell(*tracked);
    }
    forget_ended();
    while (turns_.anybody_waits() && turns_.has_room()) {
        const auto next = tracked_.find(turns_.first());
        if (next != tracked_.end()) {
            const AttemptRequest& request = next->second->attempt.request;
            if (changed_) {
                changed_(request.job, request.attempt);
            }
            break;  // it takes its turn, and gives it to the next one after it
        }
        turns_.drop_first();
    }
}

void SlurmScheduler::take_answer(const JobTable& table, SteadyTime asked) {
    counters_.malformed += table.malformed;
    std::map<std::string, std::vector<SlurmJob>> rows;
    std::map<std::int64_t, const SlurmJob*> others;
    std::map<std::int64_t, std::string> holders;  // of a number: the key of a tracked attempt
    for (const SlurmJob& job : table.jobs) {
        const auto found = tracked_.find(attempt_part(job.name));
        if (found != tracked_.end() && found->second->attempt.name == job.name) {
            SlurmAttempt& attempt = found->second->attempt;
            if (job.id == attempt.called_id) {
                attempt.called.clear();  // it has its own name again
            }
            rows[found->first].push_back(job);
            holders.emplace(job.id, found->first);
        } else {
            others.emplace(job.id, &job);
        }
    }
    const std::vector<SlurmJob> none;
    for (const auto& [key, tracked] : tracked_) {
        if (const auto other = others.find(tracked->attempt.id); other != others.end()) {
            if (tracked->asks_file) {
                continue;  // whether it is ours is judged by the next answer
            }
            take_renamed(tracked->attempt, *other->second, rows[key]);
        }
        const auto found = rows.find(key);
        const auto holder = holders.find(tracked->attempt.id);
        const bool renamed = found != rows.end() && !found->second.empty();
        if (tracked->attempt.stage != SlurmAttempt::Stage::gone) {
            tracked->attempt.number_taken = tracked->attempt.id != 0 && !renamed &&
                                            (others.contains(tracked->attempt.id) ||
                                             (holder != holders.end() && holder->second != key));
        }
        const bool was_in_doubt = tracked->attempt.stage == SlurmAttempt::Stage::in_doubt;
        take_rows(tracked->attempt, found == rows.end() ? none : found->second, asked,
                  site_.patience());
        if (was_in_doubt && tracked->attempt.stage == SlurmAttempt::Stage::refused) {
            ++counters_.refused;
            log::warn("Slurm refuses a job", {{"job", tracked->attempt.request.job.value},
                                              {"name", tracked->attempt.name},
                                              {"what", tracked->attempt.message}});
        }
        if (was_in_doubt && tracked->attempt.stage == SlurmAttempt::Stage::known) {
            ++counters_.adopted;
            log::info("found in Slurm and taken up", {{"job", tracked->attempt.request.job.value},
                                                      {"name", tracked->attempt.name},
                                                      {"slurm_job", tracked->attempt.id}});
        }
        if (!stopped_ && SlurmAttemptFiles::note_job(*tracked)) {
            tasks_.spawn("seen", files_.write_job(tracked));
        }
    }
}

// What one answer asks for beside ask_some(): the end of surplus copies and of what is left.
Task<void> SlurmScheduler::settle(SlurmTrackedPointer tracked, SteadyTime asked) {
    SlurmAttempt& attempt = tracked->attempt;
    if (!site_.has_accounting()) {
        std::vector<SlurmJob> none;
        co_await questions_.settle_history(tracked, std::move(none), asked);
    }
    questions_.give_up_detail(*tracked);
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
        co_await cancels_.end(tracked, id);
    }
    if (nobody_came(attempt, asked, site_.patience())) {
        co_await cancels_.abandon(tracked);
    }
    const bool left_over =
        attempt.over && clock_.steady() - attempt.over_at >= options_.over_patience;
    if (attempt.stage == SlurmAttempt::Stage::known && !attempt.ended() && !wants_detail(attempt) &&
        !attempt.cancelled && (attempt.cancel_wanted || left_over)) {
        co_await cancels_.end(tracked, attempt.id);
    }
}

void SlurmScheduler::tell(SlurmTracked& tracked) {
    const Observation seen = observe(tracked.attempt, link_.reachable, link_.why);
    std::string now = signature(seen);
    if (now != tracked.told) {
        tracked.told = std::move(now);
        pace_.note_change();
        if (changed_ && !stopped_) {
            changed_(tracked.attempt.request.job, tracked.attempt.request.attempt);
        }
    }
}

void SlurmScheduler::forget_ended() {
    for (auto at = tracked_.begin(); at != tracked_.end();) {
        if (at->second->attempt.over && at->second->attempt.nothing_left()) {
            turns_.leave(at->first);
            at = tracked_.erase(at);
        } else {
            ++at;
        }
    }
}

}  // namespace lockstep
