// `lockstep-agent report` and `lockstep-agent kv`: a rank's words to its agent from any shell.
// Blocking; part of the program, not of the library.
#pragma once

#include "job/model/wire/kv_op.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Exit codes: 0 done, 1 the agent refused or is gone, 2 wrong use.
// Sends one report of name=value words.
int send_report(const std::vector<std::string>& words);

// Exit codes of `lockstep-agent kv`.
inline constexpr int kKeyDone = 0;
inline constexpr int kKeyRefused = 1;  // no such key, another value stands, too large, …
inline constexpr int kKeyWrongUse = 2;
inline constexpr int kKeyTimedOut = 3;
inline constexpr int kKeyNoAgent = 4;  // no LOCKSTEP_SOCKET, or nobody answers there

struct KeyCommand {
    wire::KvOp op = wire::KvOp::unknown;  // not the multi_ ones
    std::string key;                      // or the barrier's name
    std::vector<std::string> keys;        // wait
    std::string value;                    // set, cas; "-": read from stdin, as it is
    std::string expected;                 // cas; "": create only
    bool once = false;                    // set
    std::int64_t delta = 1;               // add
    bool waits = false;                   // get: for the key to be set
    std::chrono::milliseconds timeout{30'000};
};
// Runs one key operation; get and add print the value, cas the one that stands now; delete
// of a key that is not there is refused.
int run_key_command(const KeyCommand& command);

}  // namespace lockstep
