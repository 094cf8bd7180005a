// What is known of a rank's failure, put together when it ends: what its Python told over its
// socket, torch's error file, what it printed. Agent thread only.
#pragma once

#include "job/agent/ranks/rank_group.hpp"
#include "job/model/failure.hpp"
#include "job/model/wire/wire.hpp"

#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep {

// What torch's @record has written into TORCHELASTIC_ERROR_FILE, as a note that ended process
// `pid`; nothing: there is none, or it is not as torch writes it. The file's time is the moment.
std::optional<ExceptionNote> read_error_file(const std::filesystem::path& path, std::int64_t pid);

// Completes the report of a rank's end. `clock_offset_ms`: this node's clock minus the daemon's.
void judge_exit(wire::Exited& exited, const RankGroup::LastWords& words,
                std::vector<ExceptionNote> notes, std::int64_t clock_offset_ms);

}  // namespace lockstep
