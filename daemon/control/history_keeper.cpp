// size: the seam between memory and store, in both directions
#include "daemon/control/history_keeper.hpp"

#include "daemon/control/telemetry_log.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/batch.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

using telemetry::History;
using telemetry::HistoryRows;
using telemetry::JobSeries;

// Values read back for one job at a start: enough for what is shown at once; the rest is answered
// from the chunks.
constexpr std::int64_t kRestoreSamples = 2'000'000;
constexpr std::size_t kStoredBatchBytes = 64U << 20U;  // of a database before version 3
constexpr std::size_t kExpireChunks = 256;             // in one transaction

struct Stored {
    std::string state;
    std::vector<BatchWrite> batches;
    std::vector<LogRow> log;
    std::vector<ChunkRow> chunks;  // with their sections
    std::int64_t newest_chunk = 0;
    bool complete = true;
};

Result<Stored> read_stored(Database& db, const JobId& job) {
    Stored out;
    auto state = db.history_state(job);
    auto batches = db.batches(job, kStoredBatchBytes);
    auto log = db.log_rows(job);
    auto chunks = db.chunks(job, static_cast<std::int32_t>(telemetry::EntityKind::rank), 0,
                            limits::kRanks, std::numeric_limits<std::int64_t>::max());
    if (!state || !batches || !log || !chunks) {
        return fail(!state     ? state.error()
                    : !batches ? batches.error()
                    : !log     ? log.error()
                               : chunks.error());
    }
    out.state = std::move(*state);
    out.batches = std::move(*batches);
    out.log = std::move(*log);
    std::int64_t samples = 0;
    auto from = chunks->end();
    while (from != chunks->begin() && samples + std::prev(from)->samples <= kRestoreSamples) {
        --from;
        samples += from->samples;
    }
    out.complete = from == chunks->begin();
    out.newest_chunk = chunks->empty() ? 0 : chunks->back().id;
    for (auto chunk = from; chunk != chunks->end(); ++chunk) {
        auto sections = db.sections(chunk->id, 0);
        if (!sections) {
            return fail(sections.error());
        }
        chunk->sections = std::move(*sections);
        out.chunks.push_back(std::move(*chunk));
    }
    return out;
}

const std::string* find_section(const ChunkRow& chunk, std::string_view name) {
    const auto found = std::find_if(chunk.sections.begin(), chunk.sections.end(),
                                    [&](const SectionRow& one) { return one.name == name; });
    return found == chunk.sections.end() ? nullptr : &found->data;
}

// Rows of a chunk back into the series.
Status restore_chunk(const ChunkRow& chunk, JobSeries& series, telemetry::ColumnCodec& codec) {
    const auto* entities = find_section(chunk, telemetry::kRowsSection);
    const auto* steps = find_section(chunk, telemetry::kStepSection);
    const auto* times = find_section(chunk, telemetry::kTimeSection);
    if (entities == nullptr || steps == nullptr || times == nullptr) {
        return fail(Errc::corrupt, "a chunk without its rows");
    }
    const auto count = static_cast<std::size_t>(chunk.rows);
    const auto entity = telemetry::decode_rows(*entities);
    const auto step = telemetry::decode_steps(*steps, count, codec);
    const auto time = telemetry::decode_times(*times, count, codec);
    if (!entity || !step || !time || entity->empty() || entity->back().end != count) {
        return fail(Errc::corrupt, "a chunk that does not read back");
    }
    std::vector<std::pair<std::size_t, std::vector<double>>> columns;
    for (const SectionRow& section : chunk.sections) {
        if (section.name.front() == '@') {
            continue;
        }
        auto values = telemetry::decode_values(section.data, count, codec);
        if (!values) {
            return fail(values.error());
        }
        if (const auto id = series.add_metric(section.name)) {
            columns.emplace_back(*id, std::move(*values));
        }
    }
    std::vector<double> values(series.metrics().size());
    for (const auto& one : *entity) {
        for (std::uint32_t row = one.begin; row < one.end; ++row) {
            std::fill(values.begin(), values.end(), telemetry::kAbsent);
            for (const auto& [id, column] : columns) {
                values[id] = column[row];
            }
            series.restore({chunk.attempt, chunk.generation}, one.entity, (*step)[row],
                           (*time)[row], values);
        }
    }
    return {};
}

std::string encode_state(const JobSeries& series) {
    Json seen = Json::array();
    for (const auto& [key, seq] : series.seen()) {
        seen.push_back(Json::array({key.first, key.second, seq}));
    }
    Json generations = Json::array();
    for (const GenerationReport& one : series.generations()) {
        generations.push_back(
            Json::array({one.attempt, one.generation, one.first_step, one.last_step, one.first_at,
                         one.last_at, one.checkpoint_seconds}));
    }
    return dump_json(Json{{"seen", std::move(seen)}, {"generations", std::move(generations)}});
}

void restore_state(const std::string& text, JobSeries& series) {
    const auto state = parse_json(text);
    if (!state) {
        return;
    }
    for (const Json& one : (*state)["seen"]) {
        series.restore_seen(one[0].get<std::int32_t>(), one[1].get<std::uint32_t>(),
                            one[2].get<std::uint64_t>());
    }
    for (const Json& one : (*state)["generations"]) {
        GenerationReport report;
        report.attempt = one[0].get<std::int32_t>();
        report.generation = one[1].get<std::int32_t>();
        report.first_step = one[2].get<std::int64_t>();
        report.last_step = one[3].get<std::int64_t>();
        report.first_at = one[4].get<UnixMillis>();
        report.last_at = one[5].get<UnixMillis>();
        report.checkpoint_seconds = one[6].get<double>();
        series.restore(report);
    }
}

void restore_log(const JobId& job, const LogRow& row, JobSeries& series) {
    const auto logged = unpack_log(row.data);
    if (!logged) {
        log::warn("stored telemetry does not read back",
                  {{"job", job.value}, {"what", logged.error().message}});
        return;
    }
    for (const LoggedBatch& one : *logged) {
        if (const auto batch = decode_batch(one.bytes)) {
            series.ingest(*batch, one.attempt, 0);
        }
    }
}

ChunksWrite pack(const JobId& job, const std::vector<std::shared_ptr<const HistoryRows>>& sealed,
                 const std::vector<std::string>& names) {
    ChunksWrite write;
    write.job = job;
    telemetry::ColumnCodec codec;
    for (const auto& rows : sealed) {
        telemetry::Chunk chunk = telemetry::encode_chunk(*rows, names, codec);
        ChunkRow row;
        row.kind = static_cast<std::int32_t>(chunk.kind);
        row.block = chunk.block;
        row.attempt = chunk.start.attempt;
        row.generation = chunk.start.generation;
        row.step_low = chunk.step_low;
        row.step_high = chunk.step_high;
        row.time_low = chunk.time_low;
        row.time_high = chunk.time_high;
        row.rows = static_cast<std::int64_t>(chunk.rows);
        row.samples = static_cast<std::int64_t>(chunk.samples);
        for (telemetry::Section& section : chunk.sections) {
            row.sections.push_back(
                {std::move(section.name), section.level, std::move(section.data)});
        }
        write.chunks.push_back(std::move(row));
    }
    return write;
}

class StoreSource final : public telemetry::HistorySource {
  public:
    StoreSource(Database& db, JobId job, std::int64_t newest)
        : db_(db), job_(std::move(job)), newest_(newest) {}
    Result<std::vector<telemetry::ChunkMeta>> chunks(std::uint32_t low,
                                                     std::uint32_t high) override {
        const auto rows = db_.chunks(job_, static_cast<std::int32_t>(telemetry::EntityKind::rank),
                                     low, high, newest_);
        if (!rows) {
            return fail(rows.error());
        }
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
        return db_.section(chunk, name, level);
    }

  private:
    Database& db_;
    JobId job_;
    std::int64_t newest_;
};

}  // namespace

Task<Status> HistoryKeeper::restore(const Job& job) {
    const JobId id = job.id;
    const bool over = is_final(job.state);
    const auto ranks = static_cast<std::size_t>(job.spec.world_size());
    const std::function<Result<Stored>(Database&)> work = [id](Database& db) {
        return read_stored(db, id);
    };
    const auto stored = co_await context_.store.read<Stored>(work);
    if (!stored) {
        co_return fail(stored.error());
    }
    if (stored->chunks.empty() && stored->batches.empty() && stored->log.empty() && over) {
        co_return Status{};
    }
    JobSeries& series = context_.series.job(id.value, ranks);
    restore_state(stored->state, series);
    telemetry::ColumnCodec codec;
    for (const ChunkRow& chunk : stored->chunks) {
        if (const Status done = restore_chunk(chunk, series, codec); !done) {
            log::warn("stored history does not read back",
                      {{"job", id.value}, {"chunk", chunk.id}, {"what", done.error().message}});
        }
    }
    History& history = series.keep_history();
    history.newest_chunk = stored->newest_chunk;
    history.complete = stored->complete;
    for (const BatchWrite& one : stored->batches) {
        if (const auto batch = decode_batch(one.data)) {
            series.ingest(*batch, one.attempt, 0);
        } else {
            log::warn("a stored batch does not read back", {{"job", id.value}, {"seq", one.seq}});
        }
    }
    for (const LogRow& row : stored->log) {
        restore_log(id, row, series);
        history.newest_log = row.id;
    }
    if (over) {
        finish(id.value);
    }
    co_return Status{};
}

void HistoryKeeper::look(const std::string& job) {
    const JobSeries* series = context_.series.find(job);
    if (series != nullptr && series->history() != nullptr &&
        series->history()->due(context_.now_seconds())) {
        begin_flush(job, *series->history());
    }
}

void HistoryKeeper::finish(const std::string& job) {
    const JobSeries* series = context_.series.find(job);
    if (series == nullptr || series->history() == nullptr || series->history()->empty()) {
        return;
    }
    if (series->history()->storing) {
        series->history()->finishing = true;
    } else {
        begin_flush(job, *series->history());
    }
}

void HistoryKeeper::begin_flush(const std::string& job, History& history) {
    history.storing = true;
    context_.tasks.spawn("history", flush(job, history.shared_from_this()));
}

Task<void> HistoryKeeper::flush(std::string job, std::shared_ptr<History> history) {
    const JobSeries* series = context_.series.find(job);
    if (series == nullptr || series->history() != history.get()) {
        history->storing = false;
        co_return;
    }
    // All of one moment: what is sealed is what these log rows and this state are about.
    auto sealed = history->seal();
    const std::int64_t log_upto = history->newest_log;
    std::string state = encode_state(*series);
    const std::function<ChunksWrite()> work = [id = JobId{job}, sealed, names = series->metrics()] {
        return pack(id, sealed, names);
    };
    ChunksWrite write = co_await on_thread<ChunksWrite>(packing_, work);
    write.log_upto = log_upto;
    write.state = std::move(state);
    const auto newest = co_await context_.store.add_chunks(std::move(write));
    history->storing = false;
    if (!newest) {
        // The rows stay in memory and in the log; the next flush takes them along.
        log::error("cannot store history", {{"job", job}, {"what", newest.error().message}});
        co_return;
    }
    history->stored(sealed.size(), *newest);
    if (history->forgotten) {
        context_.series.erase(job);
    } else if (history->finishing) {
        history->finishing = false;
        finish(job);
    }
    expire();
}

void HistoryKeeper::expire() {
    if (!expiring_) {
        expiring_ = true;
        context_.tasks.spawn("history-expiry", remove_old());
    }
}

Task<void> HistoryKeeper::remove_old() {
    const double before = context_.settings.history_days > 0
                              ? context_.now_seconds() -
                                    86'400.0 * static_cast<double>(context_.settings.history_days)
                              : -std::numeric_limits<double>::infinity();
    const std::int64_t bytes = context_.settings.history_mb << 20U;
    for (;;) {
        const auto gone = co_await context_.store.expire_history(bytes, before, kExpireChunks);
        if (!gone) {
            log::error("cannot remove old history", {{"what", gone.error().message}});
            break;
        }
        context_.metrics.history_expired.Increment(static_cast<double>(gone->samples));
        if (gone->chunks < static_cast<std::int64_t>(kExpireChunks)) {
            break;
        }
    }
    const std::function<Result<HistorySize>(Database&)> size = [](Database& db) {
        return db.history_size();
    };
    if (const auto now = co_await context_.store.read<HistorySize>(size)) {
        context_.metrics.disk_tier(static_cast<std::size_t>(now->samples),
                                   static_cast<std::size_t>(now->bytes));
    }
    expiring_ = false;
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
                                    std::function<Result<T>(telemetry::HistorySource&)> work) {
    if (!reader_) {
        const std::function<Result<std::shared_ptr<Database>>(Database&)> open =
            [](Database& db) -> Result<std::shared_ptr<Database>> {
            auto made = db.reader();
            if (!made) {
                return fail(made.error());
            }
            return std::shared_ptr<Database>{std::move(*made)};
        };
        auto opened = co_await context_.store.read<std::shared_ptr<Database>>(open);
        if (!opened) {
            co_return fail(opened.error());
        }
        if (!reader_) {
            reader_ = std::move(*opened);
        }
    }
    const std::function<Result<T>()> call = [db = reader_, job = JobId{std::move(job)}, newest,
                                             work = std::move(work)] {
        StoreSource source{*db, job, newest};
        return work(source);
    };
    co_return co_await on_thread<Result<T>>(reading_, call);
}

Task<Result<std::vector<telemetry::RankHistory>>> HistoryKeeper::series(std::string job,
                                                                        telemetry::HistoryAsk ask) {
    const JobSeries* series = context_.series.find(job);
    if (series == nullptr || series->history() == nullptr) {
        co_return std::vector<telemetry::RankHistory>{};
    }
    const History& history = *series->history();
    auto tail =
        history.tail(series->metric(ask.metric).value_or(limits::kMetricsPerJob), ask.entities);
    using Answer = std::vector<telemetry::RankHistory>;
    const std::function<Result<Answer>(telemetry::HistorySource&)> work =
        [ask = std::move(ask), tail = std::move(tail)](telemetry::HistorySource& source) {
            return telemetry::fold_series(source, ask, tail);
        };
    co_return co_await read<Answer>(job, history.newest_chunk, work);
}

Task<Result<std::string>> HistoryKeeper::heatmap(std::string job, telemetry::HeatmapAsk ask) {
    const JobSeries* series = context_.series.find(job);
    std::vector<telemetry::TailRows> tail;
    std::int64_t newest = 0;
    if (series != nullptr && series->history() != nullptr) {
        std::vector<std::uint32_t> ranks(std::size_t{ask.rank_high} - ask.rank_low + 1);
        std::iota(ranks.begin(), ranks.end(), ask.rank_low);
        tail = series->history()->tail(series->metric(ask.metric).value_or(limits::kMetricsPerJob),
                                       ranks);
        newest = series->history()->newest_chunk;
    }
    const std::function<Result<std::string>(telemetry::HistorySource&)> work =
        [ask = std::move(ask), tail = std::move(tail)](telemetry::HistorySource& source) {
            return telemetry::make_heatmap(source, ask, tail);
        };
    co_return co_await read<std::string>(job, newest, work);
}

void HistoryKeeper::stop() {
    packing_.join();
    reading_.join();
    reader_.reset();
}

}  // namespace lockstep
