// The secrets of lockstepd's users, by name: what their jobs get as variables and nobody reads
// again. Each is a file of its own with mode 0600, <folder>/<user>/<NAME>, whose bytes are the
// value and whose time is when it was set; none is in the database, so no event, backup of it or
// answer has one. All are in memory, too, within limits::kSecret…: an agent that calls in must not
// wait for a disk. Control thread; files are written by a thread of its own, which finishes before
// the object goes.
#pragma once

#include "job/async/on_thread.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class SecretStore {
  public:
    struct About {
        std::string name;
        UnixMillis set_at = 0;
    };
    using Values = std::map<std::string, std::string>;

    // `folder` is made with the first secret.
    explicit SecretStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
    SecretStore(const SecretStore&) = delete;
    SecretStore& operator=(const SecretStore&) = delete;

    // What an earlier daemon kept; what does not read is left out, aloud. Blocking, at start.
    void load();

    // Durable when it returns; in the place of one of the same name. conflict: the user, or all
    // users together, have as many as they may; exhausted: the disk. Name and value have passed
    // check_secret_name() and check_secret_value().
    Task<Result<About>> put(std::string user, std::string name, std::string value);
    // The file is gone when it returns. not_found: there is none.
    Task<Status> remove(std::string user, std::string name);

    // The user's, by name.
    std::vector<About> list(const std::string& user) const;
    // Those of `names` that the user does not have.
    std::vector<std::string> missing(const std::string& user,
                                     const std::vector<std::string>& names) const;
    // Those of `names` that the user has.
    Values values(const std::string& user, const std::vector<std::string>& names) const;

  private:
    struct Kept {
        std::string value;
        UnixMillis set_at = 0;
    };
    using OfUser = std::map<std::string, Kept>;
    // What is being written counts as if it were there.
    struct Written {
        std::size_t secrets = 0;
        std::size_t bytes = 0;
    };
    const Kept* find(const std::string& user, const std::string& name) const;
    Status room_for(const std::string& user, const std::string& name, std::size_t bytes) const;
    void keep(const std::string& user, const std::string& name, Kept kept);
    void drop(const std::string& user, const std::string& name);
    void load_user(const std::filesystem::path& folder);

    std::filesystem::path folder_;
    std::map<std::string, OfUser> users_;
    std::map<std::string, Written> writing_;  // by user
    std::size_t bytes_ = 0;                   // of all, those that are being written included
    net::thread_pool files_{1};
};

// The name of a user's folder: letters, digits, _ @ - and dots but a first one stay, other bytes
// are %XX, so that no user's is another's, nor leads elsewhere.
std::string secret_folder_name(std::string_view user);

}  // namespace lockstep
