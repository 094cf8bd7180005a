// What slurmrestd answers, as recorded (22.05) or documented (after), and as an attacker would.
#pragma once

#include "scheduler-integration/slurm/rest_text.hpp"

#include <string>
#include <utility>

namespace lockstep::rest {

inline ClientResponse answer(int status, std::string body) {
    ClientResponse out;
    out.status = status;
    out.body = std::move(body);
    return out;
}

inline std::string errors(const std::string& list) {
    return R"({"meta":{},"errors":[)" + list + R"(]})";
}

}  // namespace lockstep::rest
