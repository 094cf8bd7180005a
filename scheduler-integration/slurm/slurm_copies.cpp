#include "scheduler-integration/slurm/slurm_copies.hpp"

#include "scheduler-integration/slurm/slurm_blame.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kUnseenListed = 64;  // the newest: Slurm was away again and again

bool is_same(const SlurmAttempt::Copy& copy, const SlurmJob& row) {
    return copy.id == row.id && copy.submitted_at == row.submitted_at;
}

bool is_fenced(const SlurmAttempt& attempt, const SlurmJob& row) {
    return std::any_of(attempt.fenced.begin(), attempt.fenced.end(),
                       [&](const auto& one) { return is_same(one, row); });
}

}  // namespace

bool is_stillborn(const SlurmAttempt& attempt, const SlurmJob& row) {
    return row.id != attempt.claimed &&
           std::any_of(attempt.stillborn.begin(), attempt.stillborn.end(), [&](const auto& one) {
               return one.id == row.id && one.submitted_at == row.submitted_at;
           });
}

bool is_record_of_refusal(const SlurmAttempt& attempt, const SlurmJob& row) {
    const SlurmVerdict verdict = row.verdict();
    return row.id != attempt.id && row.id != attempt.claimed && verdict.terminal &&
           verdict.end == SlurmEnd::failed && row.nodes.empty() &&
           (row.reason == "BadConstraints" || row.reason.empty());
}

const SlurmJob* choose_copy(const SlurmAttempt& attempt, const std::vector<SlurmJob>& rows) {
    const auto rank = [&](const SlurmJob& job) {
        const bool dead = job.verdict().terminal;
        const bool own = job.id == attempt.id;
        if (job.id == attempt.calling && !dead) {
            return std::pair{0, job.id};
        }
        if (own && !(dead && blame(job, nullptr) == Blame::slurm)) {
            return std::pair{1, job.id};
        }
        return std::pair{!dead ? 2 : own ? 3 : 4, job.id};
    };
    const SlurmJob* best = nullptr;
    for (const SlurmJob& row : rows) {
        if (row.id == attempt.claimed) {
            return &row;
        }
        if (attempt.claimed != 0 || is_stillborn(attempt, row) || is_fenced(attempt, row) ||
            is_record_of_refusal(attempt, row)) {
            continue;
        }
        if (best == nullptr || rank(row) < rank(*best)) {
            best = &row;
        }
    }
    return best;
}

void find_surplus(SlurmAttempt& attempt, const std::vector<SlurmJob>& rows) {
    attempt.surplus.clear();
    for (const SlurmJob& row : rows) {
        if (row.id == attempt.id || row.verdict().terminal) {
            continue;
        }
        attempt.surplus.push_back(row.id);
        if (!is_fenced(attempt, row)) {
            attempt.fenced.push_back({row.id, row.submitted_at});
        }
    }
}

bool count_unseen(SlurmAttempt& attempt, const SlurmPatience& patience) {
    if (attempt.id == 0 || attempt.seen || attempt.number_taken || attempt.claimed != 0 ||
        attempt.stage != SlurmAttempt::Stage::known) {
        return false;
    }
    attempt.unseen.push_back(attempt.id);
    if (attempt.unseen.size() > kUnseenListed) {
        attempt.unseen.erase(attempt.unseen.begin());
    }
    if (++attempt.unseen_in_a_row < patience.unseen) {
        return false;
    }
    attempt.message = "Slurm has taken it " + std::to_string(attempt.unseen_in_a_row) +
                      " times, the last time as job " + std::to_string(attempt.id) +
                      ", and squeue has never shown it: it is not submitted again";
    return true;
}

void forget_job(SlurmAttempt& attempt) {
    attempt.id = 0;
    attempt.called.clear();
    attempt.seen.reset();
    attempt.last_verdict = {};
    attempt.confirmed = false;
    attempt.detail.reset();
    attempt.batch_words.clear();
    attempt.abandoned = false;
    attempt.running_since.reset();
}

bool may_claim(SlurmAttempt& attempt, std::int64_t id) {
    if (attempt.claimed != 0) {
        return id == attempt.claimed;
    }
    const bool ends = std::any_of(attempt.fenced.begin(), attempt.fenced.end(),
                                  [&](const auto& one) { return one.id == id; });
    if (!ends) {
        attempt.calling = id;
    }
    return !ends;
}

}  // namespace lockstep
