// Whose fault it is that ranks cannot be prepared or started. Values; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/model/state.hpp"

namespace lockstep {

// The job's own if what its document names is missing, may not be used or is wrong: that is so on
// every node. Everything else (a full disk, no descriptors or processes left, a file server that
// fails, a port that is gone) is this node's, and another may do better.
inline CauseClass cause_of_start(const Error& error) {
    const bool jobs =
        error.code == Errc::not_found || error.code == Errc::denied || error.code == Errc::invalid;
    return jobs ? CauseClass::user_error : CauseClass::node_lost;
}

}  // namespace lockstep
