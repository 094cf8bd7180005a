// What a backup says of itself. Its folder:
//
//   manifest.json    what was backed up, when and with what; written last: without it it is none
//   files.jsonl      a line for each file of the runs and the data directory, copied or left out
//   lockstep.db      the store
//   data/, runs/     copies
//
// Plain values and their text; reading is strict: a word that is not known is corrupt.
#pragma once

#include "daemon/store/snapshot.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct FileEntry {
    std::string path{};  // below the backup's folder, bytes as they are
    std::int64_t bytes = 0;
    std::string sha256{};       // "" = a link, or left out
    std::uint32_t mode = 0;     // permission bits
    std::int64_t modified = 0;  // seconds since the Unix epoch
    std::string link{};         // target; "" = no link
    std::string left_out{};     // why it was not copied; "" = it was
    bool operator==(const FileEntry&) const = default;
};

// Which files of the runs are copied.
enum class RunsCopied : std::uint8_t { none, logs, all };
std::string_view to_string(RunsCopied runs);
std::optional<RunsCopied> parse_runs_copied(std::string_view word);

struct Manifest {
    std::string version{};  // of the lockstepd that made it
    UnixMillis made_at = 0;
    std::string host{};
    std::string data_directory{};
    std::string runs_directory{};
    RunsCopied runs = RunsCopied::logs;
    bool secrets = false;
    DatabaseFacts database{};
    std::int64_t database_bytes = 0;
    std::string database_sha256{};
    std::int64_t files = 0;  // that were copied
    std::int64_t file_bytes = 0;
    std::int64_t left_out = 0;
    std::int64_t left_out_bytes = 0;
    std::string list_sha256{};  // of files.jsonl
};

std::string encode_manifest(const Manifest& manifest);
Result<Manifest> decode_manifest(std::string_view text);

// One line without its end. The path's bytes that are no printable ASCII, and %, are written %41.
std::string encode_entry(const FileEntry& entry);
// corrupt: also for a path that is absolute or leads out of the folder.
Result<FileEntry> decode_entry(std::string_view line);

}  // namespace lockstep
