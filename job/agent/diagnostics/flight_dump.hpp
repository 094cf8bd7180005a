// torch's flight recorder: the last collectives of a rank, which it writes to a file when something
// is written to its pipe. Names are torch's (ProcessGroupNCCL.hpp, FlightRecorder.hpp): the pipe is
// <TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe, the dump <TORCH_FR_DUMP_TEMP_FILE, before 2.8
// TORCH_NCCL_DEBUG_INFO_TEMP_FILE><rank>; both exist only with a buffer (TORCH_FR_BUFFER_SIZE,
// before TORCH_NCCL_TRACE_BUFFER_SIZE). ask_for_dump() and read_dump() block, on any file system
// the job likes; any thread.
#pragma once

#include "job/agent/ranks/process_look.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct FlightRecorder {
    std::filesystem::path pipe;                // empty: none was asked for
    std::vector<std::filesystem::path> dumps;  // where the file may be
    std::filesystem::file_time_type asked{};   // a dump that is older is of another time
    std::uintmax_t size = 0;                   // of the dump when last looked at; 0 = not there
};

// Nothing: no process of the rank has the recorder on.
std::optional<FlightRecorder> flight_recorder(const std::vector<ProcessLook>& tree,
                                              std::int32_t rank);
// Asks for the dump without waiting. unavailable: there is no pipe or nobody reads it; torch then
// writes only when its own time is over.
Status ask_for_dump(FlightRecorder& recorder);
// The dump once it has been there in the same size twice; nothing: not yet. exhausted: too large.
Result<std::optional<std::string>> read_dump(FlightRecorder& recorder);

}  // namespace lockstep
