#include "daemon/control/history/telemetry_log.hpp"

#include "daemon/telemetry/history/column_codec.hpp"
#include "job/base/limits.hpp"

#include <cstring>

namespace lockstep {
namespace {

constexpr std::size_t kHead = 12;

template <class T>
T take(std::string_view& in) {
    T value{};
    std::memcpy(&value, in.data(), sizeof value);
    in.remove_prefix(sizeof value);
    return value;
}

}  // namespace

void append_logged(std::string& log, std::int32_t attempt, std::uint32_t node_rank,
                   std::string_view bytes) {
    const auto size = static_cast<std::uint32_t>(bytes.size());
    log.append(reinterpret_cast<const char*>(&attempt), sizeof attempt);
    log.append(reinterpret_cast<const char*>(&node_rank), sizeof node_rank);
    log.append(reinterpret_cast<const char*>(&size), sizeof size);
    log += bytes;
}

Result<std::string> pack_log(std::string_view log) {
    return telemetry::compress_bytes(log);
}

Result<std::vector<LoggedBatch>> unpack_log(std::string_view row) {
    // The head of each batch comes on top of what ingest lets wait.
    const auto log = telemetry::decompress_bytes(row, 2 * limits::kIngestBytes);
    LOCKSTEP_TRY(log);
    std::vector<LoggedBatch> out;
    std::string_view in = *log;
    while (!in.empty()) {
        if (in.size() < kHead) {
            return fail(Errc::corrupt, "telemetry log: truncated");
        }
        LoggedBatch batch;
        batch.attempt = take<std::int32_t>(in);
        batch.node_rank = take<std::uint32_t>(in);
        const auto size = take<std::uint32_t>(in);
        if (size > in.size()) {
            return fail(Errc::corrupt, "telemetry log: truncated");
        }
        batch.bytes = in.substr(0, size);
        in.remove_prefix(size);
        out.push_back(std::move(batch));
    }
    return out;
}

}  // namespace lockstep
