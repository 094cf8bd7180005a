// Why an agent leaves although nothing is settled (wire::GaveUpFile), where the daemon finds it
// whatever keeps the two from talking. Blocking; agent thread.
#pragma once

#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <filesystem>

namespace lockstep {

// Of what agents leave in the attempt's folder. The daemon may be another Unix user: then the
// folder's access control list says who reads it, and the mode's group bits bound that.
inline constexpr unsigned kPostmortemMode = 0660;

// Replaces what an agent of that node had left before; failure is only logged.
void leave_last_words(const std::filesystem::path& attempt_directory, std::int32_t node_rank,
                      const wire::GaveUpFile& words);

}  // namespace lockstep
