// The data directory: made private, locked by one daemon, home of the first token and of the file
// that names the API's address. Blocking; start-up only.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

class Database;

class DataDirectory {
  public:
    // conflict: another lockstepd has it; denied: it is another user's, or others may write to it
    // or put another folder in its place. The lock is held for the object's life; it is the
    // process's, so one object per directory and process.
    // `as_it_is`: that is only said.
    static Result<DataDirectory> open(const std::filesystem::path& path, bool as_it_is = false);

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path database() const { return path_ / "lockstep.db"; }
    // For programs of the same user on the same machine.
    std::filesystem::path socket() const { return path_ / "lockstepd.sock"; }

    // The first token, in <data-dir>/token (0600): kept if the file's token is known to the
    // database and not revoked, made anew otherwise. Belongs to `user`, role admin, never expires.
    Status ensure_token(Database& database, const std::string& user, UnixMillis now);
    // Writes <data-dir>/url: where the API listens, for the command line and for scripts.
    Status write_url(const std::string& url);
    void forget_url() const;

  private:
    DataDirectory(std::filesystem::path path, UniqueFd lock)
        : path_(std::move(path)), lock_(std::move(lock)) {}
    std::filesystem::path path_;
    UniqueFd lock_;
};

// $XDG_DATA_HOME/lockstep, else ~/.local/share/lockstep.
std::filesystem::path default_data_directory();
// The name of the user this process runs as.
std::string user_name();

}  // namespace lockstep
