// Questions about single attempts, each of which may take its whole time: what accounting knows of
// a name, and the details of a job that squeue does not print. Control thread; lives as long as the
// scheduler, and the tasks that it spawns must have ended before it goes. Without an answer nobody
// is taken for absent, nor an end believed of a job that no agent has claimed: it is asked again.
// The details of a claimed job then count as unknown.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/task_group.hpp"
#include "job/base/clock.hpp"
#include "scheduler-integration/slurm/scheduler/attempt_files.hpp"
#include "scheduler-integration/slurm/scheduler/cancels.hpp"
#include "scheduler-integration/slurm/scheduler/counters.hpp"
#include "scheduler-integration/slurm/scheduler/options.hpp"
#include "scheduler-integration/slurm/scheduler/pace.hpp"
#include "scheduler-integration/slurm/scheduler/site.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"
#include "scheduler-integration/slurm/slurm_backend.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class SlurmQuestions {
  public:
    // What it works with; all must outlive it.
    struct Parts {
        const Clock& clock;
        SlurmBackend& backend;
        const SlurmSchedulerOptions& options;
        SlurmPace& pace;
        const SlurmSite& site;
        SlurmAttemptFiles& files;
        SlurmCancels& cancels;
        SlurmCounters& counters;
    };
    using Done = std::function<void(SlurmTracked& tracked)>;  // after each, answered or not
    SlurmQuestions(Parts parts, Done done) : parts_(parts), done_(std::move(done)) {}

    // A few at each answer, in turn, out of the budget that the polls have. What is asked beyond
    // the first few is not waited for: the next squeue comes as soon as after those. `asked`: when
    // the answer of squeue was asked for.
    void ask_some(const SlurmTrackedMap& all, SteadyTime asked, TaskGroup& tasks);
    // The rows of accounting; none where there is none to ask. What squeue has shown meanwhile
    // counts more.
    Task<void> settle_history(SlurmTrackedPointer tracked, std::vector<SlurmJob> rows,
                              SteadyTime asked);
    // Many jobs may have ended at once. One whose ranks have told how they ended need not wait for
    // the little that Slurm adds; of what nobody has claimed it decides whether the job is lost.
    void give_up_detail(SlurmTracked& tracked);

  private:
    struct Question {
        SlurmTrackedPointer tracked;
        int place = 0;  // in the line; 0: the detail of one that nobody has claimed
        bool history = false;
    };
    std::vector<Question> line(const SlurmTrackedMap& all, SteadyTime asked) const;
    Task<void> ask_history(SlurmTrackedPointer tracked, SteadyTime asked);
    Task<void> ask_detail(SlurmTrackedPointer tracked);

    Parts parts_;
    Done done_;
    std::size_t histories_ = 0;  // in flight
    std::size_t details_ = 0;
    std::string last_;  // the key of the attempt that was asked about last
};

}  // namespace lockstep
