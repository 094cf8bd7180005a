// Whole small files: read with a cap, replace atomically. Blocking; not for the control thread's
// hot path.
#pragma once

#include "job/base/result.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// The file's bytes; exhausted if it is larger than `cap` bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t cap);
// Writes a temporary file beside `path`, fsyncs it, renames it over `path` and fsyncs the folder:
// readers see the old or the new content, also after a power cut. `mode` as in chmod(2).
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes,
                         unsigned mode = 0644);
// The same without fsync, for what can be made again: after a power cut the old content, or none.
Status replace_file(const std::filesystem::path& path, std::string_view bytes,
                    unsigned mode = 0644);
// mkdir -p with mode 0700 for what it creates.
Status make_private_directories(const std::filesystem::path& path);

}  // namespace lockstep
