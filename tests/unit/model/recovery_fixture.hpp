// Jobs with recovery and without, and what is due in them.
#pragma once

#include "tests/unit/model/history.hpp"

#include <string>

namespace lockstep {

inline constexpr const char* kOff = "";
inline constexpr const char* kOn = R"(,"recovery":{})";

// Two nodes with two ranks each, and spares.
inline std::string spec(const std::string& recovery, int spares = 0) {
    return R"({"name":"t","framework":"command","command":["x"],
               "resources":{"nodes":2,"ranks_per_node":2,"spares":)" +
           std::to_string(spares) + "}" + recovery + "}";
}

inline History running(const std::string& recovery, int spares = 0) {
    History h{spec(recovery, spares)};
    h.running();
    return h;
}

inline ActionKind due_of(const History& h) {
    return due(h.job, h.now).kind;
}

}  // namespace lockstep
