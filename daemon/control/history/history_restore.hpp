// What the store has of a job's telemetry, back into its series: chunks, the log, and what neither
// says (the state). Chunks of GPUs stay where they are. Whatever is damaged is left out and logged;
// nothing of it ends the daemon. read_stored() where its Database belongs, the rest pure.
//
// The state is text, a line each:
//   seen ATTEMPT NODE SEQ               the newest batch of a node, of the two newest attempts
//   generation ATTEMPT NUMBER FIRST-STEP LAST-STEP FIRST-AT LAST-AT CHECKPOINT-SECONDS
//   gpus ID:GPU:RANK+RANK,… NODE        numbers of a node's GPUs, and who used them last
//   counted …                           counters: history_totals.hpp
//   steptimes …                         how long the newest steps took: history_steps.hpp
// The first databases of version 3 have the same numbers as JSON, which is read too.
#pragma once

#include "daemon/store/history_records.hpp"
#include "daemon/telemetry/series/series.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Database;

struct StoredChunk {
    ChunkRow row;        // with its sections
    bool whole = false;  // false: only the newest rows of each rank
};
struct StoredHistory {
    std::string state;
    std::vector<BatchRow> batches;  // the first of them
    std::vector<LogRow> log;
    std::vector<StoredChunk> chunks;  // oldest first
    std::int64_t newest_chunk = 0;    // of ranks or GPUs; 0 = the job has none
    bool complete = true;             // these chunks have every row that chunks have of ranks

    bool empty() const { return newest_chunk == 0 && batches.empty() && log.empty(); }
};

// Which of a job's chunks (oldest first) are taken: the newest of every block in any case, whole
// chunks up to `budget` values, of each block the newest without a gap.
std::vector<StoredChunk> choose_chunks(std::vector<ChunkRow> chunks, std::int64_t budget);
Result<StoredHistory> read_stored(Database& db, const JobId& job, std::int64_t budget,
                                  std::size_t batch_bytes);

// State and chunks; before anything else is put into the series. Counters are then as they were
// when the newest chunk was stored, however few rows came back; the log's rows add to them.
void restore_history(const JobId& job, const StoredHistory& stored, telemetry::JobSeries& series);
void restore_log(const JobId& job, const LogRow& row, telemetry::JobSeries& series);
void restore_batches(const std::vector<BatchRow>& batches, telemetry::JobSeries& series);

// When the scheduler was last seen to have suspended the present attempt, seconds since the Unix
// epoch; 0 = never. For JobSeries::stood_still().
double last_suspension(const Job& job);
// All of all attempts, ascending, in the same unit: for rows that are read back.
std::vector<double> suspensions(const Job& job);

std::string encode_state(const telemetry::JobSeries& series);
// The GPUs that the state names, as far as it reads back.
telemetry::GpuDirectory read_gpus(std::string_view text);
// All but the counters. corrupt: not such text; what came before the bad part holds.
Status restore_state(std::string_view text, telemetry::JobSeries& series);

}  // namespace lockstep
