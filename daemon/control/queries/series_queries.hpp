// What is asked of a job's ranks and GPUs: what they report now, and over time. Questions about
// history take turns (HistoryKeeper::turn). Control thread only; answers about GPUs are made on the
// reading thread.
#pragma once

#include "daemon/control/actor/job_registry.hpp"
#include "daemon/control/base/context.hpp"
#include "daemon/control/base/control.hpp"
#include "daemon/control/history/history_keeper.hpp"
#include "daemon/control/queries/series_cache.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

class SeriesQueries {
  public:
    SeriesQueries(ControlContext& context, JobRegistry& registry, SeriesCache& cache,
                  HistoryKeeper& history)
        : context_(context), registry_(registry), cache_(cache), history_(history) {}

    // As Control has them.
    Task<Result<std::string>> ranks(Caller caller, std::string id, RanksQuery query);
    Task<Result<std::string>> series(Caller caller, std::string id, SeriesQuery query);
    Task<Result<std::string>> heatmap(Caller caller, std::string id, HeatmapQuery query);
    Task<Result<std::string>> samples(Caller caller, std::string id, SamplesQuery query);
    Task<Result<std::string>> metric_names(Caller caller, std::string id);
    // gpu_queries.cpp
    Task<Result<std::string>> gpus(Caller caller, std::string id, std::size_t offset,
                                   std::size_t limit);

  private:
    // series_bands.cpp: the series question with stats or worst, when history is ready.
    Task<Result<std::string>> bands(std::shared_ptr<const Job> job, SeriesQuery query);
    // gpu_queries.cpp: the questions of GPUs, when history is ready.
    Task<Result<std::string>> gpu_series(std::string id, SeriesQuery query);
    Task<Result<std::string>> gpu_heatmap(std::string id, HeatmapQuery query);
    Task<Result<std::string>> gpu_samples(std::string id, telemetry::SampleAsk ask,
                                          SamplesQuery query);

    ControlContext& context_;
    JobRegistry& registry_;
    SeriesCache& cache_;
    HistoryKeeper& history_;
};

}  // namespace lockstep
