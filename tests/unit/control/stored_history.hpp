// What is stored of a job's series, without a store.
#pragma once

#include "daemon/control/history/history_restore.hpp"
#include "daemon/control/history/telemetry_log.hpp"
#include "daemon/telemetry/history/history_chunk.hpp"
#include "job/model/wire/batch.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep {

// All rows into chunks, as a flush does it.
inline StoredHistory flushed(telemetry::JobSeries& series, bool whole) {
    StoredHistory out;
    out.state = encode_state(series);
    telemetry::ColumnCodec codec;
    for (const auto& rows : series.keep_history().seal()) {
        auto chunk = telemetry::encode_chunk(*rows, series.metrics(), codec).value();
        StoredChunk stored;
        stored.whole = whole;
        stored.row.id = ++out.newest_chunk;
        stored.row.block = chunk.block;
        stored.row.attempt = chunk.start.attempt;
        stored.row.generation = chunk.start.generation;
        stored.row.rows = static_cast<std::int64_t>(chunk.rows);
        stored.row.samples = static_cast<std::int64_t>(chunk.samples);
        for (telemetry::Section& section : chunk.sections) {
            if (section.level == 0) {  // the rows themselves: what a restart reads
                stored.row.sections.push_back(
                    {std::move(section.name), section.level, std::move(section.data)});
            }
        }
        out.chunks.push_back(std::move(stored));
    }
    out.complete = whole;
    return out;
}

inline LogRow logged(const Batch& batch) {
    std::string log;
    append_logged(log, 1, batch.node_rank, encode_batch(batch));
    LogRow out;
    out.data = pack_log(log).value();
    return out;
}

}  // namespace lockstep
