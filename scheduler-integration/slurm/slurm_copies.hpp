// Of the jobs in Slurm that have an attempt's name: which one is the attempt's, which are surplus
// and to be ended, and which are no jobs at all. Pure functions of SlurmAttempt. Control thread.
#pragma once

#include "scheduler-integration/slurm/slurm_attempt.hpp"

#include <vector>

namespace lockstep {

// Slurm had ended it by itself before an agent had called in (SlurmAttempt::stillborn).
bool is_stillborn(const SlurmAttempt& attempt, const SlurmJob& row);

// What slurmctld keeps of a submission that it refused because it has no such nodes: a number, the
// name, FAILED and BadConstraints, never a node (job_allocate() in src/slurmctld/job_mgr.c,
// "fundamental flaw in job request"; seen with 22.05.8, where sacct leaves out the reason). sbatch
// is not told the number. It is not a job, unless it was acknowledged as one and found impossible
// later.
bool is_record_of_refusal(const SlurmAttempt& attempt, const SlurmJob& row);

// The claimed one, else the one whose agent has called in, the one we know, or the oldest that was
// not cancelled. One that Slurm ended by itself does not hide a live one. nullptr: none. Points
// into `rows`.
const SlurmJob* choose_copy(const SlurmAttempt& attempt, const std::vector<SlurmJob>& rows);

// Fills SlurmAttempt::surplus with the live rows that are not the attempt's. From now on
// may_claim() says no to their agents, so that ending one cannot end a job that has just become the
// attempt's.
void find_surplus(SlurmAttempt& attempt, const std::vector<SlurmJob>& rows);

// An agent of this allocation calls in, and nobody has claimed the attempt yet. False: it is a
// surplus copy, which is being ended: if it had the attempt, that would end with it. True: it is
// not called surplus from now on, while the claim is written down.
bool may_claim(SlurmAttempt& attempt, std::int64_t id);

// Its job is about to count as lost. True: that is once too often of jobs that Slurm had taken and
// that squeue never showed; then SlurmAttempt::message says so.
bool count_unseen(SlurmAttempt& attempt, const SlurmPatience& patience);

// What was known of its job is of no meaning any more; the stage stays.
void forget_job(SlurmAttempt& attempt);

}  // namespace lockstep
