// The meeting point of the NCCL double's ranks: a listening socket and a thread in the process that
// made the id. Ranks connect, say who they are, and send their operations one after another; when
// those of all ranks (or of the two ends of a message) have come, each gets its result. Not NCCL:
// a star over loopback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nccl_double {

enum class Kind : std::int32_t {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    send,
    recv
};

struct Hello {
    char nonce[32] = {};  // of the id
    char group[64] = {};  // "" = the first communicator, else a shrunk one
    std::int32_t rank = 0;
    std::int32_t ranks = 0;
    std::int32_t ids = 0;
    std::int32_t root = -1;  // only to meet the ranks of this id, the root-th of several
};
// Where the ranks of a root begin, as NCCL gives them out (src/bootstrap.cc, firstRankFromRoot).
constexpr std::int32_t first_rank(std::int32_t root, std::int32_t ranks, std::int32_t roots) {
    return root * (ranks / roots) + (root < ranks % roots ? root : ranks % roots);
}
struct Header {
    Kind kind = Kind::all_reduce;
    std::int32_t type = 0;  // lockstep::Dtype
    std::int32_t op = 0;    // lockstep::ReduceOp
    std::int32_t peer = 0;  // root, or the other end
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  // of the payload behind it
};
// What comes back: the header with `bytes`, then the result. kLost instead of a kind: a rank left.
inline constexpr std::int32_t kReady = 100;
inline constexpr std::int32_t kLost = 101;

bool read_exactly(int fd, void* data, std::size_t size);
bool write_exactly(int fd, const void* data, std::size_t size);

// To a hub of this machine.
bool connect_to(int fd, std::uint16_t port);
// Until all ranks of the id that `hello` names are there. False: it leads nowhere, or `stopped`.
bool meet_at_root(std::uint16_t port, const Hello& hello, const std::function<bool()>& stopped);

// Starts the hub of an id; it serves until the process ends.
std::uint16_t start_hub(const std::string& nonce);

}  // namespace nccl_double
