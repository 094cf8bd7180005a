// Telemetry batches, agent → daemon: one binary WebSocket frame of one flat columnar layout.
// No nesting: a decoder for untrusted bytes must not recurse. Pure; any thread.
//
// Layout, little-endian, no padding:
//   u32 magic 0x3142534C ("LSB1")      u16 version = 1        u16 columns
//   u64 seq        number of the batch, from 1, per agent and attempt
//   u32 generation u32 node_rank       u32 rows
//   u32 rank[rows]                     global rank of the row
//   i64 step[rows]                     optimizer step, -1 = not given
//   f64 time[rows]                     seconds since the Unix epoch, the rank's clock; 0 … 1e12
//   then per column:  u8 length, name[length] (^[a-z][a-z0-9_]{0,63}$),
//                     u8 present[(rows+7)/8] (bit i%8 of byte i/8 = row i has a value),
//                     f64 value[rows] (rows without a value hold 0)
// A value may be NaN or infinite: a non-finite loss is news, not an error.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct BatchColumn {
    std::string name;
    std::vector<std::uint8_t> present;  // one byte per row here, one bit on the wire
    std::vector<double> values;
};

struct Batch {
    std::uint64_t seq = 0;
    std::uint32_t generation = 0;
    std::uint32_t node_rank = 0;
    std::vector<std::uint32_t> ranks;
    std::vector<std::int64_t> steps;
    std::vector<double> times;
    std::vector<BatchColumn> columns;

    std::size_t rows() const { return ranks.size(); }
    // Adds a row and returns its index; columns grow with absent values.
    std::size_t add_row(std::uint32_t rank, std::int64_t step, double time);
    // Sets a value of the newest row; a column is made on first use.
    void set(std::string_view column, double value);
    const BatchColumn* find(std::string_view column) const;
};

// Whether the text may name a metric: ^[a-z][a-z0-9_]{0,63}$.
bool is_metric_name(std::string_view name);

std::string encode_batch(const Batch& batch);
// invalid: truncated, trailing bytes, wrong magic or version, more than limits::kBatchRows rows or
// limits::kMetricsPerJob + kNcclBandwidths columns, a bad or repeated name, a time out of range.
// Steps out of range become the nearest that is in it (-1 … 2^62).
Result<Batch> decode_batch(std::string_view bytes);

}  // namespace lockstep
