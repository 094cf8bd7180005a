// What answers about series of ranks and of GPUs have in common. Internal to queries/. Pure; any
// thread.
#pragma once

#include "daemon/control/base/control.hpp"
#include "daemon/telemetry/series/bands.hpp"
#include "daemon/telemetry/series/series_query.hpp"
#include "job/base/json.hpp"

#include <functional>

namespace lockstep {

// Metric, axis and range of a query; what it does not name stays as `ask` has it. `Ask`: any of
// telemetry's questions.
template <class Query, class Ask>
void take_range(const Query& query, Ask& ask) {
    ask.metric = query.metric;
    ask.x = query.by_time ? telemetry::Axis::time : telemetry::Axis::step;
    ask.from = query.from.value_or(ask.from);
    ask.to = query.to.value_or(ask.to);
}

// Bands of `query`, of which entities the caller adds. `low_is_worse`: as the metric is.
telemetry::BandsAsk bands_ask(const SeriesQuery& query, bool low_is_worse);
// Adds `bands`, `worst` and `worse`, as far as they were asked for. `item`: one of the worst, its
// history and who it is.
void put_bands(Json& answer, const telemetry::BandsAsk& ask, const telemetry::BandsAnswer& found,
               const std::function<Json(const telemetry::RankHistory&)>& item);

}  // namespace lockstep
