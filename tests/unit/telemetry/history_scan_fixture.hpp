// History whose chunks are in memory: what scan and heatmap read in their tests.
#pragma once

#include "daemon/telemetry/series/history.hpp"
#include "daemon/telemetry/series/history_scan.hpp"
#include "tests/unit/telemetry/names.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::telemetry {

class MemorySource final : public HistorySource {
  public:
    void add(Chunk chunk) {
        ChunkMeta meta;
        meta.id = static_cast<std::int64_t>(chunks_.size()) + 1;
        meta.block = chunk.block;
        meta.start = chunk.start;
        meta.step_low = chunk.step_low;
        meta.step_high = chunk.step_high;
        meta.time_low = chunk.time_low;
        meta.time_high = chunk.time_high;
        metas_.push_back(meta);
        chunks_.push_back(std::move(chunk));
    }
    Result<std::vector<ChunkMeta>> chunks(std::uint32_t low, std::uint32_t high) override {
        std::vector<ChunkMeta> out;
        for (const ChunkMeta& meta : metas_) {
            if (meta.block >= low && meta.block <= high) {
                out.push_back(meta);
            }
        }
        return out;
    }
    Result<std::optional<std::string>> section(std::int64_t chunk, std::string_view name,
                                               std::uint8_t level) override {
        for (const Section& one : chunks_[static_cast<std::size_t>(chunk - 1)].sections) {
            if (one.name == name && one.level == level) {
                ++read_[level];
                return one.data;
            }
        }
        return std::optional<std::string>{};
    }
    std::vector<Chunk> chunks_;
    std::vector<ChunkMeta> metas_;
    std::map<std::uint8_t, int> read_;
};

struct RowOf {
    std::int64_t step;
    double time;
    double value;
};

// Reports of one rank through History, a chunk per `per_chunk` of them, the rest left open.
struct Fed {
    MemorySource source;
    History history;
    ColumnCodec codec;
    void add(const std::vector<RowOf>& reports, std::size_t per_chunk, Start start = {1, 1},
             std::uint32_t rank = 0) {
        std::size_t count = 0;
        for (const RowOf& one : reports) {
            history.add(start, rank, one.step, one.time, {one.value}, 0);
            if (++count % per_chunk == 0) {
                store();
            }
        }
    }
    void store() {
        const auto sealed = history.seal();
        for (const auto& rows : sealed) {
            source.add(encode_chunk(*rows, kNames, codec).value());
        }
        history.stored(sealed.size(), 0);
    }
    std::vector<RankHistory> ask(HistoryAsk ask) {
        auto out = fold_series(source, ask, history.tail(0, ask.entities).rows());
        EXPECT_TRUE(out.has_value());
        return *out;
    }
};

}  // namespace lockstep::telemetry
