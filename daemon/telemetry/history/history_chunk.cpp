// size: encoder and decoder of one format, side by side
#include "daemon/telemetry/history/history_chunk.hpp"

#include "job/base/limits.hpp"
#include "job/model/wire/flat_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::telemetry {
namespace {

constexpr std::uint8_t kVersion1 = 1;
constexpr std::size_t kMostRows = std::size_t{1} << 24U;
constexpr std::size_t kMostEntities = 4096;
// A level that saves less than this is not worth its bytes.
constexpr std::size_t kLevelGain = 8;

auto corrupt_chunk() {
    return fail(Errc::corrupt, "history: damaged section");
}

std::vector<std::uint64_t> bits_of(const std::vector<std::int64_t>& values) {
    std::vector<std::uint64_t> bits(values.size());
    std::transform(values.begin(), values.end(), bits.begin(),
                   [](std::int64_t v) { return static_cast<std::uint64_t>(v); });
    return bits;
}

// Where each row goes when they are ordered by entity, those of one entity as they arrived.
struct Order {
    std::vector<std::uint32_t> row;  // i-th of the chunk is the row[i]-th that arrived
    std::vector<EntityRows> entities;
};

Order order_of(const HistoryRows& rows) {
    Order order;
    std::array<std::uint32_t, kBlockEntities> count{};
    for (const std::uint32_t entity : rows.entities) {
        ++count[entity % kBlockEntities];
    }
    std::array<std::uint32_t, kBlockEntities> next{};
    std::uint32_t at = 0;
    for (std::uint32_t i = 0; i < kBlockEntities; ++i) {
        next[i] = at;
        if (count[i] > 0) {
            order.entities.push_back({rows.block * kBlockEntities + i, at, at + count[i], -1});
        }
        at += count[i];
    }
    order.row.resize(rows.rows());
    for (std::uint32_t i = 0; i < rows.rows(); ++i) {
        order.row[next[rows.entities[i] % kBlockEntities]++] = i;
    }
    for (EntityRows& one : order.entities) {
        for (std::uint32_t i = one.begin; i < one.end && one.first_step < 0; ++i) {
            one.first_step = rows.steps[order.row[i]];
        }
    }
    return order;
}

Result<std::string> rows_section(const std::vector<EntityRows>& entities) {
    std::string out;
    put_flat(out, kVersion1);
    put_flat(out, static_cast<std::uint32_t>(entities.size()));
    for (const EntityRows& one : entities) {
        put_flat(out, one.entity);
        put_flat(out, one.end - one.begin);
        put_flat(out, one.first_step);
    }
    return compress_bytes(out);
}

// `values` has one per row, kAbsent where there is none. "" = no row has one.
std::string values_section(const std::vector<double>& values, std::size_t& samples,
                           ColumnCodec& codec) {
    std::vector<std::uint64_t> bits((values.size() + 63) / 64, 0);
    std::vector<double> dense;
    dense.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!is_absent(values[i])) {
            bits[i / 64] |= std::uint64_t{1} << (i % 64);
            dense.push_back(values[i]);
        }
    }
    std::string out;
    if (dense.empty()) {
        return out;
    }
    samples += dense.size();
    put_flat(out, static_cast<std::uint8_t>(dense.size() == values.size() ? 1 : 0));
    if (dense.size() != values.size()) {
        codec.pack(bits, out);
    }
    put_flat(out, static_cast<std::uint32_t>(dense.size()));
    codec.pack(dense, out);
    return out;
}

struct Ordered {
    const std::vector<EntityRows>& entities;
    const std::vector<std::int64_t>& steps;
    const std::vector<double>& times;
    const std::vector<double>& values;
};

void add_bucket(PyramidLevel& level, std::int64_t step, double value) {
    level.last_step.push_back(step);
    level.last.push_back(value);
    level.low.push_back(std::isfinite(value) ? value : kAbsent);
    level.high.push_back(level.low.back());
}
void widen_bucket(PyramidLevel& level, std::int64_t step, double value) {
    level.last_step.back() = step;
    level.last.back() = value;
    if (std::isfinite(value)) {
        double& low = level.low.back();
        double& high = level.high.back();
        low = is_absent(low) ? value : std::min(low, value);
        high = is_absent(high) ? value : std::max(high, value);
    }
}

// Rows without a step are invisible on the axis of steps, which is the only one levels serve.
PyramidLevel make_level(const Ordered& in, std::int64_t stride) {
    PyramidLevel level;
    for (const EntityRows& one : in.entities) {
        level.begin.push_back(static_cast<std::uint32_t>(level.last.size()));
        std::int64_t open = -1;
        for (std::uint32_t i = one.begin; i < one.end; ++i) {
            if (in.steps[i] < 0 || is_absent(in.values[i])) {
                continue;
            }
            if (in.steps[i] / stride == open) {
                widen_bucket(level, in.steps[i], in.values[i]);
            } else {
                open = in.steps[i] / stride;
                add_bucket(level, in.steps[i], in.values[i]);
            }
        }
    }
    level.begin.push_back(static_cast<std::uint32_t>(level.last.size()));
    return level;
}

std::string level_section(const PyramidLevel& level, ColumnCodec& codec) {
    std::string out;
    put_flat(out, static_cast<std::uint32_t>(level.last.size()));
    std::vector<std::uint64_t> counts;
    for (std::size_t i = 0; i + 1 < level.begin.size(); ++i) {
        counts.push_back(level.begin[i + 1] - level.begin[i]);
    }
    codec.pack(counts, out);
    codec.pack(bits_of(level.last_step), out);
    codec.pack(level.low, out);
    codec.pack(level.high, out);
    codec.pack(level.last, out);
    return out;
}

std::string nonfinite_section(const Ordered& in) {
    std::string list;
    std::uint32_t entities = 0;
    for (std::size_t which = 0; which < in.entities.size(); ++which) {
        std::uint64_t total = 0;
        std::uint32_t kept = 0;
        std::string rows;
        for (std::uint32_t i = in.entities[which].begin; i < in.entities[which].end; ++i) {
            if (std::isfinite(in.values[i]) || is_absent(in.values[i])) {
                continue;
            }
            ++total;
            if (kept < limits::kNonfiniteKept) {
                ++kept;
                put_flat(rows, in.steps[i]);
                put_flat(rows, in.times[i]);
                put_flat(rows, in.values[i]);
            }
        }
        if (total > 0) {
            ++entities;
            put_flat(list, static_cast<std::uint32_t>(which));
            put_flat(list, total);
            put_flat(list, kept);
            list += rows;
        }
    }
    std::string out;
    if (entities > 0) {
        put_flat(out, entities);
        out += list;
    }
    return out;
}

// Of what is a time: the store takes no other, and a batch of an older version may hold one.
void note_times(Chunk& chunk, const std::vector<double>& times) {
    bool any = false;
    for (const double time : times) {
        if (std::isfinite(time)) {
            chunk.time_low = any ? std::min(chunk.time_low, time) : time;
            chunk.time_high = any ? std::max(chunk.time_high, time) : time;
            any = true;
        }
    }
}

void add_metric(Chunk& chunk, const std::string& name, const Ordered& in, ColumnCodec& codec) {
    const std::size_t before = chunk.samples;
    std::string raw = values_section(in.values, chunk.samples, codec);
    if (raw.empty()) {
        return;
    }
    chunk.sections.push_back({name, 0, std::move(raw)});
    for (std::size_t i = 1; i < kLevels; ++i) {
        const PyramidLevel level = make_level(in, kStrides[i]);
        if (!level.last.empty() && level.last.size() * kLevelGain <= chunk.samples - before) {
            chunk.sections.push_back(
                {name, static_cast<std::uint8_t>(i), level_section(level, codec)});
        }
    }
    if (std::string rare = nonfinite_section(in); !rare.empty()) {
        chunk.sections.push_back({name, kNonfiniteLevel, std::move(rare)});
    }
}

}  // namespace

void HistoryRows::add(std::uint32_t entity, std::int64_t step, double time,
                      const std::vector<double>& values) {
    columns.resize(std::max(columns.size(), values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!is_absent(values[i])) {
            columns[i].resize(entities.size(), kAbsent);
            columns[i].push_back(values[i]);
        }
    }
    entities.push_back(entity);
    steps.push_back(step);
    times.push_back(time);
}

std::size_t HistoryRows::bytes() const {
    std::size_t sum = entities.capacity() * 4 + steps.capacity() * 8 + times.capacity() * 8;
    for (const auto& column : columns) {
        // NOLINTNEXTLINE(bugprone-sizeof-container): the column itself, and what it holds
        sum += sizeof column + column.capacity() * 8;
    }
    return sum;
}

Result<Chunk> encode_chunk(const HistoryRows& rows, const std::vector<std::string>& names,
                           ColumnCodec& codec) {
    Chunk chunk;
    chunk.kind = rows.kind;
    chunk.block = rows.block;
    chunk.start = rows.start;
    chunk.rows = rows.rows();
    const Order order = order_of(rows);
    std::vector<std::int64_t> steps(rows.rows());
    std::vector<double> times(rows.rows());
    for (std::size_t i = 0; i < rows.rows(); ++i) {
        steps[i] = rows.steps[order.row[i]];
        times[i] = rows.times[order.row[i]];
        if (steps[i] >= 0) {
            chunk.step_low = chunk.step_low < 0 ? steps[i] : std::min(chunk.step_low, steps[i]);
            chunk.step_high = std::max(chunk.step_high, steps[i]);
        }
    }
    note_times(chunk, times);
    auto head = rows_section(order.entities);
    LOCKSTEP_TRY(head);
    std::string axis;
    codec.pack(bits_of(steps), axis);
    chunk.sections.push_back({std::string{kRowsSection}, 0, std::move(*head)});
    chunk.sections.push_back({std::string{kStepSection}, 0, std::move(axis)});
    axis.clear();
    codec.pack(times, axis);
    chunk.sections.push_back({std::string{kTimeSection}, 0, std::move(axis)});
    std::vector<double> values(rows.rows());
    for (std::size_t id = 0; id < std::min(rows.columns.size(), names.size()); ++id) {
        const std::vector<double>& column = rows.columns[id];
        if (column.empty()) {
            continue;
        }
        for (std::size_t i = 0; i < rows.rows(); ++i) {
            values[i] = order.row[i] < column.size() ? column[order.row[i]] : kAbsent;
        }
        add_metric(chunk, names[id], {order.entities, steps, times, values}, codec);
    }
    if (codec.failed()) {
        return fail(Errc::exhausted, "history: a column could not be compressed");
    }
    return chunk;
}

Result<std::vector<EntityRows>> decode_rows(std::string_view section) {
    const auto bytes = decompress_bytes(section, 5 + kMostEntities * 16);
    LOCKSTEP_TRY(bytes);
    std::string_view in = *bytes;
    std::uint8_t version = 0;
    std::uint32_t count = 0;
    if (!take_flat(in, version) || version != kVersion1 || !take_flat(in, count) ||
        in.size() != std::size_t{count} * 16U) {
        return corrupt_chunk();
    }
    std::vector<EntityRows> out(count);
    std::size_t at = 0;
    for (EntityRows& one : out) {
        std::uint32_t rows = 0;
        take_flat(in, one.entity);
        take_flat(in, rows);
        take_flat(in, one.first_step);
        one.begin = static_cast<std::uint32_t>(at);
        at += rows;
        if (at > kMostRows) {
            return corrupt_chunk();
        }
        one.end = static_cast<std::uint32_t>(at);
    }
    return out;
}

Result<std::vector<std::int64_t>> decode_steps(std::string_view section, std::size_t rows,
                                               ColumnCodec& codec) {
    std::vector<std::uint64_t> bits;
    LOCKSTEP_TRY(codec.unpack(section, rows, bits));
    std::vector<std::int64_t> steps(rows);
    std::transform(bits.begin(), bits.end(), steps.begin(),
                   [](std::uint64_t v) { return static_cast<std::int64_t>(v); });
    return steps;
}

Result<std::vector<double>> decode_times(std::string_view section, std::size_t rows,
                                         ColumnCodec& codec) {
    std::vector<double> times;
    LOCKSTEP_TRY(codec.unpack(section, rows, times));
    return times;
}

Result<std::vector<double>> decode_values(std::string_view section, std::size_t rows,
                                          ColumnCodec& codec) {
    std::uint8_t whole = 0;
    std::vector<std::uint64_t> bits;
    std::uint32_t count = 0;
    std::vector<double> dense;
    if (!take_flat(section, whole) || whole > 1) {
        return corrupt_chunk();
    }
    if (whole == 0) {
        LOCKSTEP_TRY(codec.unpack(section, (rows + 63) / 64, bits));
    }
    if (!take_flat(section, count) || count > rows || (whole == 1 && count != rows)) {
        return corrupt_chunk();
    }
    LOCKSTEP_TRY(codec.unpack(section, count, dense));
    if (whole == 1) {
        return dense;
    }
    std::vector<double> values(rows, kAbsent);
    std::size_t next = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        if ((bits[i / 64] >> (i % 64) & 1U) != 0) {
            if (next == dense.size()) {
                return corrupt_chunk();
            }
            values[i] = dense[next++];
        }
    }
    return next == dense.size() ? Result<std::vector<double>>{std::move(values)} : corrupt_chunk();
}

Result<PyramidLevel> decode_level(std::string_view section, std::size_t entities,
                                  ColumnCodec& codec) {
    PyramidLevel level;
    std::uint32_t buckets = 0;
    std::vector<std::uint64_t> counts;
    if (!take_flat(section, buckets) || buckets > kMostRows) {
        return corrupt_chunk();
    }
    LOCKSTEP_TRY(codec.unpack(section, entities, counts));
    std::uint64_t at = 0;
    for (const std::uint64_t count : counts) {
        level.begin.push_back(static_cast<std::uint32_t>(at));
        if (count > buckets - at) {
            return corrupt_chunk();
        }
        at += count;
    }
    level.begin.push_back(static_cast<std::uint32_t>(at));
    if (at != buckets) {
        return corrupt_chunk();
    }
    std::vector<std::uint64_t> bits;
    Status done = codec.unpack(section, buckets, bits);
    for (auto* column : {&level.low, &level.high, &level.last}) {
        if (done) {
            done = codec.unpack(section, buckets, *column);
        }
    }
    LOCKSTEP_TRY(done);
    level.last_step.resize(buckets);
    std::transform(bits.begin(), bits.end(), level.last_step.begin(),
                   [](std::uint64_t v) { return static_cast<std::int64_t>(v); });
    return level;
}

Result<std::vector<NonfiniteOf>> decode_nonfinite(std::string_view section, std::size_t entities) {
    std::uint32_t count = 0;
    if (!take_flat(section, count) || count > entities) {
        return corrupt_chunk();
    }
    std::vector<NonfiniteOf> out(count);
    for (NonfiniteOf& one : out) {
        std::uint32_t kept = 0;
        if (!take_flat(section, one.which) || !take_flat(section, one.total) ||
            !take_flat(section, kept) || one.which >= entities || kept > limits::kNonfiniteKept) {
            return corrupt_chunk();
        }
        one.kept.resize(kept);
        for (Nonfinite& value : one.kept) {
            if (!take_flat(section, value.step) || !take_flat(section, value.time) ||
                !take_flat(section, value.value)) {
                return corrupt_chunk();
            }
        }
    }
    return out;
}

}  // namespace lockstep::telemetry
