// Why a job waits, for people. It outlives attempts. Value; control thread only.
#pragma once

#include "job/base/clock.hpp"

#include <string>
#include <utility>

namespace lockstep {

struct PendingReason {
    std::string words{};            // "" = it does not
    UnixMillis expected_start = 0;  // 0 = not known

    void set(std::string why, UnixMillis start = 0) {
        words = std::move(why);
        expected_start = start;
    }
};

}  // namespace lockstep
