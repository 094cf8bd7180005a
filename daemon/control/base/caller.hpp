// A user of the API, as control needs to know them. Plain value; any thread.
#pragma once

#include <string>

namespace lockstep {

// Who asks, as the HTTP edge has established it.
struct Caller {
    std::string user;
    bool admin = false;  // sees and may change every job; others only their own
    bool may_write = true;
    bool reads_all = false;  // sees every job

    bool sees(const std::string& owner) const { return admin || reads_all || user == owner; }
};

}  // namespace lockstep
