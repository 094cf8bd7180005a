// What squeue and sacct are asked for, and the environment that makes their answers readable: for
// whoever runs them, lockstepd (slurm_text.hpp) or lockstep-exec in a user's name (../exec). The
// standard library alone. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The environment that makes the programs print times as Unix seconds and everything in English.
// To be added to the allow-listed one for every call below.
inline constexpr std::array<std::string_view, 2> kSlurmTextEnvironment{"SLURM_TIME_FORMAT=%s",
                                                                       "LC_ALL=C"};

// argv of one poll, without the program: all states of one user's jobs (empty: everybody's).
// `fence` begins and ends each row: 8 to 64 lower-case hexadecimal characters that nobody who
// submits jobs can know (job names may hold newlines and so forge rows); new for each call.
// -a, here and below: without it Slurm leaves out the jobs of hidden partitions and of those that
// the user's groups may not use (any more), even to their owner, and what it leaves out counts as
// lost.
std::vector<std::string> squeue_arguments(std::string_view fence, std::string_view user = {});

// `scontrol -a -o show job <id>`. not_found: there is none, or the number is another job's by now.
std::vector<std::string> show_job_arguments(std::int64_t id);

// argv without the program: the allocations (no steps) of one user since a time in Unix seconds.
// `user` must not be empty: sacct has no fence, its rows are trusted because they are all ours.
// `name`: only jobs of that name (sacct compares it exactly; no commas); empty: all.
// `duplicates`: also the earlier runs of a requeued job (-D).
std::vector<std::string> sacct_arguments(std::string_view user, std::int64_t since,
                                         std::string_view name = {}, bool duplicates = false);

}  // namespace lockstep
