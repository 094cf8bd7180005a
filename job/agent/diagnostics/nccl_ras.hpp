// What NCCL's RAS subsystem (2.24 and later, on unless switched off) says of the job it is part of.
// The protocol is that of NCCL's src/ras/client_support.cc (rasClientEventLoop): lines over TCP;
// CLIENT PROTOCOL n, TIMEOUT s, SET FORMAT json (2.28.7 and later) and STATUS or VERBOSE STATUS,
// whose answer is text up to the end of the stream. Agent thread only.
#pragma once

#include "job/agent/ranks/process_look.hpp"
#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct RasAddress {
    std::string host;
    std::uint16_t port = 0;
    bool operator==(const RasAddress&) const = default;
};
// Where the rank's NCCL listens: NCCL_RAS_ADDR, otherwise localhost:28028 if NCCL is loaded.
// Nothing: it does not (NCCL_RAS_ENABLE=0, no NCCL), or the address is none.
std::optional<RasAddress> ras_address(const std::vector<ProcessLook>& tree);

// At most limits::kEvidenceFileBytes of it. `socket` gets the open connection: closing it ends the
// wait. unavailable: nobody there, not in time, or no RAS.
Task<Result<std::string>> ask_ras(RasAddress address,
                                  std::chrono::steady_clock::time_point deadline,
                                  std::shared_ptr<tcp::socket>& socket);

// What NCCL's own diagnostics (RAS's DIAGNOSTICS, 2.31 and later) say of the job's GPUs, drivers,
// links and NCCL's variables: each process reads them and moves no data; 12 ms of 8 ranks in NCCL's
// guide. "": this NCCL has none. unavailable as above, or another one is under way.
Task<Result<std::string>> ask_ras_diagnostics(RasAddress address,
                                              std::chrono::steady_clock::time_point deadline,
                                              std::shared_ptr<tcp::socket>& socket);
// What they found worth a look ([INFO]), without host and process: at most limits::kEvidenceGaps.
std::vector<std::string> diagnostics_found(std::string_view text);

// The same in JSON (ras_status.hpp), at most limits::kRasAnswerBytes of it, and why there is none.
enum class RasSilence : std::uint8_t {
    nobody,   // nothing listens there: no communicator is there yet, or no process any more
    silent,   // it does not answer, or not in time
    foreign,  // it is not NCCL
    no_json,  // NCCL before 2.28.7
    endless,  // more than that
};
Task<tl::expected<std::string, RasSilence>> ask_ras_status(
    RasAddress address, std::chrono::steady_clock::time_point deadline,
    std::shared_ptr<tcp::socket>& socket);

}  // namespace lockstep
