// What lockstepd may ask of lockstep-exec, and how it is said on the socket. Both ends are on one
// machine and of one version: numbers are in its byte order. Plain values; any thread.
//
//   lockstepd -> frame: kMagic, size of the body (both uint32), the body: fields, each a tag (one
//                byte), the size of its value (uint32) and the value
//   child     -> Order: what a frame says, in one fixed size (the privileged parent reads no frame)
//   helper    -> ReplyHead and the texts that it counts; with open-log a descriptor (SCM_RIGHTS)
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::exec {

inline constexpr std::uint32_t kMagic = 0x3158534CU;  // "LSX1"
// What a user signs: kSigned and the SHA-256 of the statement, in hexadecimal.
inline constexpr char kSigned[] = "lockstep-exec-1 ";
inline constexpr std::size_t kPayloadBytes = sizeof kSigned - 1 + 64;
// How a statement begins; the audience and a line's end follow.
inline constexpr char kStatementHead[] = "lockstep-exec-1\naudience ";

enum class Verb : std::uint32_t { submit = 1, cancel, query, open_log };
enum class What : std::uint32_t {
    none,
    refresh,    // submit: only the ticket's file of an attempt that was submitted
    about,      // query: the configuration, as far as lockstepd needs it; asks for no credential
    signature,  // query: whose the credential is
    jobs,       // query: squeue, of everything that is the user's
    history,    // query: sacct, of one name
    job         // query: scontrol show job
};

enum class Tag : std::uint8_t {
    verb = 1,   // uint32
    what,       // uint32
    attempt,    // uint32
    point,      // uint32: which job of a sweep
    nil,        // uint32: sbatch takes --export=NIL
    slurm_job,  // int64
    since,      // int64, Unix seconds
    job,        // "ls-" and a ULID
    name,       // of a job in Slurm
    exclude,    // nodes, with commas
    time,       // as sbatch takes it
    fence,      // of squeue's lines
    file,       // below the attempt's folder
    ticket,     // content of agent.json
    credential,
    statement
};

// Texts end with a NUL byte within their field.
struct Order {
    std::uint32_t verb;
    std::uint32_t what;
    std::uint32_t attempt;
    std::uint32_t point;
    std::uint32_t nil;
    std::int64_t slurm_job;
    std::int64_t since;
    char job[32];
    char name[160];
    char exclude[4096];
    char time[32];
    char fence[64];
    char file[160];
    char ticket[4096];
    char credential[4096];
    char statement[256U << 10U];
};
inline constexpr std::size_t kFrameBytes = sizeof(Order);  // of a body, at most

enum class Status : std::uint32_t {
    done,     // `exit` and `signal` say how Slurm's program ended, if one was run
    refused,  // it will never be done: `message`
    failed    // it could not be done now: `message`
};
struct ReplyHead {
    std::uint32_t magic;
    std::uint32_t status;
    std::int32_t exit;    // of Slurm's program
    std::int32_t signal;  // that ended it; 0 = none
    std::uint32_t message_size;
    std::uint32_t out_size;
    std::uint32_t err_size;
};

// Reads a frame's body. nullptr, or what is wrong with it. Uses no memory but `out`'s, and makes no
// call of the system: it runs where there are none.
const char* read_order(const unsigned char* body, std::size_t size, Order& out);
// What the privileged side checks itself, without trust in the reader of the order: texts end,
// their characters and numbers are those that the verb takes, and nothing is there that it does
// not. nullptr, or what is wrong.
const char* check_order(const Order& order);

}  // namespace lockstep::exec
