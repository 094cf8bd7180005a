// What the parts of control share. Everything is borrowed and outlives control; control thread
// only.
#pragma once

#include "daemon/control/base/attempt_files.hpp"
#include "daemon/control/base/event_bus.hpp"
#include "daemon/control/base/jobs_account.hpp"
#include "daemon/control/base/notify_settings.hpp"
#include "daemon/control/base/runs_folder.hpp"
#include "daemon/control/base/user_bytes.hpp"
#include "daemon/control/base/user_quotas.hpp"
#include "daemon/store/secret_store.hpp"
#include "daemon/store/store.hpp"
#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "daemon/telemetry/exposition/gpu_table.hpp"
#include "daemon/telemetry/series/series.hpp"
#include "job/async/asio.hpp"
#include "job/async/on_thread.hpp"
#include "job/async/side_thread.hpp"
#include "job/async/task_group.hpp"
#include "job/base/clock.hpp"
#include "job/base/limits.hpp"
#include "scheduler-integration/scheduler.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>

namespace lockstep {

struct ControlSettings {
    std::filesystem::path runs_dir;  // absolute; attempts, logs and checkpoints
    AgentsListener agents{};         // what the agents dial
    std::string daemon_id;           // random per start
    // A SIGTERM of nobody's, with the scheduler's word gone for good, is recovered from like any
    // other end of a rank; false: the job ends.
    bool doubtful_ends_recover = true;
    // Ranks whose node the scheduler calls failed, and that are heard, go on; false: they are
    // ended.
    bool keep_on_node_fail = true;
    std::size_t window = 64;  // attempts handed to the scheduler at a time
    UserQuotas::Caps of_user{limits::kUserJobs, limits::kUserSubmissions};
    std::int64_t history_mb = 10'240;          // chunks of history on disk; the oldest go beyond it
    std::size_t max_series_per_job = 300'000;  // of ranks, in /metrics
    std::int64_t history_days = 30;            // 0 = whatever their age
    std::int64_t keep_days = 0;                // jobs that are over; 0 = for ever
    std::int64_t keep_bytes = 0;               // of jobs that are over, in their folders; 0 = any
    std::int64_t user_bytes = 0;               // what one user's jobs may take; 0 = any
    std::filesystem::path snapshots_dir{};     // of `lockstep run --snapshot`; "" = none known
    JobsAccount account{};
    CopiedJobs copied{};      // what came with a copy of another's store
    NotifySettings notify{};  // where notices of jobs may go
    // Values of all jobs that wait in memory for a chunk: 160 MiB. A full job's share is half of
    // it.
    std::size_t open_samples = 2 * limits::kOpenSamples;
    // How long a job without news waits before it looks at what is due.
    std::chrono::milliseconds tick{1'000};
    // A job's tick that comes so late was not the job's: the daemon, or its machine, stood still,
    // and all patience with silent agents starts anew.
    std::chrono::milliseconds stalled{2'000};
    // The same, if nobody's silence was looked at for so long: it could not know who was silent.
    std::chrono::milliseconds deaf{3'000};
};

struct ControlContext {
    net::io_context& io;
    const Clock& clock;
    Store& store;
    Scheduler& scheduler;
    telemetry::DaemonMetrics& metrics;
    ControlSettings settings;
    net::thread_pool files{1};  // file work that waits for the disk
    // What lies in attempts' folders, which lockstep-exec may have to open: as long as it likes, or
    // for ever where its file system stands still.
    SideThread attempt_files{io, 4};
    bool stops = false;  // they were let go: nothing is to be concluded from what was not read
    RunsFolder runs_folder{io, settings.runs_dir};
    TaskGroup tasks{io};
    EventBus bus{};
    UserBytes stored{};  // told only where settings.user_bytes is a bound
    telemetry::SeriesStore series{};
    telemetry::GpuTable gpus{};
    const SecretStore* secrets = nullptr;  // nullptr: nobody has any

    ControlContext(net::io_context& io_, const Clock& clock_, Store& store_, Scheduler& scheduler_,
                   telemetry::DaemonMetrics& metrics_, ControlSettings settings_)
        : io(io_),
          clock(clock_),
          store(store_),
          scheduler(scheduler_),
          metrics(metrics_),
          settings(std::move(settings_)) {}
    double now_seconds() const { return static_cast<double>(clock.wall()) / 1000.0; }
};

}  // namespace lockstep
