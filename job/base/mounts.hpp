// What is mounted where, by /proc/self/mountinfo (proc_pid_mountinfo(5)). Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Mount {
    std::string point;  // where, absolute
    std::string type;   // "ext4", "nfs4", "fuse.sshfs"
};

// In the order of the text: a later one covers an earlier one of the same point. Lines that are
// none are left out.
std::vector<Mount> parse_mounts(std::string_view mountinfo);

}  // namespace lockstep
