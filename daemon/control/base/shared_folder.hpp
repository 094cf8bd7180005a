// Folders of lockstepd's in which a job that runs as another Unix user works, by POSIX access
// control lists (acl(5)): no other user sees them, and neither side needs rights over the other.
// Blocking.
#pragma once

#include "job/base/result.hpp"

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace lockstep {

// The Unix user of this name; denied: there is none here.
Result<uid_t> unix_user(const std::string& name);
// The user may go through the folder, and not see what is in it.
Status let_pass(const std::filesystem::path& folder, uid_t user);
// The user may make files and folders in it, and both sides may read and write all of it; what is
// made with a mode of 0600 is its maker's alone.
Status share_folder(const std::filesystem::path& folder, uid_t user);
// Whether others may go through every folder above `folder`; invalid names the one they may not.
Status open_to_others(const std::filesystem::path& folder);

}  // namespace lockstep
