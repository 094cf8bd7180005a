// What is asked of history: series, heatmap, every sample, and which metrics there are. Chunks are
// read on the reading thread; what is in none is copied first, of the same moment.
#include "daemon/control/base/query_error.hpp"
#include "daemon/control/history/history_keeper.hpp"
#include "daemon/control/history/history_restore.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/history_records.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

namespace lockstep {
namespace {

using telemetry::History;
using telemetry::JobSeries;

// Of a job whose series are not in memory: no row of its chunks is anywhere else.
constexpr std::int64_t kEveryChunk = std::numeric_limits<std::int64_t>::max();

class StoreSource final : public telemetry::HistorySource {
  public:
    // `ending`: whoever asked is not going to wait any more.
    StoreSource(Database& db, JobId job, telemetry::EntityKind kind, std::int64_t newest,
                const std::atomic<bool>& ending)
        : records_(db),
          job_(std::move(job)),
          kind_(static_cast<std::int32_t>(kind)),
          newest_(newest),
          ending_(ending) {}
    Result<std::vector<telemetry::ChunkMeta>> chunks(std::uint32_t low,
                                                     std::uint32_t high) override {
        const auto rows = records_.chunks(job_, kind_, low, high, newest_);
        LOCKSTEP_TRY(rows);
        std::vector<telemetry::ChunkMeta> out;
        for (const ChunkRow& row : *rows) {
            telemetry::ChunkMeta meta;
            meta.id = row.id;
            meta.block = row.block;
            meta.start = {row.attempt, row.generation};
            meta.step_low = row.step_low;
            meta.step_high = row.step_high;
            meta.time_low = row.time_low;
            meta.time_high = row.time_high;
            out.push_back(meta);
        }
        return out;
    }
    Result<std::optional<std::string>> section(std::int64_t chunk, std::string_view name,
                                               std::uint8_t level) override {
        if (ending_) {
            return fail(Errc::unavailable, "the daemon is stopping");
        }
        return records_.section(chunk, name, level);
    }
    Result<bool> packed() override { return records_.packed(job_); }
    Result<std::string> state() override { return records_.state(job_); }
    Result<std::vector<std::string>> metrics() override {
        auto names = records_.section_names(job_, kind_, newest_);
        if (names) {
            std::erase_if(*names, [](const std::string& name) { return name.starts_with('@'); });
        }
        return names;
    }

  private:
    HistoryRecords records_;
    JobId job_;
    std::int32_t kind_;
    std::int64_t newest_;
    const std::atomic<bool>& ending_;
};

}  // namespace

Task<Result<bool>> HistoryKeeper::packed(const Job& job) {
    if (!is_final(job.state)) {
        co_return false;
    }
    const std::string id = job.id.value;
    if (const JobSeries* series = context_.series.find(id)) {
        const History* history = series->history();
        co_return history != nullptr && !history->storing && history->empty() &&
            history->newest_log == history->stored_log && !old_batches_.contains(id);
    }
    const std::function<Result<bool>(telemetry::HistorySource&)> work =
        [](telemetry::HistorySource& source) { return source.packed(); };
    co_return co_await read<bool>(id, kEveryChunk, work);
}

bool HistoryKeeper::in_memory(const JobSeries& series, const std::vector<std::int32_t>& ranks) {
    if (series.history() == nullptr) {
        return true;
    }
    return series.history()->complete &&
           std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) {
               return series.rank(static_cast<std::size_t>(rank)).stride() == 1;
           });
}

template <class T>
Task<Result<T>> HistoryKeeper::read(std::string job, std::int64_t newest,
                                    std::function<Result<T>(telemetry::HistorySource&)> work,
                                    telemetry::EntityKind kind) {
    if (!reader_) {
        const std::function<Result<std::shared_ptr<Database>>(Database&)> open =
            [](Database& db) -> Result<std::shared_ptr<Database>> {
            auto made = db.reader();
            LOCKSTEP_TRY(made);
            return std::shared_ptr<Database>{std::move(*made)};
        };
        auto opened = co_await context_.store.read<std::shared_ptr<Database>>(open);
        LOCKSTEP_CO_TRY(opened);
        if (!reader_) {
            reader_ = std::move(*opened);
        }
    }
    const std::function<Result<T>()> call = [db = reader_, job = JobId{std::move(job)}, newest,
                                             work = std::move(work), kind, this] {
        StoreSource source{*db, job, kind, newest, ending_};
        auto out = work(source);
        if (const std::optional<Error>& error = db->disk_error()) {
            context_.store.distrust(*error);
        }
        return out;
    };
    co_return co_await on_thread<Result<T>>(reading_, call);
}

Task<Result<std::vector<telemetry::RankHistory>>> HistoryKeeper::series(std::string job,
                                                                        telemetry::HistoryAsk ask) {
    const JobSeries* series = context_.series.find(job);
    // Shared: a function is copied on its way to the thread.
    const auto tail = std::make_shared<telemetry::HistoryTail>();
    std::int64_t newest = kEveryChunk;
    if (series != nullptr && series->history() != nullptr) {
        const History& history = *series->history();
        *tail =
            history.tail(series->metric(ask.metric).value_or(limits::kMetricsPerJob), ask.entities);
        newest = history.newest_chunk;
    }
    using Answer = std::vector<telemetry::RankHistory>;
    const std::function<Result<Answer>(telemetry::HistorySource&)> work =
        [ask = std::move(ask), tail](telemetry::HistorySource& source) {
            return telemetry::fold_series(source, ask, tail->rows());
        };
    co_return co_await read<Answer>(job, newest, work);
}

Task<Result<telemetry::BandsAnswer>> HistoryKeeper::bands(std::string job,
                                                          telemetry::BandsAsk ask) {
    const JobSeries* series = context_.series.find(job);
    const auto tail = std::make_shared<telemetry::HistoryTail>();
    std::int64_t newest = kEveryChunk;
    if (series != nullptr && series->history() != nullptr) {
        const History& history = *series->history();
        *tail =
            history.tail(series->metric(ask.metric).value_or(limits::kMetricsPerJob), ask.entities);
        newest = history.newest_chunk;
    }
    using Answer = telemetry::BandsAnswer;
    const std::function<Result<Answer>(telemetry::HistorySource&)> work =
        [ask = std::move(ask), tail](telemetry::HistorySource& source) {
            return telemetry::fold_bands(source, ask, tail->rows());
        };
    co_return co_await read<Answer>(job, newest, work);
}

Task<Result<std::string>> HistoryKeeper::heatmap(std::string job, telemetry::HeatmapAsk ask) {
    const JobSeries* series = context_.series.find(job);
    auto tail = std::make_shared<telemetry::HistoryTail>();
    std::int64_t newest = kEveryChunk;
    if (series != nullptr && series->history() != nullptr) {
        std::vector<std::uint32_t> ranks(std::size_t{ask.rank_high} - ask.rank_low + 1);
        std::iota(ranks.begin(), ranks.end(), ask.rank_low);
        *tail = series->history()->tail(series->metric(ask.metric).value_or(limits::kMetricsPerJob),
                                        ranks);
        newest = series->history()->newest_chunk;
    }
    const std::function<Result<std::string>(telemetry::HistorySource&)> work =
        [ask = std::move(ask), tail](telemetry::HistorySource& source) {
            return telemetry::make_heatmap(source, ask, tail->rows());
        };
    co_return co_await read<std::string>(job, newest, work);
}

Task<Result<std::string>> HistoryKeeper::samples(std::string job, telemetry::SampleAsk ask) {
    const telemetry::JobSeries* series = context_.series.find(job);
    auto tail = std::make_shared<telemetry::HistoryTail>();
    std::int64_t newest = kEveryChunk;
    // Of one moment: what is in no chunk up to `newest` is in `tail`.
    if (series != nullptr && series->history() != nullptr) {
        *tail = series->history()->tail(series->metric(ask.metric).value_or(limits::kMetricsPerJob),
                                        ask.entities);
        newest = series->history()->newest_chunk;
    }
    const std::function<Result<std::string>(telemetry::HistorySource&)> work =
        [ask = std::move(ask), tail,
         newest](telemetry::HistorySource& source) -> Result<std::string> {
        const auto page = telemetry::read_samples(source, ask, tail->rows(), newest);
        LOCKSTEP_TRY(page);
        return telemetry::to_json_text(ask, *page);
    };
    co_return co_await read<std::string>(job, newest, work);
}

namespace {

// Ascending ids. invalid: there is no such GPU.
Result<std::vector<std::uint32_t>> chosen_gpus(const GpuChoice& choice,
                                               const telemetry::GpuDirectory& gpus) {
    std::vector<std::uint32_t> out;
    if (!choice.ranks.empty()) {
        out = gpus.used_by(choice.ranks);
    } else if (!choice.ids.empty()) {
        out.assign(choice.ids.begin(), choice.ids.end());
        if (out.back() >= gpus.size()) {
            return fail(query_error(
                "gpus", gpus.size() == 0 ? "the job has had none"
                                         : "the job has 0-" + std::to_string(gpus.size() - 1)));
        }
    } else {
        out.resize(gpus.size());
        std::iota(out.begin(), out.end(), 0U);
    }
    out.resize(std::min(out.size(), choice.most));
    return out;
}

}  // namespace

Task<Result<std::string>> HistoryKeeper::gpus(std::string job, GpuChoice choice, std::string metric,
                                              AnswerGpus answer) {
    const JobSeries* series = context_.series.find(job);
    std::shared_ptr<const telemetry::GpuDirectory> known;
    const auto tail = std::make_shared<telemetry::HistoryTail>();
    std::int64_t newest = kEveryChunk;
    std::vector<std::string> metrics;
    if (series != nullptr && series->history() != nullptr) {
        metrics = series->gpus().metrics();
        known = series->gpus().snapshot();
        const auto ids = chosen_gpus(choice, *known);
        LOCKSTEP_CO_TRY(ids);
        const auto& names = telemetry::gpu_history_metrics();
        const auto at = std::find(names.begin(), names.end(), metric);
        *tail = series->history()->tail(static_cast<std::size_t>(at - names.begin()), *ids,
                                        telemetry::EntityKind::gpu);
        newest = series->history()->newest_chunk;
    }
    const std::function<Result<std::string>(telemetry::HistorySource&)> work =
        [known = std::move(known), choice = std::move(choice), tail, newest, metrics,
         answer = std::move(answer)](telemetry::HistorySource& source) -> Result<std::string> {
        std::shared_ptr<const telemetry::GpuDirectory> gpus = known;
        if (!gpus) {
            const auto state = source.state();
            LOCKSTEP_TRY(state);
            gpus = std::make_shared<const telemetry::GpuDirectory>(read_gpus(*state));
        }
        auto ids = chosen_gpus(choice, *gpus);
        LOCKSTEP_TRY(ids);
        return answer({source, *gpus, std::move(*ids), tail->rows(), newest, metrics});
    };
    co_return co_await read<std::string>(std::move(job), newest, work, telemetry::EntityKind::gpu);
}

Task<Result<std::string>> HistoryKeeper::metrics(std::string job) {
    const telemetry::JobSeries* series = context_.series.find(job);
    std::set<std::string> known;
    std::int64_t newest = kEveryChunk;
    if (series != nullptr) {
        const auto reported = series->reported_metrics();
        known.insert(reported.begin(), reported.end());
        newest = series->history() == nullptr ? newest : series->history()->newest_chunk;
    }
    // Memory may know the end of a long run only.
    const std::function<Result<std::string>(telemetry::HistorySource&)> work =
        [known = std::move(known)](telemetry::HistorySource& source) -> Result<std::string> {
        const auto stored = source.metrics();
        LOCKSTEP_TRY(stored);
        std::set<std::string> all = known;
        all.insert(stored->begin(), stored->end());
        return dump_json(Json(all));
    };
    co_return co_await read<std::string>(job, newest, work);
}

}  // namespace lockstep
