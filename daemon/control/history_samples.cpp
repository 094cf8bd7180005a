// What an export asks of history: every sample, page by page, and which metrics there are.
#include "daemon/control/history_keeper.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <memory>
#include <set>

namespace lockstep {

Task<Result<std::string>> HistoryKeeper::samples(std::string job, telemetry::SampleAsk ask) {
    const telemetry::JobSeries* series = context_.series.find(job);
    auto tail = std::make_shared<std::vector<telemetry::TailRows>>();
    std::int64_t newest = 0;
    // Of one moment: what is in no chunk up to `newest` is in `tail`.
    if (series != nullptr && series->history() != nullptr) {
        *tail = series->history()->tail(series->metric(ask.metric).value_or(limits::kMetricsPerJob),
                                        ask.entities);
        newest = series->history()->newest_chunk;
    }
    const std::function<Result<std::string>(telemetry::HistorySource&)> work =
        [ask = std::move(ask), tail,
         newest](telemetry::HistorySource& source) -> Result<std::string> {
        const auto page = telemetry::read_samples(source, ask, *tail, newest);
        if (!page) {
            return fail(page.error());
        }
        return telemetry::to_json_text(ask, *page);
    };
    co_return co_await read<std::string>(job, newest, work);
}

Task<Result<std::string>> HistoryKeeper::metrics(std::string job) {
    const telemetry::JobSeries* series = context_.series.find(job);
    std::set<std::string> known;
    std::int64_t newest = 0;
    if (series != nullptr) {
        const auto reported = series->reported_metrics();
        known.insert(reported.begin(), reported.end());
        newest = series->history() == nullptr ? 0 : series->history()->newest_chunk;
    }
    // Memory may know the end of a long run only.
    const std::function<Result<std::string>(telemetry::HistorySource&)> work =
        [known = std::move(known)](telemetry::HistorySource& source) -> Result<std::string> {
        const auto stored = source.metrics();
        if (!stored) {
            return fail(stored.error());
        }
        std::set<std::string> all = known;
        all.insert(stored->begin(), stored->end());
        return dump_json(Json(all));
    };
    co_return co_await read<std::string>(job, newest, work);
}

}  // namespace lockstep
