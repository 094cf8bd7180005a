// Which rank a process of a launcher (launch node) is: by what the launcher has told it, and by the
// marks that launchers put before what it prints. Pure, but for what reads /proc; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// As its launcher, or its framework, numbers it; -1: that was not said.
struct RankIdentity {
    std::int32_t rank = -1;        // among all
    std::int32_t local_rank = -1;  // on its node
    std::int32_t world_size = -1;
    bool known() const { return rank >= 0 || local_rank >= 0; }
    bool operator==(const RankIdentity&) const = default;
};

// From an environment as proc(5) shows it: NAME=value, each ended by a zero byte. Knows torchrun
// (and what is made on it), Paddle, Open MPI, PMIx, PMI, MVAPICH, Horovod and JAX, in this order.
RankIdentity identity_in_environment(std::string_view environment);
// Of a process with what it was started with: what it has set itself since is not there.
RankIdentity identity_of_process(std::int64_t pid);

// The local rank of this node that is meant; nothing: none of the `count` ranks from `first` on.
// Launchers that number the nodes in an order of their own are right about the local rank.
std::optional<std::int32_t> local_rank_of(const RankIdentity& identity, std::int32_t first,
                                          std::int32_t count);

// A line that a launcher has marked with whose it is, and what that one has printed:
//   [default0]:text       torchrun --tee, accelerate: the role's name and the local rank
//   [1,3]<stdout>:text    mpirun --tag-output: the rank
//   [3]<stdout>:text      horovodrun: the rank
struct MarkedLine {
    RankIdentity identity;
    std::string_view text;
};
std::optional<MarkedLine> marked_line(std::string_view line);

// The ids of the processes that `pid` has started and that live; of all of its threads.
std::vector<std::int64_t> children_of(std::int64_t pid);
// The process that has started it; 0: it is gone, or nobody knows.
std::int64_t parent_of(std::int64_t pid);

// How a process has ended, from its pidfd; nothing: it lives, or the kernel (below 6.15, when
// somebody else was quicker to reap it) does not tell any more.
struct ProcessEnd {
    std::int32_t exit_code = -1;  // -1: a signal ended it
    std::int32_t signal = 0;
};
std::optional<ProcessEnd> end_of_process(std::int64_t pid, int pidfd);

}  // namespace lockstep
