// Two programs on two nodes, which know nothing of each other but a secret and an address, meet and
// leave each other keys: what a communicator needs while it is being made (the pre-flight's tests
// in pairs, where no rank runs and so no agent serves keys).
//
// The follower connects to the leader's port and says the token; the leader answers with it. Then
// each key that one sets is sent to the other, a frame each: 32 characters with the two sizes in
// decimal, the key, the value.
#pragma once

#include "job/base/unique_fd.hpp"
#include "job/collective/key_store.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep {

struct PeerMeeting {
    bool lead = false;
    std::string token;               // both know it, nobody else
    std::string address;             // of this node: its family is the leader's
    std::vector<std::string> peers;  // addresses of the leader, as numbers
    std::int32_t port = 0;           // of the leader, which binds it
};
// The connection of the two. timed_out: the other one did not come or was not reached before `end`;
// unavailable: the port cannot be bound. Any thread; blocks.
Result<UniqueFd> meet_peer(const PeerMeeting& meeting, std::chrono::steady_clock::time_point end);

// Keys of both ends of such a connection. Any thread.
class PeerKeyStore final : public KeyStore {
  public:
    // `shared`: several threads here set keys for each other. Then what the other end has not set
    // is waited for also when that has left.
    explicit PeerKeyStore(UniqueFd connection, bool shared = false);
    // The other end's calls return soon with unavailable.
    ~PeerKeyStore() override;

    // unavailable: the other end has left, or takes nothing for seconds.
    Status set(const std::string& key, std::string_view value) override;
    // A key that is there is returned also when the other end has left; else unavailable.
    Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override;
    // The other end has left: it sets no more keys.
    bool left();

  private:
    void receive_all();

    UniqueFd fd_;
    bool shared_ = false;
    std::mutex sending_;  // a frame is sent whole
    std::mutex mutex_;    // guards what follows
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    std::size_t received_ = 0;  // bytes
    bool gone_ = false;
    std::thread reader_;
};

}  // namespace lockstep
