// The files that the Slurm scheduler keeps in an attempt's directories, for Slurm and for the next
// lockstepd, and the logs that it reads there. On threads of its own: the directories may be on a
// file server that takes its time. Control thread; must outlive its calls. Only calls that
// return a Status report a failure: without one of the other files the next lockstepd waits longer,
// or knows less.
#pragma once

#include "job/async/on_thread.hpp"
#include "job/base/result.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

class SlurmAttemptFiles {
  public:
    // `steady_clock`: steady_clock_name(), or "" where no time of it is to be kept.
    SlurmAttemptFiles(std::size_t threads, std::string steady_clock);

    Task<Status> write_script(slurm::BatchScript script);  // fails as replace_file()

    // Of a try of this daemon's that has ended. Without the file the next daemon waits for the
    // whole time.
    Task<void> keep_doubt(SlurmTrackedPointer tracked);
    // Of an earlier daemon's try. The first daemon after one that could not write it does: nothing
    // was sent after its own start. A store that was restored from a backup does not know the tries
    // that came after it, and believes no file.
    Task<void> take_up_doubt(SlurmTrackedPointer tracked);

    // True: write_job() is to follow, once for each job. Without the file a job that is renamed
    // while no lockstepd runs counts as lost.
    static bool note_job(SlurmTracked& tracked);
    Task<void> write_job(SlurmTrackedPointer tracked);
    Task<void> take_up_job(SlurmTrackedPointer tracked);

    // That Slurm's job `id` is about to be cancelled because no agent has come from it.
    Task<Status> write_abandoned(const AttemptRequest& request, std::int64_t id);
    Task<bool> was_abandoned(const SlurmAttempt& attempt);  // its present job

    // The last line of the batch script's log, or, where that is only srun's word on the agent, of
    // the first agent's: "lockstep-agent: error while loading shared libraries: …". "": none.
    Task<std::string> last_batch_words(const SlurmAttempt& attempt);

  private:
    std::string steady_clock_;
    net::thread_pool threads_;
};

}  // namespace lockstep
