// The agent's end of WS /v1/agent. One reader and one writer coroutine on the io_context's thread;
// Beast stays in the .cpp. The object must outlive the coroutines that wait on it.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/http_client.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace lockstep {

struct WsMessage {
    bool binary = false;
    std::string bytes;
};

class WsClient {
  public:
    explicit WsClient(net::io_context& io);
    ~WsClient();
    WsClient(const WsClient&) = delete;
    WsClient& operator=(const WsClient&) = delete;

    // Connects and upgrades with `Authorization: Bearer <ticket>`. denied: 401 or 403 (the ticket
    // is not good, or another agent has this node) or another certificate; unavailable: anything
    // that may pass.
    Task<Status> connect(Endpoint endpoint, std::string target, std::string bearer,
                         std::chrono::milliseconds deadline);
    // The next message, at most limits::kAgentFrameBytes. unavailable: closed or broken.
    Task<Result<WsMessage>> read();
    // Sends one message; one at a time (the caller keeps the queue). The bytes are owned by the
    // call.
    Task<Status> write(WsMessage message);
    // The local address of the connection: what routes to the daemon; "" when not connected.
    std::string local_address() const;
    // Ends the connection; pending read() and write() return unavailable. Idempotent, never blocks.
    void close();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
