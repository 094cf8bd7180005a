#include "job/model/wire/batch.hpp"

#include "job/base/limits.hpp"
#include "job/model/nccl_bandwidth.hpp"
#include "job/model/wire/flat_bytes.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::uint32_t kBatchMagic = 0x3142534C;
constexpr std::uint16_t kBatchVersion1 = 1;
constexpr double kLatest = 1e12;  // the year 33,658, as reports of ranks may say
// Differences of steps, and a little more, fit an int64.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 62U;

}  // namespace

bool is_metric_name(std::string_view name) {
    if (name.empty() || name.size() > 64 || name.front() < 'a' || name.front() > 'z') {
        return false;
    }
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

std::size_t Batch::add_row(std::uint32_t rank, std::int64_t step, double time) {
    ranks.push_back(rank);
    steps.push_back(step);
    times.push_back(time);
    for (auto& column : columns) {
        column.present.push_back(0);
        column.values.push_back(0);
    }
    return ranks.size() - 1;
}

void Batch::set(std::string_view name, double value) {
    auto column = std::find_if(columns.begin(), columns.end(),
                               [&](const BatchColumn& c) { return c.name == name; });
    if (column == columns.end()) {
        columns.push_back({std::string{name}, std::vector<std::uint8_t>(rows(), 0),
                           std::vector<double>(rows(), 0.0)});
        column = columns.end() - 1;
    }
    column->present.back() = 1;
    column->values.back() = value;
}

const BatchColumn* Batch::find(std::string_view name) const {
    const auto column = std::find_if(columns.begin(), columns.end(),
                                     [&](const BatchColumn& c) { return c.name == name; });
    return column == columns.end() ? nullptr : &*column;
}

std::string encode_batch(const Batch& batch) {
    std::string out;
    const std::size_t rows = batch.rows();
    out.reserve(28 + rows * 20 + batch.columns.size() * (32 + rows * 9));
    put_flat(out, kBatchMagic);
    put_flat(out, kBatchVersion1);
    put_flat(out, static_cast<std::uint16_t>(batch.columns.size()));
    put_flat(out, batch.seq);
    put_flat(out, batch.generation);
    put_flat(out, batch.node_rank);
    put_flat(out, static_cast<std::uint32_t>(rows));
    put_flat_all(out, batch.ranks);
    put_flat_all(out, batch.steps);
    put_flat_all(out, batch.times);
    for (const auto& column : batch.columns) {
        put_flat(out, static_cast<std::uint8_t>(column.name.size()));
        out += column.name;
        std::vector<std::uint8_t> bits((rows + 7) / 8, 0);
        for (std::size_t i = 0; i < rows; ++i) {
            if (column.present[i] != 0) {
                bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | (1U << (i % 8)));
            }
        }
        put_flat_all(out, bits);
        put_flat_all(out, column.values);
    }
    return out;
}

Result<Batch> decode_batch(std::string_view bytes) {
    FlatReader in{bytes};
    Batch batch;
    std::uint32_t magic = 0;
    std::uint16_t version = 0;
    std::uint16_t columns = 0;
    std::uint32_t rows = 0;
    if (!in.get(magic) || !in.get(version) || magic != kBatchMagic || version != kBatchVersion1) {
        return fail(Errc::invalid, "batch: not a version 1 batch");
    }
    if (!in.get(columns) || !in.get(batch.seq) || !in.get(batch.generation) ||
        !in.get(batch.node_rank) || !in.get(rows)) {
        return fail(Errc::invalid, "batch: truncated header");
    }
    if (rows > limits::kBatchRows || columns > limits::kMetricsPerJob + kNcclBandwidths) {
        return fail(Errc::invalid, "batch: too many rows or columns");
    }
    if (!in.get_all(batch.ranks, rows) || !in.get_all(batch.steps, rows) ||
        !in.get_all(batch.times, rows)) {
        return fail(Errc::invalid, "batch: truncated rows");
    }
    // What is not a time would reach the store as NULL, and every sum of times.
    if (!std::all_of(batch.times.begin(), batch.times.end(),
                     [](double time) { return time >= 0 && time <= kLatest; })) {
        return fail(Errc::invalid, "batch: a time that is none");
    }
    for (std::int64_t& step : batch.steps) {
        step = std::clamp<std::int64_t>(step, -1, kMostSteps);
    }
    for (std::uint16_t i = 0; i < columns; ++i) {
        BatchColumn column;
        std::uint8_t size = 0;
        std::vector<std::uint8_t> bits;
        if (!in.get(size) || !in.get_text(column.name, size) || !in.get_all(bits, (rows + 7) / 8) ||
            !in.get_all(column.values, rows)) {
            return fail(Errc::invalid, "batch: truncated column");
        }
        if (!is_metric_name(column.name) || batch.find(column.name) != nullptr) {
            return fail(Errc::invalid, "batch: bad or repeated column name");
        }
        column.present.resize(rows);
        for (std::size_t row = 0; row < rows; ++row) {
            column.present[row] = static_cast<std::uint8_t>(bits[row / 8] >> (row % 8) & 1U);
        }
        batch.columns.push_back(std::move(column));
    }
    if (!in.done()) {
        return fail(Errc::invalid, "batch: trailing bytes");
    }
    return batch;
}

}  // namespace lockstep
