// Whole small files: read with a cap, replace atomically. Blocking; not for the control thread's
// hot path.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

// The file's bytes; exhausted if it is larger than `cap` bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t cap);
// Files below `folder` are other users', and closed to this one: whoever may opens them for the two
// below and for whoever asks open_foreign(). Once, before there is a second thread.
using OpenForeign = std::function<Result<UniqueFd>(const std::filesystem::path&)>;
void set_foreign_folder(std::filesystem::path folder, OpenForeign open);
bool is_foreign(const std::filesystem::path& path);
Result<UniqueFd> open_foreign(const std::filesystem::path& path);
// The same of a file in a folder that somebody else may write to: a link is not followed, and what
// is no regular file is denied without waiting for it.
Result<std::string> read_plain_file(const std::filesystem::path& path, std::size_t cap);
// Its last bytes, at most so many.
Result<std::string> read_plain_tail(const std::filesystem::path& path, std::size_t bytes);
// Writes a temporary file beside `path`, fsyncs it, renames it over `path` and fsyncs the folder:
// readers see the old or the new content, also after a power cut. `mode` as in chmod(2).
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes,
                         unsigned mode = 0644);
// The same without fsync, for what can be made again: after a power cut the old content, or none.
Status replace_file(const std::filesystem::path& path, std::string_view bytes,
                    unsigned mode = 0644);
// mkdir -p with mode 0700 for what it creates.
Status make_private_directories(const std::filesystem::path& path);

// errno_error() of what was done to a file or folder: `what path: strerror`. If that is because of
// its file system (no room, a quota, read-only), which one it is: `(file system /scratch, nfs4)`.
Error file_error(std::string_view what, const std::filesystem::path& path, int error_number);

}  // namespace lockstep
