#include "daemon/telemetry/series/history.hpp"

#include "job/base/limits.hpp"
#include "job/base/sort.hpp"

#include <algorithm>

namespace lockstep::telemetry {
namespace {

void add_tail(const HistoryRows& rows, EntityKind kind, std::size_t metric,
              const std::vector<std::uint32_t>& entities, std::vector<TailRows>& out) {
    if (entities.empty() || rows.kind != kind || rows.block < entities.front() / kBlockEntities ||
        rows.block > entities.back() / kBlockEntities) {
        return;
    }
    // Rows without the metric count too: they say where their generation began.
    static const std::vector<double> kNothing;
    const std::vector<double>& column =
        metric < rows.columns.size() ? rows.columns[metric] : kNothing;
    TailRows tail;
    tail.start = rows.start;
    const bool no_gaps = entities.back() - entities.front() + 1 == entities.size();
    if (no_gaps && entities.front() <= rows.block * kBlockEntities &&
        entities.back() >= (rows.block + 1) * kBlockEntities - 1) {
        tail.entities = rows.entities;
        tail.steps = rows.steps;
        tail.times = rows.times;
        tail.values = column;
        tail.values.resize(rows.rows(), kAbsent);
        out.push_back(std::move(tail));
        return;
    }
    for (std::size_t i = 0; i < rows.rows(); ++i) {
        const std::uint32_t entity = rows.entities[i];
        if (no_gaps ? entity >= entities.front() && entity <= entities.back()
                    : std::binary_search(entities.begin(), entities.end(), entity)) {
            tail.entities.push_back(entity);
            tail.steps.push_back(rows.steps[i]);
            tail.times.push_back(rows.times[i]);
            tail.values.push_back(i < column.size() ? column[i] : kAbsent);
        }
    }
    if (!tail.entities.empty()) {
        out.push_back(std::move(tail));
    }
}

}  // namespace

void History::add(Start start, std::uint32_t entity, std::int64_t step, double time,
                  const std::vector<double>& values, double now, EntityKind kind) {
    if (open_.empty()) {
        opened_ = now;
    }
    const std::uint32_t block = entity / kBlockEntities;
    HistoryRows& rows = open_[{kind, block, start}];
    if (rows.rows() == 0) {
        rows.kind = kind;
        rows.block = block;
        rows.start = start;
    }
    rows.add(entity, step, time, values);
    ++open_rows_;
    for (const double value : values) {
        open_samples_ += is_absent(value) ? 0 : 1;
    }
    block_full_ = block_full_ || rows.rows() >= limits::kOpenBlockRows;
}

bool History::due(double now) const {
    return !storing && !open_.empty() &&
           (open_samples_ >= limits::kOpenSamples || open_rows_ >= limits::kOpenRows ||
            block_full_ || now - opened_ >= limits::kOpenSeconds);
}

std::vector<std::shared_ptr<const HistoryRows>> History::seal() {
    std::vector<std::pair<Start, std::shared_ptr<const HistoryRows>>> closed;
    closed.reserve(open_.size());
    for (auto& [key, rows] : open_) {
        closed.emplace_back(key.start, std::make_shared<const HistoryRows>(std::move(rows)));
    }
    // Chunks are read in the order they were written: an earlier generation's come first.
    sort_stably(closed, [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [start, rows] : closed) {
        sealed_.push_back(std::move(rows));
    }
    open_.clear();
    open_samples_ = 0;
    open_rows_ = 0;
    block_full_ = false;
    return sealed_;
}

void History::stored(std::size_t count, std::int64_t newest) {
    sealed_.erase(sealed_.begin(), sealed_.begin() + static_cast<std::ptrdiff_t>(count));
    newest_chunk = std::max(newest_chunk, newest);
}

std::vector<TailRows> HistoryTail::rows() const {
    std::vector<TailRows> out;
    for (const auto& rows : sealed_) {
        add_tail(*rows, kind_, metric_, entities_, out);
    }
    out.insert(out.end(), open_.begin(), open_.end());
    return out;
}

HistoryTail History::tail(std::size_t metric, std::vector<std::uint32_t> entities,
                          EntityKind kind) const {
    HistoryTail out;
    out.kind_ = kind;
    out.metric_ = metric;
    out.entities_ = std::move(entities);
    out.sealed_ = sealed_;
    std::vector<const HistoryRows*> open;
    open.reserve(open_.size());
    for (const auto& [key, rows] : open_) {
        open.push_back(&rows);
    }
    sort_stably(open,
                [](const HistoryRows* a, const HistoryRows* b) { return a->start < b->start; });
    for (const HistoryRows* rows : open) {
        add_tail(*rows, kind, metric, out.entities_, out.open_);
    }
    return out;
}

std::size_t History::bytes() const {
    std::size_t sum = sizeof *this;
    for (const auto& rows : sealed_) {
        sum += rows->bytes();
    }
    for (const auto& [key, rows] : open_) {
        sum += rows.bytes();
    }
    return sum;
}

}  // namespace lockstep::telemetry
