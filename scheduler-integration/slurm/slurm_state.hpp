// Slurm's job states: one base state and any number of flags, as the programs and the JSON print
// them, and what they mean to Lockstep. An unknown word is kept and never ends a job.
// Source: slurm.h (enum job_states, JOB_* flags), job_state_string() of slurm_protocol_defs.c,
// https://slurm.schedmd.com/job_state_codes.html. Values only; any thread.
#pragma once

#include "job/model/state.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

enum class SlurmBase : std::uint8_t {
    none,  // only flags were printed, or nothing that we know
    pending,
    running,
    suspended,
    completed,
    cancelled,
    failed,
    timeout,
    node_fail,
    preempted,
    boot_fail,
    deadline,
    out_of_memory,
};
inline constexpr std::size_t kSlurmBases = 13;

// In the order in which the programs prefer them when they print one word for the whole state;
// from launch_failed on only the JSON shows them.
enum class SlurmFlag : std::uint8_t {
    completing,
    stage_out,
    configuring,
    expediting,
    resizing,
    requeued,
    requeue_fed,
    requeue_hold,
    special_exit,
    stopped,
    revoked,
    resv_del_hold,
    signaling,
    launch_failed,
    reconfig_fail,
    power_up_node,
    getenv_failed,
    update_db,
};
inline constexpr std::size_t kSlurmFlags = 18;

struct SlurmState {
    SlurmBase base = SlurmBase::none;
    std::uint32_t flags = 0;                   // bit n: SlurmFlag n
    bool foreign = false;                      // a word was printed that is not in our tables
    std::optional<std::int64_t> cancelled_by;  // the uid of "CANCELLED by 1000"
    std::string raw;                           // as printed; several words joined by '+'

    bool has(SlurmFlag flag) const { return ((flags >> static_cast<unsigned>(flag)) & 1U) != 0; }
    bool operator==(const SlurmState&) const = default;
};

// "PENDING" and "PD"; "COMPLETING" and "CG".
std::string_view to_string(SlurmBase base);
std::string_view to_string(SlurmFlag flag);
std::string_view compact_code(SlurmBase base);  // empty for none
std::string_view compact_code(SlurmFlag flag);  // empty where the programs have none

// One word as squeue, sacct or scontrol print it: long or compact, "CANCELLED by 1000", cut off by
// a column ("CANCELLED+", "OUT_OF_ME+"). Never fails: what is not known is `foreign`.
SlurmState parse_slurm_state(std::string_view word);
// The JSON's array (base first, then flags) or its one string.
SlurmState parse_slurm_states(std::span<const std::string_view> words);

// What Lockstep does with a job in this state.
enum class SlurmPhase : std::uint8_t {
    queued,
    held,      // waits for a person: released or cancelled, else forever
    blocked,   // waits for what cannot happen: the reason says why
    starting,  // allocated, nodes still boot; not yet on the rendezvous' clock
    running,
    paused,      // suspended or stopped: the job has its GPUs and does not move
    finishing,   // over, nodes not yet free; `end` says how if Slurm does
    requeueing,  // this run is over, Slurm will start the script again under the same id
    ended,
    unknown,  // a word we do not know: alive until proven otherwise
};
inline constexpr std::size_t kSlurmPhases = 10;

// How a job ended.
enum class SlurmEnd : std::uint8_t {
    none,
    ok,
    failed,
    oom,
    time_limit,
    deadline,
    cancelled,
    node_fail,
    boot_fail,
    preempted,
    revoked,  // another cluster of the federation has it: follow that one's record
};
inline constexpr std::size_t kSlurmEnds = 11;

struct SlurmVerdict {
    SlurmPhase phase = SlurmPhase::unknown;
    SlurmEnd end = SlurmEnd::none;  // also while finishing or requeueing
    // The attempt is over. False for unknown words, beside COMPLETING and every requeue flag, and
    // for REVOKED.
    bool terminal = false;
    // Terminal, but Slurm itself may still put the job back to PENDING (node failure, preemption,
    // a requeue exit code): believe it when the next poll says the same.
    bool confirm = false;
    bool operator==(const SlurmVerdict&) const = default;
};

// `reason` is Slurm's word (squeue %r), `restarts` its restart count (0 where not known).
SlurmVerdict judge(const SlurmState& state, std::string_view reason = {}, int restarts = 0);

std::string_view to_string(SlurmPhase phase);
std::string_view to_string(SlurmEnd end);
// "ran out of its time limit": continues a sentence that begins with the job.
std::string_view plain_words(SlurmEnd end);

// What else is known of an end.
struct SlurmEndFacts {
    std::optional<int> signal{};                 // of the job's own exit status
    std::optional<std::int64_t> cancelled_by{};  // uid
    std::optional<std::int64_t> owner{};         // the job's uid
    std::string_view reason{};                   // Slurm's word
};
// Why the attempt ended as far as Slurm alone can tell; what the ranks reported goes before it.
// none for SlurmEnd::none and ok. Cancelled by somebody but the owner, or because a dependency can
// never be met, is `scheduler`.
CauseClass cause_of(SlurmEnd end, const SlurmEndFacts& facts = {});

}  // namespace lockstep
