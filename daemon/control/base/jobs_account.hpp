// Whose Unix user the jobs run as. A plain value; any thread.
#pragma once

#include <string>

namespace lockstep {

// Where the scheduler acts in nobody else's name all jobs run as lockstepd's own user, and whoever
// may submit one has all that this user has: the data folder with its first token, the other users'
// jobs.
struct JobsAccount {
    std::string name{};   // of that user; "" = each job runs as its own user
    bool shared = false;  // that is meant: --shared-account

    bool may_submit(const std::string& user) const {
        return name.empty() || shared || user == name;
    }
    // To be said where a user signs in.
    bool is_shared() const { return !name.empty() && shared; }
    std::string why_not() const {
        return "every job of this lockstepd runs as " + name +
               ", so that whoever submits one can do all that " + name +
               " can, to others' jobs and tokens too: start lockstepd with --shared-account if "
               "that is meant";
    }
};

}  // namespace lockstep
