// What administrators run into with backups, with its reason.
#pragma once

namespace lockstep::limits {

// Folders in each other below a job's: what lies deeper is left out, and told of. Each is a
// descriptor and a frame of the stack.
inline constexpr int kBackupFolderDepth = 256;

}  // namespace lockstep::limits
