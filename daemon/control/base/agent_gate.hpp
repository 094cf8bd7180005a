// How an agent's connection meets the control: the HTTP edge accepts the WebSocket and calls these
// interfaces; control implements AgentGate and AgentSession and knows nothing of sockets.
// Everything happens on the control thread.
#pragma once

#include "job/async/ws_client.hpp"
#include "job/base/result.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// The connection as control sees it. Both calls return at once and may be made from inside the
// AgentSession's own callbacks.
class AgentPeer {
  public:
    virtual ~AgentPeer() = default;
    // Queues one message; order is kept. A peer that leaves more than limits::kAgentQueueBytes
    // unread is closed. After the connection has ended messages are dropped.
    virtual void send(WsMessage message) = 0;
    // The same, of a text that many agents get: none of them has a copy of its own.
    virtual void send_shared(std::shared_ptr<const std::string> text) {
        send(WsMessage{false, *text});
    }
    // Sends what is queued, then closes with the reason (cut to 123 bytes: RFC 6455 §5.5).
    // Idempotent.
    virtual void close(std::string reason) = 0;
};

// One connected agent. The HTTP edge holds it until the connection has ended.
class AgentSession {
  public:
    virtual ~AgentSession() = default;
    // A complete message of at most limits::kAgentFrameBytes; the bytes are only good for the call.
    virtual void on_text(std::string_view bytes) = 0;
    virtual void on_binary(std::string_view bytes) = 0;
    // Whether the agent has said who it is. Until then its messages are small
    // (limits::kHelloBytes), and it is not waited for long.
    virtual bool introduced() const { return true; }
    // Exactly once, the last call; also when the upgrade itself fails.
    virtual void on_closed() = 0;
};

class AgentGate {
  public:
    virtual ~AgentGate() = default;
    // Called before the upgrade. denied or not_found → 401, conflict → 403 (a good ticket, but the
    // agent is not wanted), anything else → 503. What is sent to `peer` here follows the upgrade.
    virtual Result<std::shared_ptr<AgentSession>> open(const std::string& ticket_sha256,
                                                       std::shared_ptr<AgentPeer> peer,
                                                       std::string remote) = 0;
};

}  // namespace lockstep
