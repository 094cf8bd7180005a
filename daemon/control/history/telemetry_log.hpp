// A row of the store's telemetry log: the batches of one job that were stored together, as they
// came. Zstd frame of: per batch i32 attempt, u32 node, u32 bytes, bytes
// (job/model/wire/batch.hpp). Pure; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct LoggedBatch {
    std::int32_t attempt = 0;
    std::uint32_t node_rank = 0;
    std::string bytes;
};

void append_logged(std::string& log, std::int32_t attempt, std::uint32_t node_rank,
                   std::string_view bytes);
// exhausted: zstd has no memory.
Result<std::string> pack_log(std::string_view log);
// corrupt: damaged, or larger than limits::kIngestBytes allows.
Result<std::vector<LoggedBatch>> unpack_log(std::string_view row);

}  // namespace lockstep
