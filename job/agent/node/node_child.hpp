// One rank of a launcher: its process and what is read of it. Part of node_children*.cpp.
#pragma once

#include "job/agent/node/node_children.hpp"
#include "job/agent/ranks/rank_log.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

struct NodeChildren::Child {
    explicit Child(net::io_context& io) : process(io), output(io) {}

    // A file that the launcher has opened for what this rank prints.
    struct File {
        UniqueFd fd;
        std::uint64_t inode = 0;
        std::int64_t offset = 0;
        std::optional<OutputReader> reader;
    };

    std::int32_t local = -1;  // -1: none of this node's ranks
    std::int64_t pid = 0;
    UnixMillis adopted_at = 0;
    net::posix::stream_descriptor process;  // the pidfd
    net::posix::stream_descriptor output;   // its own pipe
    std::optional<RankLog> log;             // without: what it prints is in the node's log
    std::optional<OutputReader> reader;
    std::vector<File> files;
    bool ended = false;
    bool stopped = false;  // when it ended it had been told to, or its peer had failed
    std::optional<ProcessEnd> end;
    bool oom = false;
    UnixMillis ended_at = 0;
};

inline double NodeChildren::now_seconds() {
    return static_cast<double>(SystemClock{}.wall()) / 1000.0;
}

}  // namespace lockstep
