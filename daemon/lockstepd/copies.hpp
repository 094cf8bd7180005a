// What lockstepd does with copies of its data directory: `backup` and `restore`, and the look at a
// start whether it has been given one. Blocking; before anything else runs.
#pragma once

#include "daemon/lockstepd/data_directory.hpp"
#include "daemon/lockstepd/settings.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

// The first path of the settings that is relative while the current directory has been removed; "":
// there is none. Else std::filesystem::absolute() throws.
std::string relative_to_nothing(const DaemonSettings& settings);
std::filesystem::path data_directory_of(const DaemonSettings& settings);  // absolute
std::filesystem::path runs_directory_of(const DaemonSettings& settings,
                                        const std::filesystem::path& data);  // absolute

// conflict: the data directory is a copy, and the settings do not say what to do with it; or the
// runs directory is another lockstepd's.
Status settle_copy(Database& database, const DataDirectory& data, const DaemonSettings& settings,
                   UnixMillis now);

// settings.command; the exit code: 0, 1 if it could not be done or the backup is damaged, 2 for bad
// settings, 130 when it was interrupted. Tells on standard output, errors on standard error.
int run_command(const DaemonSettings& settings);

}  // namespace lockstep
