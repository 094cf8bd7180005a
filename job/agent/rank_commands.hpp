// `lockstep-agent report` and `lockstep-agent kv`: a rank's words to its agent from any shell.
// Blocking; part of the program, not of the library.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Exit codes of both: 0 done, 1 the agent refused or is gone, 2 wrong use.
// Sends one report of name=value words.
int send_report(const std::vector<std::string>& words);

struct KeyCommand {
    std::string op;                 // set get wait add barrier
    std::vector<std::string> keys;  // the key; several for wait
    std::string value;              // set
    std::int64_t delta = 1;         // add
    std::chrono::milliseconds timeout{30'000};
};
// Runs one key operation; get and add print the value.
int run_key_command(const KeyCommand& command);

}  // namespace lockstep
