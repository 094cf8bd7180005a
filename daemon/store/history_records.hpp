// History in the database: the telemetry log, the chunks made of it, and what a restart must know
// of batches that are gone. Threads, transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/record_access.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Batches as they came, of one job: safe before they are acknowledged, gone once chunks hold them.
struct LogWrite {
    JobId job;
    std::string data;
};
struct LogRow {
    std::int64_t id = 0;
    std::string data;
};

// A chunk of history and its sections; what is in them: daemon/telemetry/history/history_chunk.hpp.
struct SectionRow {
    std::string name;
    std::int32_t level = 0;
    std::string data;
};
struct ChunkRow {
    std::int64_t id = 0;  // given when it is stored, ascending
    std::int32_t kind = 0;
    std::uint32_t block = 0;
    std::int32_t attempt = 0;
    std::uint32_t generation = 0;
    std::int64_t step_low = -1;
    std::int64_t step_high = -1;
    double time_low = 0;
    double time_high = 0;
    std::int64_t rows = 0;
    std::int64_t samples = 0;
    std::vector<SectionRow> sections;  // not read back with the row
};
// Batches of before version 3, in the order they are read: by attempt, number, node.
struct BatchPlace {
    std::int32_t attempt = -1;  // -1 = before the first
    std::uint64_t seq = 0;
    std::int32_t node_rank = 0;
};
// One flush of a job: its rows move from the log into chunks.
struct ChunksWrite {
    JobId job;
    std::vector<ChunkRow> chunks;
    std::int64_t log_upto = 0;  // log rows up to this one are in chunks now
    std::string state;  // what a restart must know of the batches that are gone; "" = nothing
    BatchPlace batches_upto{};  // as log_upto, of batches of before version 3
};
struct HistorySize {
    std::int64_t chunks = 0;
    std::int64_t samples = 0;
    std::int64_t bytes = 0;

    HistorySize& operator+=(const HistorySize& other) {
        chunks += other.chunks;
        samples += other.samples;
        bytes += other.bytes;
        return *this;
    }
    HistorySize& operator-=(const HistorySize& other) {
        chunks -= other.chunks;
        samples -= other.samples;
        bytes -= other.bytes;
        return *this;
    }
};

// Before version 3 each batch was a row of its own.
struct BatchRow {
    JobId job;
    std::int32_t attempt = 0;
    std::int32_t node_rank = 0;
    std::uint64_t seq = 0;
    std::string data;
};

class HistoryRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction.
    Result<std::int64_t> add_log(const LogWrite& write);        // the row's id
    Result<std::int64_t> add_chunks(const ChunksWrite& write);  // the newest chunk's id
    // Removes chunks until history takes at most `max_bytes`, those of jobs that are over first,
    // the oldest first, and what is older than `before` (seconds since the Unix epoch); at most
    // `most` of them a call. What was removed. A job that is over and has nothing left loses its
    // state too.
    Result<HistorySize> expire(std::int64_t max_bytes, double before, std::size_t most);
    // Of jobs that are over and have nothing left the states that expire() had to leave,
    // because the job went on when its last chunk went. Looks at `most` states beyond `after`, in
    // the order of the jobs; the last one's job, "" = there are no more.
    Result<std::string> forget_states(const std::string& after, std::size_t most);
    // At most `most` chunks of a removed job a call, and with the last of them its log. What went.
    Result<HistorySize> remove(const JobId& job, std::size_t most);

    // Reads.
    // The stored batches beyond a place, in order; one at least, and more while they have at most
    // `max_bytes`.
    Result<std::vector<BatchRow>> batches(const JobId& job, BatchPlace after,
                                          std::size_t max_bytes);
    // Jobs that are over and have telemetry outside chunks: their ids beyond `after`, ascending.
    Result<std::vector<JobId>> unpacked(const JobId& after, std::size_t limit);
    Result<bool> packed(const JobId& job);  // whether chunks hold all telemetry of the job
    Result<std::vector<LogRow>> log(const JobId& job);  // oldest first
    Result<std::string> state(const JobId& job);        // "" = none
    // Of blocks low … high, up to the chunk `newest`; oldest first.
    Result<std::vector<ChunkRow>> chunks(const JobId& job, std::int32_t kind, std::uint32_t low,
                                         std::uint32_t high, std::int64_t newest);
    Result<std::optional<std::string>> section(std::int64_t chunk, std::string_view name,
                                               std::int32_t level);
    Result<std::vector<SectionRow>> sections(std::int64_t chunk, std::int32_t level);
    // Names of the sections of level 0 that a job's chunks have, up to chunk `newest`.
    Result<std::vector<std::string>> section_names(const JobId& job, std::int32_t kind,
                                                   std::int64_t newest);
    // The highest id of any chunk of a job; 0 = it has none.
    Result<std::int64_t> newest_chunk(const JobId& job);
    Result<HistorySize> size();                       // counted once, then kept up to date
    Result<std::int64_t> bytes_of(const JobId& job);  // of a job's chunks
};

}  // namespace lockstep
