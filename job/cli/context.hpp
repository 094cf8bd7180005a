// What every verb works with. Passed by reference through the program; main() owns it.
#pragma once

#include "job/base/clock.hpp"
#include "job/cli/client.hpp"
#include "job/cli/options.hpp"
#include "job/cli/terminal.hpp"

#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep::cli {

class Stop;

struct Context {
    const Options& options;
    const Terminal& terminal;
    const Client& client;
    const Clock& clock;
    std::function<void(std::chrono::milliseconds)> sleep;
    std::ostream& out;
    std::ostream& err;
    // Names the job that goes on when the program is interrupted.
    std::function<void(const std::string& id)> watching;
    Stop* stop = nullptr;  // of work that must not be cut off; nullptr: nothing interrupts it
};

// Prints the error with its fields and what to do about it; returns how the program ends.
Exit report(Context& context, const Error& error);
void print(Context& context, const std::vector<std::string>& lines);
void print_json(Context& context, const Json& json);

}  // namespace lockstep::cli
