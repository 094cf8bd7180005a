// What lockstep-exec answers, on descriptor 0. Whoever cannot be answered has left: no error.
#pragma once

#include "scheduler-integration/exec/order.hpp"

#include <string>

namespace lockstep::exec {

struct Reply {
    Status status = Status::done;
    std::string message{};
    int exit = 0;
    int signal = 0;
    std::string out{};
    std::string err{};
    int descriptor = -1;  // handed over with it; -1 = none
};
void send_reply(const Reply& reply);

}  // namespace lockstep::exec
