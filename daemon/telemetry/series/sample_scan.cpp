#include "daemon/telemetry/series/sample_scan.hpp"

#include "job/base/json.hpp"
#include "job/base/log.hpp"
#include "job/base/number.hpp"
#include "job/base/sort.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::telemetry {
namespace {

// Rows that a page looks through at most, should few of them have the metric.
constexpr std::size_t kRowsRead = std::size_t{1} << 20U;

class Pager {
  public:
    Pager(HistorySource& source, const SampleAsk& ask) : source_(source), ask_(ask) {}

    Result<SamplePage> run(const std::vector<TailRows>& tail, std::int64_t newest) {
        if (ask_.entities.empty()) {
            return std::move(page_);
        }
        const auto metas = source_.chunks(ask_.entities.front() / kBlockEntities,
                                          ask_.entities.back() / kBlockEntities);
        LOCKSTEP_TRY(metas);
        for (const ChunkMeta& meta : *metas) {
            if (meta.id < ask_.place.chunk || !may_hold(meta)) {
                continue;
            }
            if (rows_read_ >= kRowsRead) {
                page_.next = at(meta.id, 0);
            } else if (const Status done = chunk(meta); !done) {
                if (done.error().code != Errc::corrupt) {
                    return fail(done.error());
                }
                log::warn("stored history does not read back",
                          {{"chunk", meta.id}, {"what", done.error().message}});
                ++page_.damaged;
            }
            if (page_.next) {
                return std::move(page_);
            }
        }
        newest_rows(tail, newest);
        return std::move(page_);
    }

  private:
    SamplePlace at(std::int64_t chunk, std::uint64_t row) const {
        return {chunk, row, ask_.place.start, ask_.place.entity};
    }
    // Of this one the ranks from here on are not done.
    std::uint32_t first_of(Start start) const {
        return start == ask_.place.start ? ask_.place.entity : 0;
    }
    bool wanted(Start start, std::uint32_t entity) const {
        return entity >= first_of(start) &&
               std::binary_search(ask_.entities.begin(), ask_.entities.end(), entity);
    }
    bool wanted(Start start) const {
        return start >= ask_.place.start && start.attempt == ask_.attempt.value_or(start.attempt) &&
               start.generation == ask_.generation.value_or(start.generation);
    }
    bool has_range() const { return ask_.from.has_value() || ask_.to.has_value(); }
    bool in_range(std::int64_t step) const {
        return !has_range() ||
               (step >= 0 && step >= ask_.from.value_or(0) && step <= ask_.to.value_or(step));
    }
    bool may_hold(const ChunkMeta& meta) const {
        const auto first =
            std::lower_bound(ask_.entities.begin(), ask_.entities.end(),
                             std::max(meta.block * kBlockEntities, first_of(meta.start)));
        return first != ask_.entities.end() && *first / kBlockEntities == meta.block &&
               wanted(meta.start) &&
               (!has_range() ||
                (meta.step_high >= std::max<std::int64_t>(ask_.from.value_or(0), 0) &&
                 meta.step_low <= ask_.to.value_or(meta.step_low)));
    }

    // One that retention took meanwhile has no sections any more.
    Status chunk(const ChunkMeta& meta) {
        const auto raw = source_.section(meta.id, ask_.metric, 0);
        LOCKSTEP_TRY(raw);
        if (!*raw) {
            return {};
        }
        const auto which = source_.section(meta.id, kRowsSection, 0);
        const auto steps = source_.section(meta.id, kStepSection, 0);
        const auto times = source_.section(meta.id, kTimeSection, 0);
        if (!which || !steps || !times) {
            return fail(!which ? which.error() : !steps ? steps.error() : times.error());
        }
        if (!*which || !*steps || !*times) {
            return {};
        }
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto entities = decode_rows(**which);
        if (!entities || entities->empty()) {
            return entities ? Status{} : Status{fail(entities.error())};
        }
        const std::size_t count = entities->back().end;
        rows_read_ += count;
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto value = decode_values(**raw, count, codec_);
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto step = decode_steps(**steps, count, codec_);
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto time = decode_times(**times, count, codec_);
        if (!value || !step || !time) {
            return fail(!value ? value.error() : !step ? step.error() : time.error());
        }
        const std::uint64_t done = meta.id == ask_.place.chunk ? ask_.place.row : 0;
        for (const EntityRows& one : *entities) {
            if (!wanted(meta.start, one.entity)) {
                continue;
            }
            for (std::uint64_t i = std::max<std::uint64_t>(one.begin, done); i < one.end; ++i) {
                if (is_absent((*value)[i]) || !in_range((*step)[i])) {
                    continue;
                }
                if (page_.samples >= ask_.limit) {
                    page_.next = at(meta.id, i);
                    return {};
                }
                add(meta.start, one.entity, (*step)[i], (*time)[i], (*value)[i]);
            }
        }
        return {};
    }

    void newest_rows(const std::vector<TailRows>& tail, std::int64_t newest) {
        struct Row {
            Start start;
            std::uint32_t entity = 0;
            std::uint32_t piece = 0;
            std::size_t at = 0;
        };
        std::vector<Row> rows;
        for (std::uint32_t piece = 0; piece < tail.size(); ++piece) {
            const TailRows& one = tail[piece];
            for (std::size_t i = 0; wanted(one.start) && i < one.entities.size(); ++i) {
                if (wanted(one.start, one.entities[i]) && !is_absent(one.values[i]) &&
                    in_range(one.steps[i])) {
                    rows.push_back({one.start, one.entities[i], piece, i});
                }
            }
        }
        const auto key = [](const Row& row) { return std::pair{row.start, row.entity}; };
        sort_stably(rows, [&](const Row& a, const Row& b) { return key(a) < key(b); });
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Row& row = rows[i];
            if (page_.samples >= ask_.limit && (i == 0 || key(rows[i - 1]) != key(row))) {
                page_.next = SamplePlace{newest + 1, 0, row.start, row.entity};
                return;
            }
            const TailRows& one = tail[row.piece];
            add(row.start, row.entity, one.steps[row.at], one.times[row.at], one.values[row.at]);
        }
    }

    void add(Start start, std::uint32_t entity, std::int64_t step, double time, double value) {
        if (page_.runs.empty() || page_.runs.back().entity != entity ||
            page_.runs.back().start != start) {
            page_.runs.emplace_back();
            page_.runs.back().start = start;
            page_.runs.back().entity = entity;
        }
        SampleRun& run = page_.runs.back();
        run.steps.push_back(step);
        run.times.push_back(time);
        run.values.push_back(value);
        ++page_.samples;
    }

    HistorySource& source_;
    const SampleAsk& ask_;
    SamplePage page_;
    ColumnCodec codec_;
    std::size_t rows_read_ = 0;
};

void put(std::string& out, double value) {
    if (std::isfinite(value)) {
        append_number(out, value);
    } else {
        out += std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
    }
}

template <class Column, class Put>
void put_column(std::string& out, const char* key, const Column& column, Put put_one) {
    out.append(",\"").append(key).append("\":[");
    for (std::size_t i = 0; i < column.size(); ++i) {
        out += i > 0 ? "," : "";
        put_one(column[i]);
    }
    out += ']';
}

}  // namespace

std::string to_cursor(const SamplePlace& place) {
    std::string text = std::to_string(place.chunk) + "." + std::to_string(place.row) + ".";
    text += std::to_string(place.start.attempt) + "." + std::to_string(place.start.generation);
    return base64_encode(text + "." + std::to_string(place.entity));
}

std::optional<SamplePlace> parse_cursor(std::string_view cursor) {
    const auto text = base64_decode(cursor);
    const auto parts = text ? split(*text, '.') : std::vector<std::string>{};
    std::vector<std::int64_t> numbers;
    for (const std::string& part : parts) {
        const auto number = to_int(part);
        const bool wide = numbers.size() < 2;  // chunk and row
        if (!number || *number < 0 ||
            (!wide && *number > std::numeric_limits<std::int32_t>::max())) {
            return std::nullopt;
        }
        numbers.push_back(*number);
    }
    if (numbers.size() != 5) {
        return std::nullopt;
    }
    SamplePlace place;
    place.chunk = numbers[0];
    place.row = static_cast<std::uint64_t>(numbers[1]);
    place.start.attempt = static_cast<std::int32_t>(numbers[2]);
    place.start.generation = static_cast<std::uint32_t>(numbers[3]);
    place.entity = static_cast<std::uint32_t>(numbers[4]);
    return place;
}

Result<SamplePage> read_samples(HistorySource& source, const SampleAsk& ask,
                                const std::vector<TailRows>& tail, std::int64_t newest) {
    return Pager{source, ask}.run(tail, newest);
}

std::string to_json_text(const SampleAsk& ask, const SamplePage& page, const NameEntity& name) {
    std::string out = "{\"metric\":" + dump_json(Json(ask.metric)) + ",\"runs\":[";
    for (const SampleRun& run : page.runs) {
        out += &run == page.runs.data() ? "" : ",";
        out += "{" + (name ? name(run.entity) : "\"rank\":" + std::to_string(run.entity)) +
               ",\"attempt\":" + std::to_string(run.start.attempt) +
               ",\"generation\":" + std::to_string(run.start.generation);
        put_column(out, "steps", run.steps,
                   [&out](std::int64_t step) { out += step < 0 ? "null" : std::to_string(step); });
        put_column(out, "times", run.times, [&out](double time) {
            if (std::isfinite(time)) {
                append_decimal(out, time);
            } else {
                out += "null";
            }
        });
        put_column(out, "values", run.values, [&out](double value) { put(out, value); });
        out += '}';
    }
    out += ']';
    if (page.next) {
        out += ",\"next_cursor\":" + dump_json(Json(to_cursor(*page.next)));
    }
    if (page.damaged > 0) {
        out += ",\"damaged_chunks\":" + std::to_string(page.damaged);
    }
    return out + '}';
}

}  // namespace lockstep::telemetry
