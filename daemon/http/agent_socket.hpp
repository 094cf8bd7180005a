// The server's end of WS /v1/agent: one connection, its bounded outgoing queue, and the
// AgentSession of control behind it. Control thread; kept alive by its coroutine, by the write in
// flight and by whoever holds it as a peer; the server outlives the coroutine.
#pragma once

#include "daemon/control/agent_gate.hpp"
#include "daemon/http/server.hpp"
#include "job/async/net_stream.hpp"

#include <memory>
#include <string>

namespace lockstep {

class AgentSocket final : public AgentPeer, public std::enable_shared_from_this<AgentSocket> {
  public:
    explicit AgentSocket(HttpServer& server);
    ~AgentSocket() override;

    void send(WsMessage message) override;
    void send_shared(std::shared_ptr<const std::string> text) override;
    void close(std::string reason) override;
    // At once, without a closing handshake.
    void abort();

    // Upgrades (`received` begins with the request) and serves until the connection ends; then
    // session->on_closed(), once.
    Task<void> run(std::shared_ptr<AgentSocket> self, NetStream socket, std::string received,
                   std::shared_ptr<AgentSession> session);

  private:
    struct Impl;
    void queue(bool binary, std::shared_ptr<const std::string> bytes);
    void write_next();
    Task<void> read_all(AgentSession& session);

    HttpServer& server_;
    std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
