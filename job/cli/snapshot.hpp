// A copy of the caller's git work tree as it is now: what git tracks, with the changes that are not
// committed. The job runs there, so that what is edited meanwhile does not change it. Blocks; the
// main thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/cli/options.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::cli {

struct Snapshot {
    std::filesystem::path root;  // the copy; "": none was made
    std::string directory;       // the caller's folder within the copy
    Json labels;                 // git-commit, git-dirty
    std::string summary;         // "commit 0123456789ab with changes, 132 files, 1.2 MiB"
    std::vector<std::string> warnings;
};

// Below the data directory, which the nodes must see, too.
std::filesystem::path snapshots_folder(const Options& options);

// invalid: `directory` is in no git work tree, or holds more than limits::kSnapshotBytes, or there
// is no git; cancelled: `stopped`, which is asked before each file, said so. Then nothing is left
// of the copy.
Result<Snapshot> take_snapshot(const std::string& directory, const std::filesystem::path& into,
                               const std::function<bool()>& stopped);
// What it would be, without a copy and its size.
Result<Snapshot> planned_snapshot(const std::string& directory);

}  // namespace lockstep::cli
