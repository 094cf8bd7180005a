// Copies what lockstepd keeps into a folder, beside a lockstepd that goes on; and looks whether
// such a folder is whole. Blocking; one thread.
#pragma once

#include "daemon/backup/file_copy.hpp"
#include "daemon/backup/manifest.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct BackupPlan {
    std::filesystem::path data;  // data directory
    std::filesystem::path runs;  // runs directory
    // Somebody has said that these are the runs; false: they have to be the store's last ones.
    bool runs_named = false;
    std::filesystem::path to;  // a new folder
    RunsCopied copy = RunsCopied::logs;
    // The first token, the certificate's key and users' Slurm tokens, too. Never an attempt's
    // ticket: what it opens ends with its job.
    bool secrets = false;
};

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kFileListName = "files.jsonl";
inline constexpr const char* kDatabaseName = "lockstep.db";
inline constexpr const char* kDataFolder = "data";
inline constexpr const char* kRunsFolder = "runs";

// What secrets lie in a data directory, as files and folders.
const std::vector<std::string>& secret_names();

// The store is as it was at one moment, each file as it was when its turn came: logs may be a
// little further than what the store knows. The folder appears whole or not at all
// (staged_folder.hpp), is its owner's alone, and has been checked (integrity_check) when this
// returns. Errors as of copy_database() and copy_folder(); conflict: the folder is there, or the
// store's runs are elsewhere; not_found: a store with jobs has no runs directory there, and `copy`
// is not `none`.
Result<Manifest> make_backup(const BackupPlan& plan, UnixMillis now, const StopAsked& stop);

// Reads every byte of a backup. `problem` hears what is wrong, one at a time. corrupt: something
// was; not_found: it is no backup, or none that was finished.
Result<Manifest> verify_backup(const std::filesystem::path& folder, const StopAsked& stop,
                               const std::function<void(const std::string&)>& problem);

// Calls `take` with every entry of a backup's list, in its order.
Status read_file_list(const std::filesystem::path& folder,
                      const std::function<Status(const FileEntry&)>& take);

}  // namespace lockstep
