// The HTTP listeners and everything they accepted. One object per daemon; control thread only; must
// outlive the io_context's last run. Stop with stop(), which waits for what is in flight.
#pragma once

#include "daemon/control/base/agent_gate.hpp"
#include "daemon/http/auth/admission.hpp"
#include "daemon/http/auth/audit_log.hpp"
#include "daemon/http/auth/auth.hpp"
#include "daemon/http/base/router.hpp"
#include "daemon/http/http_limits.hpp"
#include "daemon/http/server/handshakes.hpp"
#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "job/async/asio.hpp"
#include "job/async/on_thread.hpp"
#include "job/async/task_group.hpp"
#include "job/async/unix_socket.hpp"
#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <array>
#include <chrono>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Session;
class AgentSocket;
struct TlsContext;

// Caps and patience; limits.hpp unless a test shortens them.
struct HttpLimits {
    std::size_t connections = limits::kConnections;
    std::size_t agent_connections = limits::kAgentConnections;
    std::size_t metrics_connections = limits::kMetricsConnections;
    std::size_t strangers = limits::kStrangers;                       // of one address
    std::size_t address_connections = limits::kConnectionsOfAddress;  // people's, beyond loopback
    std::size_t reserved_connections = limits::kConnectionsForUs;     // people's
    std::size_t user_connections = limits::kConnectionsOfUser;        // people's
    std::size_t unix_connections = limits::kUnixConnections;
    std::chrono::milliseconds stranger_patience = limits::kStrangerPatience;
    // Answered on one connection; then the client has to connect anew, as behind nginx, so that no
    // place is one's for ever.
    std::size_t requests = 10'000;
    std::size_t handshakes = limits::kHandshakes;
    std::size_t address_handshakes = limits::kHandshakesOfAddress;
    std::size_t bodies = limits::kBodiesInTransit;  // bytes
    std::size_t streams = limits::kStreams;
    std::size_t user_streams = limits::kStreamsOfUser;
    std::size_t admin_streams = limits::kStreamsOfAdmins;
    std::chrono::milliseconds header_timeout = limits::kHeaderTimeout;
    std::chrono::milliseconds body_timeout = limits::kBodyTimeout;
    std::chrono::milliseconds write_timeout = limits::kWriteTimeout;
    std::chrono::milliseconds idle_timeout = limits::kIdleTimeout;
    // After a refused request its rest is read and dropped for this long, so that the answer is
    // not lost to a reset.
    std::chrono::milliseconds linger_timeout{2000};
    // One timer for all deadlines: how late one, or the end of a stream's token, may be noticed.
    std::chrono::milliseconds sweep{500};
    // Agents beat once a second; half of this without a byte brings a PING, all of it the end.
    // Control calls an agent silent long before (limits::kAgentSilence); this only frees the
    // descriptor.
    std::chrono::milliseconds agent_silence{20'000};
    // How long an agent may take to say HELLO.
    std::chrono::milliseconds hello_timeout = limits::kHelloPatience;
    // How long CLOSE may go unanswered.
    std::chrono::milliseconds agent_close_timeout{5'000};
};

// What a listener serves.
enum class Surface : std::uint8_t {
    all,
    agents,   // only routes of scope agent (--agent-listen)
    metrics,  // only /metrics and the open routes (--metrics-listen)
};

struct HttpSettings {
    std::vector<std::string> allowed_hosts{};  // names besides localhost and the addresses
    bool metrics_open = false;  // routes with without_token need no token from this machine
    // Of the web page's sessions, by the hash of the cookie; without one no cookie counts.
    Authenticator by_cookie{};
    // Why the token or, if so, the cookie with this hash counts no more; "" = it never did. Only
    // who has had the secret is told.
    std::function<std::string(const std::string& sha256, bool cookie)> why_refused{};
    // For the audit log: whose that token was, or that session's; and the user whose token has this
    // id, also if it has ended. Empty: there is no such token.
    std::function<AuditOwner(const std::string& sha256, bool cookie)> whose{};
    std::function<std::string(const std::string& id)> token_user{};
    AuditLog* audit = nullptr;  // outlives the server; nullptr = changes are written nowhere
    HttpLimits limits{};
};

// What is open now and what was turned away; requests are counted in DaemonMetrics.
struct HttpCounters {
    std::size_t connections = 0;
    std::size_t agents = 0;
    std::size_t streams = 0;
    std::uint64_t refused = 0;    // connections over the cap
    std::uint64_t timed_out = 0;  // connections closed by the sweep
};

class HttpServer {
  public:
    // The router is complete before. `gate` may be null: then no agent gets in.
    HttpServer(net::io_context& io, const Router& router, Authenticator authenticate,
               AgentGate* gate, telemetry::DaemonMetrics& metrics, HttpSettings settings);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    // Binds and accepts from now on; port 0 takes a free one. With `tls` every connection has to
    // begin with its handshake. The bound endpoint, or unavailable.
    Result<tcp::endpoint> listen(const std::string& address, std::uint16_t port, Surface surface,
                                 std::shared_ptr<TlsContext> tls = nullptr);
    // Connections from now on begin with this certificate wherever they begin with one; those that
    // there are keep theirs.
    void show(const std::shared_ptr<TlsContext>& tls);
    // As listen(), on a Unix socket, for programs of this user on this machine: people's routes and
    // agents'. `path` is replaced.
    Status listen_unix(const std::filesystem::path& path);
    // Stops accepting, ends streams and idle connections, lets requests in flight finish for at
    // most `patience`, closes what is left and waits for it.
    Task<void> stop(std::chrono::milliseconds patience);

    const HttpCounters& counters() const { return counters_; }

    // --- for sessions ---
    const Router& router() const { return router_; }
    const HttpSettings& settings() const { return settings_; }
    const HttpLimits& limits() const { return settings_.limits; }
    AgentGate* gate() const { return gate_; }
    const Authenticator& authenticator() const { return authenticate_; }
    TaskGroup& tasks() { return tasks_; }
    bool stopping() const { return stopping_; }
    HttpCounters& counters() { return counters_; }
    telemetry::DaemonMetrics& metrics() { return metrics_; }
    // By the route's place in router(); npos for a request that found none.
    void count(std::size_t route, int status, std::chrono::steady_clock::duration took);
    const std::string& date() const { return date_; }  // for the Date header, at most 1 s old
    using Sessions = std::list<Session*>;
    Sessions::iterator enter(Session& session);
    void leave(Sessions::iterator at);
    using Agents = std::list<AgentSocket*>;
    Agents::iterator enter(AgentSocket& agent);
    void leave(Agents::iterator at);
    // Where what an agent has sent is read to, one after the other.
    std::span<char> agent_room() { return agent_room_; }
    // Shared buffer for bytes that are read only to be discarded.
    std::span<char> waste_room() { return waste_room_; }
    // The Unix socket has its own: whatever comes by TCP, this user's programs get in.
    ConnectionAdmission& admission(Surface surface, const tcp::socket& socket);
    Handshakes& handshakes() { return handshakes_; }
    // For bodies that take long to compress.
    net::thread_pool& packers() { return packers_; }
    // Room for so many more bytes of bodies; false: there is none.
    bool charge_bodies(std::size_t bytes);
    // One more stream of the caller's; 0, or the status that says of what there are too many. Each
    // that began ends once.
    int begin_stream(const Principal& who);
    void end_stream(const Principal& who);
    void release_bodies(std::size_t bytes) { body_bytes_ -= bytes; }
    std::size_t body_bytes() const { return body_bytes_; }

  private:
    struct Listener {
        explicit Listener(net::io_context& io) : acceptor(io), retry(io) {}
        tcp::acceptor acceptor;
        net::steady_timer retry;
        Surface surface = Surface::all;
        std::shared_ptr<TlsContext> tls{};  // null: plain HTTP
    };
    struct UnixListener {
        net::local::stream_protocol::acceptor acceptor;
        net::steady_timer retry;
    };
    Task<void> accept(Listener& listener);
    Task<void> accept_unix(UnixListener& listener);
    void begin_sweep();
    void admit(tcp::socket socket, const tcp::endpoint& peer, Surface surface,
               const std::shared_ptr<TlsContext>& tls);
    Task<void> sweep();
    void update_date();

    net::io_context& io_;
    const Router& router_;
    Authenticator authenticate_;
    AgentGate* gate_;
    HttpSettings settings_;
    telemetry::DaemonMetrics& metrics_;
    std::vector<telemetry::RouteMetrics*> by_route_;  // one more than routes: those without
    HttpCounters counters_;
    std::list<Listener> listeners_;
    std::list<UnixListener> unix_listeners_;
    Sessions sessions_;
    Agents agents_;
    std::vector<char> agent_room_;
    std::vector<char> waste_room_;
    std::array<ConnectionAdmission, 4> admissions_;  // by Surface; the Unix socket's
    Handshakes handshakes_;
    net::thread_pool packers_{1};
    std::size_t body_bytes_ = 0;                  // of requests, in memory
    std::map<std::string, std::size_t> streams_;  // by user; none is 0
    unsigned sweeps_ = 0;
    net::steady_timer sweep_timer_;
    net::steady_timer stop_timer_;
    bool sweeping_ = false;
    bool stopping_ = false;
    std::string date_;
    TaskGroup tasks_;
};

}  // namespace lockstep
