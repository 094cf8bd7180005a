// size: one scan over chunks and rows, and the fold that answers series
#include "daemon/telemetry/series/history_scan.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/number.hpp"
#include "job/base/sort.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr double kScanInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kNoCut = std::numeric_limits<std::int64_t>::max();
// Buckets may be a quarter of a column: more than four fifths of the columns asked for are left
// after the width has been rounded up to a multiple of the bucket's.
constexpr std::int64_t kBucketsPerColumn = 4;

class Scan {
  public:
    Scan(HistorySource& source, const HistoryAsk& ask, const std::vector<TailRows>& tail,
         HistorySink& sink)
        : source_(source), ask_(ask), tail_(tail), sink_(sink) {}

    Status run() {
        if (ask_.entities.empty()) {
            return {};
        }
        auto metas = source_.chunks(ask_.entities.front() / kBlockEntities,
                                    ask_.entities.back() / kBlockEntities);
        LOCKSTEP_TRY(metas);
        std::erase_if(*metas, [&](const ChunkMeta& meta) { return wanted_of(meta.block) == 0; });
        if (const Status known = learn_starts(*metas); !known) {
            return known;
        }
        columns_ = plan(*metas);
        sink_.columns(columns_);
        if (columns_.count == 0) {
            return {};
        }
        for (const ChunkMeta& meta : *metas) {
            if (const Status done = unless_damaged(meta, chunk(meta)); !done) {
                return done;
            }
        }
        for (const TailRows& rows : tail_) {
            rows_of_tail(rows);
        }
        return {};
    }

  private:
    // One chunk that does not read back is left out: the others still answer.
    static Status unless_damaged(const ChunkMeta& meta, Status done) {
        if (!done && done.error().code == Errc::corrupt) {
            log::warn("stored history does not read back",
                      {{"chunk", meta.id}, {"what", done.error().message}});
            return {};
        }
        return done;
    }
    std::size_t wanted_of(std::uint32_t block) const {
        const auto low =
            std::lower_bound(ask_.entities.begin(), ask_.entities.end(), block * kBlockEntities);
        const auto high = std::lower_bound(low, ask_.entities.end(), (block + 1) * kBlockEntities);
        return static_cast<std::size_t>(high - low);
    }
    std::optional<std::size_t> index_of(std::uint32_t entity) const {
        const std::uint32_t first = ask_.entities.front();
        if (ask_.entities.back() - first + 1 == ask_.entities.size()) {  // no gaps
            return entity >= first && entity <= ask_.entities.back()
                       ? std::optional{std::size_t{entity - first}}
                       : std::nullopt;
        }
        const auto at = std::lower_bound(ask_.entities.begin(), ask_.entities.end(), entity);
        if (at == ask_.entities.end() || *at != entity) {
            return std::nullopt;
        }
        return static_cast<std::size_t>(at - ask_.entities.begin());
    }

    // The first step of every entity in every generation but a block's first.
    Status learn_starts(const std::vector<ChunkMeta>& metas) {
        if (ask_.every_generation) {
            return {};
        }
        std::set<Start> starts;
        for (const ChunkMeta& meta : metas) {
            starts.insert(meta.start);
        }
        for (const TailRows& rows : tail_) {
            starts.insert(rows.start);
        }
        if (starts.size() < 2) {
            return {};
        }
        std::map<std::uint32_t, Start> first;
        std::map<std::pair<std::uint32_t, Start>, std::size_t> found;
        for (const ChunkMeta& meta : metas) {
            const Start oldest = first.try_emplace(meta.block, meta.start).first->second;
            std::size_t& known = found[{meta.block, meta.start}];
            if (meta.start == oldest || known >= wanted_of(meta.block)) {
                continue;
            }
            if (const Status done = unless_damaged(meta, learn_starts(meta, known)); !done) {
                return done;
            }
        }
        for (const TailRows& rows : tail_) {
            for (std::size_t i = 0; i < rows.entities.size(); ++i) {
                note_start(rows.entities[i], rows.start, rows.steps[i]);
            }
        }
        return {};
    }
    Status learn_starts(const ChunkMeta& meta, std::size_t& known) {
        const auto section = source_.section(meta.id, kRowsSection, 0);
        LOCKSTEP_TRY(section);
        if (!*section) {
            return {};
        }
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto entities = decode_rows(**section);
        LOCKSTEP_TRY(entities);
        for (const EntityRows& one : *entities) {
            if (index_of(one.entity)) {
                known += note_start(one.entity, meta.start, one.first_step) ? 1 : 0;
            }
        }
        return {};
    }
    bool note_start(std::uint32_t entity, Start start, std::int64_t step) {
        return step >= 0 && starts_[entity].emplace(start, step).second;
    }
    // Rows of `start` at this step or beyond were made again.
    std::int64_t cut_of(std::uint32_t entity, Start start) const {
        std::int64_t cut = kNoCut;
        const auto known = starts_.find(entity);
        if (known != starts_.end()) {
            for (auto later = known->second.upper_bound(start); later != known->second.end();
                 ++later) {
                cut = std::min(cut, later->second);
            }
        }
        return cut;
    }

    // The last step of `start` that not all of those asked for have made again.
    std::int64_t last_kept(Start start) const {
        if (starts_.empty()) {
            return kNoCut;
        }
        std::int64_t out = -1;
        for (const std::uint32_t entity : ask_.entities) {
            const std::int64_t cut = cut_of(entity, start);
            if (cut == kNoCut) {
                return kNoCut;
            }
            out = std::max(out, cut - 1);
        }
        return out;
    }

    // Of what will be shown: after a restart from the beginning a few steps are not one column of
    // the many that they were among before.
    Columns plan(const std::vector<ChunkMeta>& metas) const {
        std::map<Start, std::int64_t> kept;
        const auto last_of = [&](Start start, std::int64_t step) {
            const auto [at, added] = kept.try_emplace(start, 0);
            if (added) {
                at->second = last_kept(start);
            }
            return std::min(step, at->second);
        };
        double low = kScanInfinity;
        double high = -kScanInfinity;
        const auto cover = [&](double from, double to) {
            low = std::min(low, from);
            high = std::max(high, to);
        };
        const bool by_step = ask_.x == Axis::step;
        for (const ChunkMeta& meta : metas) {
            if (!by_step) {
                cover(meta.time_low, meta.time_high);
            } else if (const std::int64_t last = last_of(meta.start, meta.step_high);
                       meta.step_low >= 0 && meta.step_low <= last) {
                cover(static_cast<double>(meta.step_low), static_cast<double>(last));
            }
        }
        for (const TailRows& rows : tail_) {
            const std::int64_t last = last_of(rows.start, kNoCut);
            for (std::size_t i = 0; i < rows.entities.size(); ++i) {
                if (!by_step) {
                    cover(rows.times[i], rows.times[i]);
                } else if (rows.steps[i] >= 0 && rows.steps[i] <= last) {
                    cover(static_cast<double>(rows.steps[i]), static_cast<double>(rows.steps[i]));
                }
            }
        }
        return plan_columns(ask_.x, std::max(low, ask_.from), std::min(high, ask_.to),
                            ask_.columns);
    }

    bool outside(const ChunkMeta& meta) const {
        if (ask_.x == Axis::time) {
            return meta.time_high < ask_.from || meta.time_low > ask_.to;
        }
        return meta.step_high < 0 || static_cast<double>(meta.step_high) < ask_.from ||
               static_cast<double>(meta.step_low) > ask_.to;
    }

    Status chunk(const ChunkMeta& meta) {
        if (outside(meta)) {
            return {};
        }
        const auto section = source_.section(meta.id, kRowsSection, 0);
        LOCKSTEP_TRY(section);
        if (!*section) {
            return {};  // retention took the chunk meanwhile
        }
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto entities = decode_rows(**section);
        LOCKSTEP_TRY(entities);
        bool whole = ask_.x == Axis::step && static_cast<double>(meta.step_low) >= ask_.from &&
                     static_cast<double>(meta.step_high) <= ask_.to;
        for (const EntityRows& one : *entities) {
            whole =
                whole && (!index_of(one.entity) || meta.step_high < cut_of(one.entity, meta.start));
        }
        if (const Status told = nonfinite(meta, *entities); !told) {
            return told;
        }
        for (std::size_t level = whole ? columns_.level : 0; level > 0; --level) {
            const auto found = pyramid(meta, *entities, static_cast<std::uint8_t>(level));
            LOCKSTEP_TRY(found);
            if (*found) {
                return {};
            }
        }
        return rows(meta, *entities);
    }

    Result<bool> pyramid(const ChunkMeta& meta, const std::vector<EntityRows>& entities,
                         std::uint8_t number) {
        const auto section = source_.section(meta.id, ask_.metric, number);
        LOCKSTEP_TRY(section);
        if (!*section) {
            return false;
        }
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto level = decode_level(**section, entities.size(), codec_);
        LOCKSTEP_TRY(level);
        for (std::size_t i = 0; i < entities.size(); ++i) {
            if (const auto which = index_of(entities[i].entity)) {
                for (std::uint32_t at = level->begin[i]; at < level->begin[i + 1]; ++at) {
                    sink_.entry(*which, {static_cast<double>(level->last_step[at]), level->low[at],
                                         level->high[at], level->last[at]});
                }
            }
        }
        return true;
    }

    Status rows(const ChunkMeta& meta, const std::vector<EntityRows>& entities) {
        const auto raw = source_.section(meta.id, ask_.metric, 0);
        const bool by_time = ask_.x == Axis::time;
        const auto steps = source_.section(meta.id, kStepSection, 0);
        const auto times = by_time ? source_.section(meta.id, kTimeSection, 0) : steps;
        if (!raw || !steps || !times) {
            return fail(!raw ? raw.error() : !steps ? steps.error() : times.error());
        }
        if (!*raw || !*steps || !*times || entities.empty()) {
            return {};
        }
        const std::size_t count = entities.back().end;
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto values = decode_values(**raw, count, codec_);
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto step = decode_steps(**steps, count, codec_);
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        const auto time = by_time ? decode_times(**times, count, codec_)
                                  : Result<std::vector<double>>{std::vector<double>{}};
        if (!values || !step || !time) {
            return fail(!values ? values.error() : !step ? step.error() : time.error());
        }
        for (const EntityRows& one : entities) {
            const auto which = index_of(one.entity);
            const std::int64_t cut = which ? cut_of(one.entity, meta.start) : 0;
            for (std::uint32_t i = one.begin; which && i < one.end; ++i) {
                row(*which, (*step)[i], by_time ? (*time)[i] : 0, (*values)[i], cut);
            }
        }
        return {};
    }

    void row(std::size_t which, std::int64_t step, double time, double value, std::int64_t cut) {
        const double x = ask_.x == Axis::time ? time : static_cast<double>(step);
        if (is_absent(value) || step >= cut || (ask_.x == Axis::step && step < 0) ||
            x < ask_.from || x > ask_.to) {
            return;
        }
        const double finite = std::isfinite(value) ? value : kAbsent;
        sink_.entry(which, {x, finite, finite, value});
    }

    Status nonfinite(const ChunkMeta& meta, const std::vector<EntityRows>& entities) {
        const auto section = source_.section(meta.id, ask_.metric, kNonfiniteLevel);
        LOCKSTEP_TRY(section);
        if (!*section) {
            return {};
        }
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access): looked at just above
        auto found = decode_nonfinite(**section, entities.size());
        LOCKSTEP_TRY(found);
        for (NonfiniteOf& one : *found) {
            const std::uint32_t entity = entities[one.which].entity;
            if (const auto which = index_of(entity)) {
                tell_nonfinite(*which, one.total, std::move(one.kept), cut_of(entity, meta.start));
            }
        }
        return {};
    }
    void tell_nonfinite(std::size_t which, std::uint64_t total, std::vector<Nonfinite> kept,
                        std::int64_t cut) {
        std::erase_if(kept, [&](const Nonfinite& one) {
            const double x = ask_.x == Axis::time ? one.time : static_cast<double>(one.step);
            return one.step >= cut || x < ask_.from || x > ask_.to;
        });
        sink_.nonfinite(which, total, kept);
    }

    void rows_of_tail(const TailRows& rows) {
        for (std::size_t i = 0; i < rows.entities.size(); ++i) {
            const auto which = index_of(rows.entities[i]);
            if (!which || is_absent(rows.values[i])) {
                continue;
            }
            const std::int64_t cut = cut_of(rows.entities[i], rows.start);
            row(*which, rows.steps[i], rows.times[i], rows.values[i], cut);
            if (!std::isfinite(rows.values[i])) {
                tell_nonfinite(*which, 1, {{rows.steps[i], rows.times[i], rows.values[i]}}, cut);
            }
        }
    }

    HistorySource& source_;
    const HistoryAsk& ask_;
    const std::vector<TailRows>& tail_;
    HistorySink& sink_;
    Columns columns_;
    ColumnCodec codec_;
    std::map<std::uint32_t, std::map<Start, std::int64_t>> starts_;
};

// Keeps entries as they are until there are more than columns, then only columns.
class SeriesSink final : public HistorySink {
  public:
    SeriesSink(std::size_t entities, std::size_t most) : ranks_(entities), most_(most) {}
    void columns(const Columns& columns) override { columns_ = columns; }
    void entry(std::size_t which, const HistoryEntry& entry) override {
        Rank& rank = ranks_[which];
        rank.reported = true;
        if (rank.columns.empty() && rank.entries.size() < most_) {
            rank.entries.push_back(entry);
            return;
        }
        if (rank.columns.empty()) {
            rank.columns.assign(columns_.count, HistoryEntry{});
            for (const HistoryEntry& one : std::exchange(rank.entries, {})) {
                merge(rank.columns[columns_.column_of(one.x)], one);
            }
        }
        merge(rank.columns[columns_.column_of(entry.x)], entry);
    }
    void nonfinite(std::size_t which, std::uint64_t total,
                   const std::vector<Nonfinite>& kept) override {
        Rank& rank = ranks_[which];
        rank.reported = true;
        rank.nonfinite_total += total;
        for (const Nonfinite& one : kept) {
            if (rank.nonfinite.size() < limits::kNonfiniteKept) {
                rank.nonfinite.push_back(one);
            }
        }
    }
    std::vector<RankHistory> take(const std::vector<std::uint32_t>& entities) {
        std::vector<RankHistory> out;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            Rank& rank = ranks_[i];
            if (!rank.reported) {
                continue;
            }
            auto& entries = rank.columns.empty() ? rank.entries : rank.columns;
            // What arrived first stays first among equals: steps may run backwards.
            sort_stably(entries,
                        [](const HistoryEntry& a, const HistoryEntry& b) { return a.x < b.x; });
            RankHistory history;
            history.rank = static_cast<std::int32_t>(entities[i]);
            history.nonfinite = std::move(rank.nonfinite);
            history.nonfinite_total = rank.nonfinite_total;
            for (const HistoryEntry& one : entries) {
                if (!is_absent(one.last)) {
                    history.buckets.push_back(
                        {one.x, if_finite(one.low), if_finite(one.high), if_finite(one.last)});
                }
            }
            out.push_back(std::move(history));
        }
        return out;
    }

  private:
    struct Rank {
        std::vector<HistoryEntry> entries;
        std::vector<HistoryEntry> columns;
        std::vector<Nonfinite> nonfinite;
        std::uint64_t nonfinite_total = 0;
        bool reported = false;
    };
    static void merge(HistoryEntry& into, const HistoryEntry& newer) {
        into.x = newer.x;
        into.last = newer.last;
        if (!is_absent(newer.low)) {
            into.low = is_absent(into.low) ? newer.low : std::min(into.low, newer.low);
            into.high = is_absent(into.high) ? newer.high : std::max(into.high, newer.high);
        }
    }
    std::vector<Rank> ranks_;
    std::size_t most_;
    Columns columns_;
};

}  // namespace

std::size_t Columns::column_of(double x) const {
    const double place = std::floor((x - origin) / width);
    return std::min(static_cast<std::size_t>(std::max(place, 0.0)), count - 1);
}

Columns plan_columns(Axis x, double low, double high, std::size_t most) {
    Columns out;
    if (!(low <= high) || !std::isfinite(low) || !std::isfinite(high) || most == 0) {
        return out;
    }
    if (x == Axis::time) {
        out.origin = low;
        out.width = high > low ? (high - low) / static_cast<double>(most) : 1;
        out.count = most;
        return out;
    }
    // What goes beyond is in the last column. Below, a width and its rounding up fit an int64.
    constexpr double kMostSteps = 4e18;
    const auto first = static_cast<std::int64_t>(std::ceil(std::clamp(low, 0.0, kMostSteps)));
    const auto last = static_cast<std::int64_t>(std::floor(std::clamp(high, -1.0, kMostSteps)));
    if (first > last) {
        return out;
    }
    const auto columns = static_cast<std::int64_t>(most);
    std::int64_t width = std::max<std::int64_t>((last - first + columns) / columns, 1);
    while (out.level + 1 < kLevels && width >= kBucketsPerColumn * kStrides[out.level + 1]) {
        ++out.level;
    }
    const std::int64_t stride = kStrides[out.level];
    // Widths in steps of an eighth and more: a run that goes on keeps its columns for a while.
    const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(width)));
    const std::int64_t unit = std::max(stride, std::int64_t{1} << std::max(bits - 4, 0));
    width = (width + unit - 1) / unit * unit;
    // Aligned columns may need one more than equal parts would.
    while (last / width - first / width + 1 > columns) {
        width += unit;
    }
    // NOLINTNEXTLINE(bugprone-integer-division): the start of its column
    out.origin = static_cast<double>(first / width * width);
    out.width = static_cast<double>(width);
    out.count = static_cast<std::size_t>(last / width - first / width + 1);
    return out;
}

Status scan_history(HistorySource& source, const HistoryAsk& ask, const std::vector<TailRows>& tail,
                    HistorySink& sink) {
    return Scan{source, ask, tail, sink}.run();
}

Result<std::vector<RankHistory>> fold_series(HistorySource& source, const HistoryAsk& ask,
                                             const std::vector<TailRows>& tail) {
    SeriesSink sink{ask.entities.size(), ask.columns};
    LOCKSTEP_TRY(scan_history(source, ask, tail, sink));
    return sink.take(ask.entities);
}

}  // namespace lockstep::telemetry
