// Where an agent's Unix sockets lie (report_socket.hpp, task_gate.hpp). Agent thread only.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A private folder with a short path (a socket address holds 107 bytes):
// <base>/lockstep-<uid>/<id>, where base is XDG_RUNTIME_DIR or /tmp. /tmp is everybody's: where
// that name is taken by what is not a private folder of this user, <base>/lockstep-<uid>-<random>
// instead, made for this agent. Removed with what is in it when the object goes; what agents that
// were killed left behind is removed by the next create() that comes by.
class SocketDirectory {
  public:
    // unavailable: no base has room for a folder; says why not.
    static Result<SocketDirectory> create();
    // In one of these, the first that can be had; for tests.
    static Result<SocketDirectory> create(const std::vector<std::string>& bases);
    SocketDirectory(SocketDirectory&& other) noexcept
        : path_(std::move(other.path_)), lock_(std::move(other.lock_)) {
        other.path_.clear();
    }
    SocketDirectory& operator=(SocketDirectory&&) = delete;
    SocketDirectory(const SocketDirectory&) = delete;
    SocketDirectory& operator=(const SocketDirectory&) = delete;
    ~SocketDirectory();

    // "<directory>/r00003.sock" for local rank 3.
    std::string socket_path(std::int32_t local_rank) const;
    // The folder itself: this user's alone, gone with the agent.
    const std::string& path() const { return path_; }
    // Where srun's tasks come in (task_gate.hpp).
    std::string task_path() const { return path_ + "/tasks.sock"; }

  private:
    SocketDirectory(std::string path, UniqueFd lock)
        : path_(std::move(path)), lock_(std::move(lock)) {}
    std::string path_;
    UniqueFd lock_;  // of the folder itself, for as long as it is in use
};

}  // namespace lockstep
