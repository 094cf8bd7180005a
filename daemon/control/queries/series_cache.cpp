#include "daemon/control/queries/series_cache.hpp"

#include "job/base/limits.hpp"
#include "job/model/state.hpp"

#include <algorithm>

namespace lockstep {

void SeriesCache::keep(const std::string& job) {
    ages_.push_front(job);
    while (ages_.size() > limits::kSeriesJobsCached) {
        context_.series.erase(ages_.back());
        ages_.pop_back();
    }
}

void SeriesCache::finish(const std::string& job) {
    history_.finish(job);
    if (context_.series.find(job) != nullptr) {
        keep(job);
    }
}

void SeriesCache::forget(const std::string& job) {
    ages_.remove(job);
    context_.series.erase(job);
}

Task<Result<const telemetry::JobSeries*>> SeriesCache::load(const Job& job) {
    const std::string id = job.id.value;
    if (context_.series.find(id) == nullptr && is_final(job.state)) {
        if (const Status restored = co_await history_.restore(job); !restored) {
            co_return fail(restored.error());
        }
        if (context_.series.find(id) != nullptr &&
            std::find(ages_.begin(), ages_.end(), id) == ages_.end()) {
            keep(id);
        }
    }
    co_return context_.series.find(id);
}

Task<Result<bool>> SeriesCache::packed(const Job& job) {
    const auto packed = co_await history_.packed(job);
    if (!packed || *packed) {
        co_return packed;
    }
    const auto series = co_await load(job);
    co_return series ? Result<bool>{false} : Result<bool>{fail(series.error())};
}

}  // namespace lockstep
