// The connect-back test: whether the nodes of a job reach each other, address by address, before
// anything that would hang relies on it. Each agent listens on a port of its own on every interface
// and tries those of the peers that the daemon names.
//
//   → lockstep-probe <16 hexadecimal characters>\n
//   ← lockstep-peer <sha256 of the attempt's ticket, those characters and the node's slot>\n
//
// The answer proves that it is that node of this attempt: on every machine of a cluster docker0 has
// the same address, and who connects to it finds himself. Agent thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/task_group.hpp"
#include "job/model/preflight/preflight.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class PeerProbe {
  public:
    struct Timing {
        std::chrono::milliseconds patience{2'000};  // for one peer's first address
        // Once every first address has answered, the others have had so long.
        std::chrono::milliseconds grace{500};
    };
    using Done = std::function<void(std::vector<ProbeResult>)>;

    PeerProbe(TaskGroup& tasks, std::int32_t slot, std::string secret, Timing timing);
    PeerProbe(TaskGroup& tasks, std::int32_t slot, std::string secret)
        : PeerProbe(tasks, slot, std::move(secret), Timing{}) {}
    ~PeerProbe() { stop(); }
    PeerProbe(const PeerProbe&) = delete;
    PeerProbe& operator=(const PeerProbe&) = delete;

    // Listens on every address of the family of `address`; the port, 0 = it cannot. Again: the
    // same.
    std::int32_t listen(const std::string& address);
    // Tries every address of every peer at once; calls `done` once, unless stopped before.
    void probe(std::vector<ProbePeer> peers, Done done);
    // Ends what is under way and listens no more.
    void stop();

  private:
    struct Round;
    struct Shared;  // with the coroutines, which may end after this object
    std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
