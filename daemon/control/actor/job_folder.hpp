// A job's folder in the runs directory as a whole: what it takes, and its removal. Blocking: the
// file system may hang, so none of it is for the control thread. Any thread, a DiskCount one at a
// time.
#pragma once

#include "job/base/result.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// What a job takes on disk, in bytes as the file system counts them (st_blocks).
struct DiskUse {
    std::int64_t logs = 0;
    std::int64_t evidence = 0;
    std::int64_t checkpoints = 0;  // below the runs directory; a job's own folder is not looked at
    std::int64_t other = 0;
    std::int64_t files = 0;
    bool partly = false;  // there was more than was counted
    bool failed = false;  // the file system could not give all of it
};

// Counts it folder by folder. Links are counted, not followed; what cannot be read is left out.
// What goes meanwhile is no failure, and keeps nothing else from being counted. One thread at a
// time.
class DiskCount {
  public:
    explicit DiskCount(std::filesystem::path job_directory);

    // One of the folders that are left, without those in it. False: there is none, or more than is
    // to be counted: `most` files in all, or what takes longer than `until`.
    bool next(std::int64_t most, std::chrono::steady_clock::time_point until);
    // So far.
    const DiskUse& use() const { return use_; }

  private:
    std::filesystem::path job_directory_;
    // Not a recursive_directory_iterator: a folder that goes meanwhile ends all of it.
    std::vector<std::filesystem::path> folders_;
    DiskUse use_{};
};

// All of it, up to `most` files and until then.
DiskUse disk_use(const std::filesystem::path& job_directory, std::int64_t most,
                 std::chrono::steady_clock::time_point until);

// The folder directly below `parent` that `path` is in, by their names alone; "" = in none.
std::string folder_below(const std::filesystem::path& path, const std::filesystem::path& parent);

// Removes a job's folder, or all of it but its checkpoints; nothing there is no error. Links are
// removed, not followed: whoever ran the job could write there. What may not be removed (a folder
// that the job's user has closed) does not keep the rest. Half done it can be done again.
Status remove_job_files(const std::filesystem::path& job_directory, bool with_checkpoints);

// The same of the folder in the runs directory of now, of which `problem` says what is wrong with
// it ("" = nothing), and of the one that the job had in an earlier one (`before`, "" = none).
// unavailable: also if there is a problem and the folder is not to be seen.
Status remove_job_files(const std::filesystem::path& job_directory, const std::string& problem,
                        const std::filesystem::path& before, bool with_checkpoints);

// Removes a folder from one moment to the next, and then its files; none is no error.
Status remove_folder(const std::filesystem::path& folder);

}  // namespace lockstep
