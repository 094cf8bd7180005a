// The once-guard of a node: <attempt directory>/node-00000.claim (wire.hpp). Held for the life of
// the agent; agent thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/wire/wire.hpp"

#include <cstdint>
#include <filesystem>

namespace lockstep {

class Claim {
  public:
    // conflict: this node was claimed before, whether or not that agent still lives. The lock is
    // taken before the file has its name, so nobody ever sees a claim of a living agent unlocked.
    // `again`: by its keeper (keeper.hpp), in place of one that is dead; conflict if it lives.
    static Result<Claim> take(const std::filesystem::path& attempt_directory,
                              std::int32_t node_rank, const wire::ClaimFile& content,
                              bool again = false);

  private:
    explicit Claim(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
};

}  // namespace lockstep
