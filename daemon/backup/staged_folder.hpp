// A folder that appears whole or not at all: filled under another name beside it, synced, renamed.
// What a kill leaves is named `.<name>.partial` and is cleared away by the next try. Blocking.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <filesystem>

namespace lockstep {

class StagedFolder {
  public:
    // `target`: an empty folder or nothing may be there; conflict otherwise, and when another
    // process is at it.
    static Result<StagedFolder> begin(const std::filesystem::path& target);
    StagedFolder(StagedFolder&& other) noexcept = default;
    StagedFolder& operator=(StagedFolder&&) = delete;
    // Without finish() nothing is left.
    ~StagedFolder();

    // Where to put what it is to hold; 0700.
    const std::filesystem::path& path() const { return partial_; }
    // All of it is on disk, under its own name, when this returns.
    Status finish();

  private:
    StagedFolder(std::filesystem::path target, std::filesystem::path partial, UniqueFd lock)
        : target_(std::move(target)), partial_(std::move(partial)), lock_(std::move(lock)) {}
    std::filesystem::path target_;
    std::filesystem::path partial_;
    UniqueFd lock_;  // of the folder itself
};

}  // namespace lockstep
