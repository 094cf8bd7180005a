// The server's end of WS /v1/agent: one connection, its bounded outgoing queue, and the
// AgentSession of control behind it. Frames are ws_frames.hpp's: of the thousands that come in
// every second none waits for a timer or a buffer of its own. Control thread; kept alive by its
// coroutine, by the write in flight and by the holders of it as a peer; the server outlives the
// coroutine.
#pragma once

#include "daemon/control/base/agent_gate.hpp"
#include "daemon/http/base/ws_frames.hpp"
#include "daemon/http/server/server.hpp"
#include "job/async/net_stream.hpp"

#include <array>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
    // From time to time: asks who is quiet, ends who stays so, or does not answer CLOSE.
    void look(std::chrono::steady_clock::time_point now);

    // Answers the upgrade with `key` (Sec-WebSocket-Key) and serves until the connection ends; then
    // session->on_closed(), once. `received`: what came behind the request.
    Task<void> run(std::shared_ptr<AgentSocket> self, NetStream socket, std::string key,
                   std::string received, std::shared_ptr<AgentSession> session);

  private:
    struct Queued {
        ws::Head head{};  // empty: what it goes with is no frame
        std::shared_ptr<const std::string> bytes;
        // Of memory, about: an empty PONG is not for nothing.
        std::size_t cost() const { return sizeof(Queued) + 64 + head.size + bytes->size(); }
    };
    static constexpr std::size_t kTogether = 4;  // messages in one write
    using Pieces = std::array<net::const_buffer, 2 * kTogether>;

    void queue(ws::Opcode opcode, std::shared_ptr<const std::string> bytes);
    void add(ws::Head head, std::shared_ptr<const std::string> bytes);
    void say_close(std::uint16_t code, std::string_view reason);
    Pieces pieces() const;
    void written(std::size_t bytes);
    void write_next();
    Task<void> read_all(AgentSession& session, std::string received);
    // Every whole frame of what came; false: the connection is over.
    bool take(std::span<char> bytes, AgentSession& session);
    // Large messages are read once the agent has said who it is.
    void look_who(const AgentSession& session);

    HttpServer& server_;
    std::optional<NetStream> stream_;
    ws::FrameReader frames_;
    std::list<Queued> queue_;       // mostly empty, and takes no room then
    std::size_t sent_ = 0;          // bytes of the front that have gone
    std::size_t queued_bytes_ = 0;  // the sum of their cost()
    std::string reason_;
    std::chrono::steady_clock::time_point quiet_since_;
    std::chrono::steady_clock::time_point asked_at_;
    bool open_ = false;     // upgraded, not yet ended
    bool writing_ = false;  // a write is in flight
    bool closing_ = false;  // close() was called
    bool close_sent_ = false;
    bool ended_ = false;
    bool heard_ = true;   // since the last look
    bool asked_ = false;  // PING was sent since it was heard
    bool introduced_ = false;
    bool late_ = false;  // not introduced in time, at the last look
    std::chrono::steady_clock::time_point began_;
};

}  // namespace lockstep
