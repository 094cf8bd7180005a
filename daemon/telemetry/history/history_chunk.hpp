// One chunk of history: the rows of a block of 64 neighbouring entities (ranks, or GPUs) from one
// generation, as sections that are stored and read one by one: a question about one metric reads
// nothing of the others, and one about a whole run reads the pyramid and not the rows.
//
// Sections, named (metric, level); little-endian, columns as in column_codec.hpp:
//   "@rows", 0   u8 version = 1, u32 entities, per entity: u32 entity, u32 rows, i64 first step
//                (-1 = none); as one zstd frame. All else is ordered by entity, then by arrival.
//   "@step", 0   i64 per row, -1 = not given         "@time", 0   f64 per row
//   METRIC, 0    u8 whole; if it is 0: packed bits (one u64 per 64 rows), 1 = has a value; then
//                u32 values and the values, bit for bit what was reported
//   METRIC, 1…   the pyramid: u32 buckets; buckets per entity, then last step, lowest, highest and
//                last value of each bucket. A bucket holds neighbouring rows of the same
//                step / kStrides[level]; without a finite value lowest and highest are absent.
//   METRIC, 255  what was not finite: u32 entities with such values, per entity: u32 which one,
//                u64 how many, u32 kept, kept × (i64 step, f64 time, f64 value)
// A level is left out unless it has at most an eighth as many buckets as there are values.
//
// Bytes come from a disk: a damaged section is an error, never a crash. Pure; any thread.
#pragma once

#include "daemon/telemetry/history/column_codec.hpp"
#include "daemon/telemetry/history/special_values.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

enum class EntityKind : std::uint8_t { rank, gpu };
inline constexpr std::uint32_t kBlockEntities = 64;
inline constexpr std::size_t kLevels = 3;
inline constexpr std::array<std::int64_t, kLevels> kStrides{1, 64, 1024};
inline constexpr std::uint8_t kNonfiniteLevel = 255;
inline constexpr std::string_view kRowsSection = "@rows";
inline constexpr std::string_view kStepSection = "@step";
inline constexpr std::string_view kTimeSection = "@time";

// Which generation a row is from; later ones replace the steps they make again.
struct Start {
    std::int32_t attempt = 0;
    std::uint32_t generation = 0;
    friend auto operator<=>(const Start&, const Start&) = default;
};

// Rows as they arrived, of one block and start. `columns` by metric id; a column may be shorter
// than the rows (the rest is absent, as is kAbsent).
struct HistoryRows {
    EntityKind kind = EntityKind::rank;
    std::uint32_t block = 0;  // entity / kBlockEntities
    Start start;
    std::vector<std::uint32_t> entities;
    std::vector<std::int64_t> steps;  // -1 = not given
    std::vector<double> times;        // seconds since the Unix epoch, the entity's clock
    std::vector<std::vector<double>> columns;

    std::size_t rows() const { return entities.size(); }
    void add(std::uint32_t entity, std::int64_t step, double time,
             const std::vector<double>& values);
    std::size_t bytes() const;
};

// Rows that are in no chunk yet; `values` are those of the metric asked for.
struct TailRows {
    Start start;
    std::vector<std::uint32_t> entities;
    std::vector<std::int64_t> steps;
    std::vector<double> times;
    std::vector<double> values;  // kAbsent = none
};

struct Section {
    std::string name;
    std::uint8_t level = 0;
    std::string data;
};

struct Chunk {
    EntityKind kind = EntityKind::rank;
    std::uint32_t block = 0;
    Start start;
    std::int64_t step_low = -1;  // -1 = no row has a step
    std::int64_t step_high = -1;
    double time_low = 0;
    double time_high = 0;
    std::size_t rows = 0;
    std::size_t samples = 0;
    std::vector<Section> sections;
};

// `names` by metric id. The rows must not be empty. exhausted: it could not be compressed.
Result<Chunk> encode_chunk(const HistoryRows& rows, const std::vector<std::string>& names,
                           ColumnCodec& codec);

struct EntityRows {
    std::uint32_t entity = 0;
    std::uint32_t begin = 0;  // its rows are begin … end - 1
    std::uint32_t end = 0;
    std::int64_t first_step = -1;
};
Result<std::vector<EntityRows>> decode_rows(std::string_view section);
Result<std::vector<std::int64_t>> decode_steps(std::string_view section, std::size_t rows,
                                               ColumnCodec& codec);
Result<std::vector<double>> decode_times(std::string_view section, std::size_t rows,
                                         ColumnCodec& codec);
// One value per row; kAbsent where there is none.
Result<std::vector<double>> decode_values(std::string_view section, std::size_t rows,
                                          ColumnCodec& codec);

struct PyramidLevel {
    std::vector<std::uint32_t> begin;  // of each entity's buckets; one more than entities
    std::vector<std::int64_t> last_step;
    std::vector<double> low, high, last;
};
Result<PyramidLevel> decode_level(std::string_view section, std::size_t entities,
                                  ColumnCodec& codec);

struct NonfiniteOf {
    std::uint32_t which = 0;  // index into decode_rows()
    std::uint64_t total = 0;
    std::vector<Nonfinite> kept;  // the first limits::kNonfiniteKept
};
Result<std::vector<NonfiniteOf>> decode_nonfinite(std::string_view section, std::size_t entities);

}  // namespace lockstep::telemetry
