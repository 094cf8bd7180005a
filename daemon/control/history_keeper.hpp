// Moves telemetry between memory and the store: batches that ingest has logged become chunks of
// history, a job's series come back after a restart, and questions that memory cannot answer
// exactly are answered from the chunks.
// Two threads of its own, so that neither packing nor a long question holds up the control thread
// or a commit: one packs chunks, one reads through a connection of its own. Control thread only.
#pragma once

#include "daemon/control/context.hpp"
#include "daemon/telemetry/heatmap.hpp"
#include "daemon/telemetry/history_scan.hpp"
#include "job/model/job.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class HistoryKeeper {
  public:
    explicit HistoryKeeper(ControlContext& context) : context_(context) {}

    // Fills the series of a job that are not in memory. Damaged parts are left out and logged.
    Task<Status> restore(const Job& job);
    // New rows have come: moves them into chunks if it is time.
    void look(const std::string& job);
    // The job is over: all of it into chunks.
    void finish(const std::string& job);
    // Removes what is beyond the settings' size and age.
    void expire();

    // Whether memory has every row that a question may be about.
    static bool in_memory(const telemetry::JobSeries& series,
                          const std::vector<std::int32_t>& ranks);
    Task<Result<std::vector<telemetry::RankHistory>>> series(std::string job,
                                                             telemetry::HistoryAsk ask);
    Task<Result<std::string>> heatmap(std::string job, telemetry::HeatmapAsk ask);
    // Ends the threads; no call may be in flight.
    void stop();

  private:
    struct Reading;
    void begin_flush(const std::string& job, telemetry::History& history);
    Task<void> flush(std::string job, std::shared_ptr<telemetry::History> history);
    Task<void> remove_old();
    template <class T>
    Task<Result<T>> read(std::string job, std::int64_t newest,
                         std::function<Result<T>(telemetry::HistorySource&)> work);

    ControlContext& context_;
    net::thread_pool packing_{1};
    net::thread_pool reading_{1};
    std::shared_ptr<Database> reader_;  // the reading thread's; made by the first question
    bool expiring_ = false;
};

}  // namespace lockstep
