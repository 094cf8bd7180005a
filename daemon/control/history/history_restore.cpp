#include "daemon/control/history/history_restore.hpp"

#include "daemon/control/history/history_steps.hpp"
#include "daemon/control/history/history_totals.hpp"
#include "daemon/control/history/state_line.hpp"
#include "daemon/control/history/telemetry_log.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/model/wire/batch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace lockstep {
namespace {

using telemetry::JobSeries;

constexpr std::string_view kGpuLines = "gpus ";

const std::string* find_section(const ChunkRow& chunk, std::string_view name) {
    const auto found = std::find_if(chunk.sections.begin(), chunk.sections.end(),
                                    [&](const SectionRow& one) { return one.name == name; });
    return found == chunk.sections.end() ? nullptr : &found->data;
}

// Rows of a chunk back into the series.
Status restore_chunk(const StoredChunk& stored, JobSeries& series, telemetry::ColumnCodec& codec) {
    const ChunkRow& chunk = stored.row;
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
        if (section.name.empty() || section.name.front() == '@') {
            continue;
        }
        auto values = telemetry::decode_values(section.data, count, codec);
        LOCKSTEP_TRY(values);
        if (const auto id = series.add_metric(section.name)) {
            columns.emplace_back(*id, std::move(*values));
        }
    }
    constexpr auto kNewest = static_cast<std::uint32_t>(limits::kRowsMin);
    std::vector<double> values(series.metrics().size());
    for (const auto& one : *entity) {
        const std::uint32_t rows = one.end - one.begin;
        const std::uint32_t left_out = stored.whole || rows <= kNewest ? 0 : rows - kNewest;
        for (std::uint32_t row = one.begin + left_out; row < one.end; ++row) {
            if (!std::isfinite((*time)[row])) {
                continue;
            }
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

bool restore_line(std::string_view line, JobSeries& series) {
    constexpr std::string_view kSeen = "seen";
    constexpr std::string_view kGeneration = "generation";
    if (line.starts_with(kGpuLines)) {
        return series.gpus().restore_line(line);
    }
    if (is_totals_line(line) || is_step_times_line(line)) {
        return true;  // read after the chunks
    }
    if (line.starts_with(kSeen)) {
        line.remove_prefix(kSeen.size());
        std::int32_t attempt = 0;
        std::uint32_t node = 0;
        std::uint64_t seq = 0;
        if (!take_number(line, attempt) || !take_number(line, node) || !take_number(line, seq) ||
            !line.empty()) {
            return false;
        }
        series.restore_seen(attempt, node, seq);
        return true;
    }
    if (!line.starts_with(kGeneration)) {
        return false;
    }
    line.remove_prefix(kGeneration.size());
    GenerationReport report;
    if (!take_number(line, report.attempt) || !take_number(line, report.generation) ||
        !take_number(line, report.first_step) || !take_number(line, report.last_step) ||
        !take_number(line, report.first_at) || !take_number(line, report.last_at) ||
        !take_number(line, report.checkpoint_seconds) || !line.empty()) {
        return false;
    }
    series.restore(report);
    return true;
}

// {"seen":[[ATTEMPT,NODE,SEQ],…],"generations":[[…]]}: the same numbers. Not by parse_json, which
// refuses what a large job has. A sum that was infinite stands there as null.
bool restore_json(std::string_view text, JobSeries& series) {
    constexpr std::string_view kNull = "null";
    for (std::size_t at = text.find('['); at != std::string_view::npos;
         at = text.find('[', at + 1)) {
        const std::size_t end = text.find_first_of("[]", at + 1);
        if (end == std::string_view::npos) {
            return false;
        }
        if (text[end] == '[' || end == at + 1) {
            continue;  // an array of arrays, or of nothing
        }
        std::string line{text.substr(at + 1, end - at - 1)};
        const auto commas = std::count(line.begin(), line.end(), ',');
        std::replace(line.begin(), line.end(), ',', ' ');
        if (const auto null = line.find(kNull); null != std::string::npos) {
            line.replace(null, kNull.size(), "inf");
        }
        if (!restore_line((commas == 2 ? "seen " : "generation ") + line, series)) {
            return false;
        }
    }
    return text.ends_with('}');
}

Status restore_logged(const LoggedBatch& one, JobSeries& series) {
    if (telemetry::is_gpu_rows(one.bytes)) {
        const auto rows = telemetry::decode_gpu_rows(one.bytes);
        LOCKSTEP_TRY(rows);
        series.ingest(*rows, one.attempt, 0);
        return {};
    }
    const auto batch = decode_batch(one.bytes);
    LOCKSTEP_TRY(batch);
    series.ingest(*batch, one.attempt, 0);
    return {};
}

double suspended_at(const Suspension& one) {
    constexpr double kMillis = 1000;
    return static_cast<double>(one.from) / kMillis;
}

}  // namespace

std::vector<StoredChunk> choose_chunks(std::vector<ChunkRow> chunks, std::int64_t budget) {
    std::vector<StoredChunk> out;
    std::set<std::uint32_t> begun;
    std::set<std::uint32_t> closed;
    std::int64_t samples = 0;
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
        const bool newest = begun.insert(chunk->block).second;
        if (closed.contains(chunk->block)) {
            continue;
        }
        const bool whole = chunk->samples <= budget - samples;
        samples += whole ? chunk->samples : 0;
        if (!whole) {
            closed.insert(chunk->block);
        }
        if (whole || newest) {
            out.push_back({std::move(*chunk), whole});
        }
    }
    std::reverse(out.begin(), out.end());
    return out;
}

Result<StoredHistory> read_stored(Database& db, const JobId& job, std::int64_t budget,
                                  std::size_t batch_bytes) {
    StoredHistory out;
    HistoryRecords records{db};
    auto state = records.state(job);
    auto batches = records.batches(job, BatchPlace{}, batch_bytes);
    auto log = records.log(job);
    auto chunks = records.chunks(job, static_cast<std::int32_t>(telemetry::EntityKind::rank), 0,
                                 limits::kRanks, std::numeric_limits<std::int64_t>::max());
    const auto newest = records.newest_chunk(job);
    if (!state || !batches || !log || !chunks || !newest) {
        return fail(!state     ? state.error()
                    : !batches ? batches.error()
                    : !log     ? log.error()
                    : !chunks  ? chunks.error()
                               : newest.error());
    }
    out.state = std::move(*state);
    out.batches = std::move(*batches);
    out.log = std::move(*log);
    out.newest_chunk = *newest;
    const std::size_t all = chunks->size();
    out.chunks = choose_chunks(std::move(*chunks), budget);
    out.complete = out.chunks.size() == all;
    for (StoredChunk& chunk : out.chunks) {
        auto sections = records.sections(chunk.row.id, 0);
        LOCKSTEP_TRY(sections);
        chunk.row.sections = std::move(*sections);
        out.complete = out.complete && chunk.whole;
    }
    return out;
}

void restore_history(const JobId& job, const StoredHistory& stored, JobSeries& series) {
    bool complete = stored.complete;
    if (const Status done = restore_state(stored.state, series); !done) {
        log::warn("the state of stored history does not read back",
                  {{"job", job.value}, {"what", done.error().message}});
    }
    telemetry::ColumnCodec codec;
    for (const StoredChunk& chunk : stored.chunks) {
        if (const Status done = restore_chunk(chunk, series, codec); !done) {
            log::warn(
                "stored history does not read back",
                {{"job", job.value}, {"chunk", chunk.row.id}, {"what", done.error().message}});
            complete = false;
        }
    }
    if (const Status done = restore_totals(stored.state, complete, series); !done) {
        log::warn("the totals of stored history do not read back",
                  {{"job", job.value}, {"what", done.error().message}});
    }
    if (const Status done = restore_step_times(stored.state, series); !done) {
        log::warn("the step times of stored history do not read back",
                  {{"job", job.value}, {"what", done.error().message}});
    }
    telemetry::History& history = series.keep_history();
    history.newest_chunk = stored.newest_chunk;
    history.complete = complete;
}

void restore_batches(const std::vector<BatchRow>& batches, JobSeries& series) {
    for (const BatchRow& one : batches) {
        if (const auto batch = decode_batch(one.data)) {
            series.ingest(*batch, one.attempt, 0);
        } else {
            log::warn("a stored batch does not read back",
                      {{"job", one.job.value}, {"seq", one.seq}, {"what", batch.error().message}});
        }
    }
}

void restore_log(const JobId& job, const LogRow& row, JobSeries& series) {
    const auto logged = unpack_log(row.data);
    if (!logged) {
        log::warn("stored telemetry does not read back",
                  {{"job", job.value}, {"row", row.id}, {"what", logged.error().message}});
        return;
    }
    for (const LoggedBatch& one : *logged) {
        if (const Status taken = restore_logged(one, series); !taken) {
            log::warn("a stored batch does not read back",
                      {{"job", job.value}, {"row", row.id}, {"what", taken.error().message}});
        }
    }
}

double last_suspension(const Job& job) {
    const Attempt* attempt = job.attempt();
    return attempt == nullptr || attempt->suspensions.empty()
               ? 0
               : suspended_at(attempt->suspensions.back());
}

std::vector<double> suspensions(const Job& job) {
    std::vector<double> out;
    for (const Attempt& attempt : job.attempts) {
        for (const Suspension& one : attempt.suspensions) {
            out.push_back(suspended_at(one));
        }
    }
    return out;
}

std::string encode_state(const JobSeries& series) {
    std::string out;
    // Agents of earlier attempts are gone: their allocations have ended.
    const std::int32_t newest = series.seen().empty() ? 0 : series.seen().rbegin()->first.first;
    for (const auto& [key, seq] : series.seen()) {
        if (key.first >= newest - 1) {
            out += "seen";
            put_number(out, key.first);
            put_number(out, key.second);
            put_number(out, seq);
            out += '\n';
        }
    }
    for (const GenerationReport& one : series.generations()) {
        out += "generation";
        put_number(out, one.attempt);
        put_number(out, one.generation);
        put_number(out, one.first_step);
        put_number(out, one.last_step);
        put_number(out, one.first_at);
        put_number(out, one.last_at);
        put_number(out, one.checkpoint_seconds);
        out += '\n';
    }
    // Last what versions came to know last: one that does not know it reads what is above.
    return out + series.gpus().directory().text() + encode_totals(series) +
           encode_step_times(series);
}

telemetry::GpuDirectory read_gpus(std::string_view text) {
    telemetry::GpuDirectory out;
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        if (const std::string_view line = text.substr(0, end); line.starts_with(kGpuLines)) {
            out.take_line(line);
        }
        text.remove_prefix(end + 1);
    }
    return out;
}

Status restore_state(std::string_view text, JobSeries& series) {
    if (text.starts_with('{')) {
        return restore_json(text, series)
                   ? Status{}
                   : Status{fail(Errc::corrupt, "the state of history is damaged")};
    }
    return each_line(text, [&](std::string_view line) { return restore_line(line, series); });
}

}  // namespace lockstep
