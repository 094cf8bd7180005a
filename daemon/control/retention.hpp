// Removes what is left of jobs that were removed (chunks of history, files), and jobs that have
// been over for longer than the settings keep them. What a kill interrupts is taken up by the next
// start. Files go on a thread of their own: a checkpoint may be a terabyte. Control thread only.
#pragma once

#include "daemon/control/context.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

// What a job takes on disk, in bytes as the file system counts them (st_blocks).
struct DiskUse {
    std::int64_t logs = 0;
    std::int64_t evidence = 0;
    std::int64_t checkpoints = 0;  // below the runs directory; a job's own folder is not looked at
    std::int64_t other = 0;
    std::int64_t files = 0;
    bool partly = false;  // there was more than was counted
};

// Blocking. Links are counted, not followed; what cannot be read is left out, and so is what comes
// after `most` files.
DiskUse disk_use(const std::filesystem::path& job_directory, std::int64_t most);

// Blocking. Removes a job's folder, or all of it but its checkpoints; nothing there is no error.
// Links are removed, not followed: whoever ran the job could write there.
Status remove_job_files(const std::filesystem::path& job_directory, bool with_checkpoints);

class Retention {
  public:
    // `remove` makes a job that is over none: what the caller of Control::remove asks for, too.
    using Remove = std::function<Task<Status>(JobId)>;
    Retention(ControlContext& context, Remove remove);

    // What is left from before; ages, now and every hour. Until halt().
    void begin();
    // A job has been removed: the rest of it, soon.
    void hurry();
    Task<Result<DiskUse>> look(std::filesystem::path job_directory);
    void halt();
    // Ends the thread; no call may be in flight.
    void stop();

  private:
    Task<void> tend();
    Task<void> remove_old();
    Task<void> clear_all();
    Task<Status> clear(RemovalRow removal);

    ControlContext& context_;
    Remove remove_;
    net::thread_pool files_{1};
    net::steady_timer wake_;
    bool waiting_ = false;  // removals since the last look
    std::atomic<bool> ending_{false};
};

}  // namespace lockstep
