// Where the evidence of a hang lies: files of an attempt's folder, one folder a generation and
// rank, written by the rank's agent (job/agent/diagnostics/evidence_taker.hpp) and read by the
// daemon for people. Pure; any thread.
//
//   <attempt>/evidence/gen-2/rank-00001/state.txt      processes and threads of the rank, /proc
//                                       kernel.txt     kernel stacks, where the agent may read them
//                                       python.txt     py-spy
//                                       native.txt     gdb or eu-stack
//                                       ras.txt        what NCCL says of the job
//                                       nccl.txt       by how many operations ranks are behind in
//                                                      NCCL (on rank 0's node), and the newest
//                                                      bandwidths of the rank there
//                                       flight-recorder   torch's dump: a pickle
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::string_view kStateText = "state.txt";
inline constexpr std::string_view kKernelText = "kernel.txt";
inline constexpr std::string_view kPythonText = "python.txt";
inline constexpr std::string_view kNativeText = "native.txt";
inline constexpr std::string_view kRasText = "ras.txt";
inline constexpr std::string_view kNcclText = "nccl.txt";
inline constexpr std::string_view kFlightDumpName = "flight-recorder";
// All names there are; no other is ever asked of the file system.
inline constexpr std::array kEvidenceNames{kStateText, kKernelText, kPythonText,    kNativeText,
                                           kRasText,   kNcclText,   kFlightDumpName};

bool is_evidence_name(std::string_view name);
// {"evidence", "gen-2", "rank-00001"}: each a folder in the one before.
std::array<std::string, 3> evidence_folders(std::int32_t generation, std::int32_t rank);

// Where a program is, in one line, from a stack as py-spy prints it: the newest call of the main
// thread, or of the first if none is called so. "" if there is none.
std::string top_python_frame(std::string_view text);
// The same from gdb or eu-stack: the newest three calls of the main thread, "poll < main < …".
std::string top_native_frame(std::string_view text);

}  // namespace lockstep
