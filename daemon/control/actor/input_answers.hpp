// Answers to the commands among a job's inputs, where they are not to be taken up. Control thread.
#pragma once

#include "daemon/control/machine/job_input.hpp"
#include "job/base/result.hpp"

#include <deque>
#include <optional>
#include <variant>
#include <vector>

namespace lockstep {

// To a command, `status`; to others nothing.
inline void answer(const JobInput& input, const Status& status) {
    std::visit(
        [&](const auto& one) {
            if constexpr (requires { one.done(status); }) {
                one.done(status);
            }
        },
        input);
}

// Takes the commands out, whoever gave them is told why; nobody if they have been answered.
template <class Inputs>  // std::vector or std::deque of JobInput
void refuse_commands(Inputs& inputs, const std::optional<Status>& why) {
    std::erase_if(inputs, [&](const JobInput& input) {
        const bool command =
            std::visit([](const auto& one) { return requires { one.done; }; }, input);
        if (command && why) {
            answer(input, *why);
        }
        return command;
    });
}

}  // namespace lockstep
