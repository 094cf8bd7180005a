// Copies of files that others may write to meanwhile: the runs of jobs, whose users may put links
// and pipes among them. Links are copied, never followed; a file is copied as long as it was when
// it was opened, and hashed on the way; its holes stay holes. Blocking; any thread.
#pragma once

#include "daemon/backup/manifest.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <filesystem>
#include <functional>
#include <string>

namespace lockstep {

using StopAsked = std::function<bool()>;

// Why a file is not to be copied ("checkpoint"), by its path below the folder; "" = it is.
using LeaveOut = std::function<std::string(const std::string& path)>;

// Copies what is in `from` into `to`, which is made (0700), and tells `done` of each file: its path
// below `from` with `prefix` in front. What is gone when its turn comes is left out without a word,
// what cannot be read with the reason. exhausted: the disk is full; cancelled: `stop` said so.
Status copy_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& prefix, const LeaveOut& leave_out, const StopAsked& stop,
                   const std::function<Status(FileEntry)>& done);

// One plain file, the same way; not_found if it is not there.
Result<FileEntry> copy_plain_file(const std::filesystem::path& from,
                                  const std::filesystem::path& to, const StopAsked& stop);

// SHA-256 of a plain file and its length.
Result<FileEntry> hash_file(const std::filesystem::path& file, const StopAsked& stop);

}  // namespace lockstep
