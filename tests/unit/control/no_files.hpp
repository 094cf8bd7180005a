// Agents that leave no file behind: what they do not say themselves is not known.
#pragma once

#include "daemon/control/machine/left_behind.hpp"

namespace lockstep {

class NoFiles final : public LeftBehind {
  public:
    Result<std::optional<wire::ResultFile>> result(const Attempt&, std::int32_t) const override {
        return std::optional<wire::ResultFile>{};
    }
    std::optional<wire::GaveUpFile> gave_up(const Attempt&, std::int32_t,
                                            const std::string&) const override {
        return std::nullopt;
    }
    std::optional<MemoryEvidence> memory(const Attempt&, std::int32_t) const override {
        return std::nullopt;
    }
};

}  // namespace lockstep
