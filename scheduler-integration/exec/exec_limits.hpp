// What administrators, users and lockstepd run into with lockstep-exec, each with its reason. Needs
// nothing of Lockstep, as all of lockstep-exec.
#pragma once

#include <cstddef>

namespace lockstep::limits {

inline constexpr std::size_t kExecConfigBytes = 64U << 10U;  // exec.conf: a dozen lines
// A request that has not come by then never will.
inline constexpr unsigned kExecRequestSeconds = 10;
// All of one connection: sbatch itself tries again for two minutes.
inline constexpr unsigned kExecTotalSeconds = 300;
// Days after a signature's last that its counts are kept: so long a job that was submitted on it
// may wait and run, and its agents be told another address of lockstepd.
inline constexpr long kExecCountsKept = 400;
// Of a program's output, and as much of its errors: squeue and sacct of a user with 10,000 jobs.
inline constexpr std::size_t kExecOutputBytes = 16U << 20U;
// Connections of one lockstepd at a time; those beyond it wait. Half of MaxConnections of
// lockstep-exec.socket: systemd closes what is beyond that, and a submission whose connection was
// closed may have been made. A process that was given up takes a moment to end.
inline constexpr std::size_t kExecCallsAtOnce = 32;

}  // namespace lockstep::limits
