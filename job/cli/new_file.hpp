// A file that is there whole or not at all: written under another name, given its own at the end.
// Owns its descriptor; a file that was not finished is removed. Blocks; one thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::cli {

// Every error is internal: the caller's own disk, nothing the daemon said.
Error write_error(const std::string& what, int error_number);

class NewFile {
  public:
    // A new file of this name; one that is there already is an error.
    static Result<NewFile> create(std::filesystem::path path);
    // Writes into what is there: a device, a pipe. Nothing is removed.
    static Result<NewFile> open_existing(std::filesystem::path path);

    NewFile(NewFile&&) noexcept = default;
    NewFile& operator=(NewFile&&) = delete;
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    ~NewFile();

    Status write(std::string_view bytes);
    // Everything is with the operating system, which had no complaint; the file stays.
    Status finish();
    // finish(), and under this name instead.
    Status finish_as(const std::filesystem::path& path);

  private:
    NewFile(UniqueFd fd, std::filesystem::path path, bool temporary)
        : fd_(std::move(fd)), path_(std::move(path)), temporary_(temporary) {}
    Status flush();

    UniqueFd fd_;
    std::filesystem::path path_;
    std::string buffer_;
    bool temporary_ = true;
};

}  // namespace lockstep::cli
