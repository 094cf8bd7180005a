// Removes what is left of jobs that were removed (chunks of history, files), and jobs that have
// been over for longer than the settings keep them, or that take more room than the settings give.
// Measures what each user's jobs take, where the settings bound that: once an hour, and after a
// start anew. What a kill interrupts is taken up by the next start. Files go on threads of their
// own, some jobs' at a time: a checkpoint may be a terabyte, a file system may hang, and neither
// the other jobs nor the daemon's end wait for that. Control thread only.
#pragma once

#include "daemon/control/base/context.hpp"
#include "daemon/control/jobs/removal_order.hpp"
#include "daemon/store/removal_records.hpp"
#include "job/async/side_thread.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

namespace lockstep {

class Retention {
  public:
    // `remove` makes a job that is over none: what the caller of Control::remove asks for, too.
    using Remove = std::function<Task<Status>(JobId)>;
    // Whether a job that is not over runs in that snapshot.
    using InUse = std::function<bool(const std::string& snapshot)>;
    // The folder of a job, if it is of an earlier runs directory; "" = it is not.
    using EarlierFolder = std::function<Task<Result<std::filesystem::path>>(JobId)>;
    // Whether the job is not over.
    using Unfinished = std::function<bool(const std::string& job)>;
    Retention(ControlContext& context, Remove remove, InUse in_use, EarlierFolder earlier_folder,
              Unfinished unfinished);

    // What is left from before; ages, now and every hour. Until halt().
    void begin();
    // A job has been removed, or something of one: the next pass begins now.
    void wake();
    void halt();

  private:
    // Folders of which a file system that hangs holds a thread each; then no more is measured.
    static constexpr std::size_t kHangingWalks = 2;

    Task<void> tend();
    Task<void> remove_old();
    Task<void> remove_beyond_size();
    Task<Result<RemovalOrder>> sizes_of_ended(UnixMillis fresh_since);
    Task<void> measure_users();
    Task<Status> find_stored();
    Task<Result<UserBytes::Folder>> measure(const JobId& job);
    Task<Result<UserBytes::Folder>> size_of(const JobId& job);
    Task<void> clear_all();
    Task<void> clear(RemovalRow removal);
    Task<Status> clear_one(const RemovalRow& removal);
    Task<Status> remove_on_thread(std::function<Status()> work);
    void tell_slow() const;
    Task<Result<std::filesystem::path>> snapshot_to_remove(const std::string& name);

    ControlContext& context_;
    Remove remove_;
    InUse in_use_;
    EarlierFolder earlier_folder_;
    Unfinished unfinished_;
    SideThread files_;  // removals
    SideThread walks_;  // sizes: removals may take all threads for hours
    std::map<std::string, std::chrono::steady_clock::time_point> clearing_;  // jobs, since when
    std::set<std::string> later_;  // could not be cleared since the last hour began
    net::steady_timer wake_;
    std::map<std::string, std::int64_t> sizes_;  // bytes, of jobs that are over
    unsigned looks_ = 0;
    bool stored_found_ = false;  // context_.stored has every job of the store
    bool waiting_ = false;       // removals since the last look
    bool ending_ = false;
};

}  // namespace lockstep
