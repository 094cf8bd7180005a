#include "daemon/http/server/server.hpp"

#include "daemon/http/base/problem.hpp"
#include "daemon/http/server/agent_socket.hpp"
#include "daemon/http/server/session.hpp"
#include "job/async/sleep.hpp"
#include "job/base/enum_table.hpp"
#include "job/base/log.hpp"
#include "job/model/wire/wire.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

namespace lockstep {
namespace {

// All agents of the largest job may call in within one second; the kernel's somaxconn bounds it.
constexpr int kBacklog = 16'384;
// Out of descriptors: wait for sessions to end instead of spinning on the readable listener.
constexpr auto kAcceptRetry = std::chrono::milliseconds{100};

// A batch of an agent is rarely more; beats and answers of a hundred fit.
constexpr std::size_t kAgentRoom = 64U << 10U;
// Agents are looked at once in so many sweeps: there may be thousands.
constexpr unsigned kAgentSweeps = 4;
constexpr std::size_t kWasteRoom = 16U << 10U;

void refuse(tcp::socket& socket) {
    const auto answer = protocol_problem(503, "too many connections");
    const std::string text =
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
        "Retry-After: 1\r\nContent-Type: application/problem+json\r\n"
        "Content-Length: " +
        std::to_string(answer.body.size()) + "\r\n\r\n" + answer.body;
    // A fresh socket's buffer is empty, so this fits or the peer is gone already.
    ErrorCode ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(net::buffer(text), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void probe_silent_peer(tcp::socket& socket) {
    ErrorCode ignored;
    socket.set_option(net::socket_base::keep_alive(true), ignored);
    const auto set = [&socket](int option, auto value) {
        const auto number = static_cast<int>(value);
        ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &number, sizeof number);
    };
    set(TCP_KEEPIDLE, limits::kPeerSilence.count());
    set(TCP_KEEPINTVL, limits::kPeerProbeEvery.count());
    set(TCP_KEEPCNT, limits::kPeerProbes);
}

ConnectionAdmission::Caps caps_of(const HttpLimits& limits, std::size_t connections) {
    return {connections, limits.strangers, limits.stranger_patience};
}

ConnectionAdmission::Caps caps_of_people(const HttpLimits& limits) {
    ConnectionAdmission::Caps out = caps_of(limits, limits.connections);
    out.address = limits.address_connections;
    out.reserved = std::min(limits.reserved_connections, limits.connections / 2);
    out.user = limits.user_connections;
    return out;
}

}  // namespace

HttpServer::HttpServer(net::io_context& io, const Router& router, Authenticator authenticate,
                       AgentGate* gate, telemetry::DaemonMetrics& metrics, HttpSettings settings)
    : io_(io),
      router_(router),
      authenticate_(std::move(authenticate)),
      gate_(gate),
      settings_(std::move(settings)),
      metrics_(metrics),
      agent_room_(kAgentRoom),
      waste_room_(kWasteRoom),
      admissions_{
          ConnectionAdmission{caps_of_people(settings_.limits)},
          ConnectionAdmission{caps_of(settings_.limits, settings_.limits.agent_connections)},
          ConnectionAdmission{caps_of(settings_.limits, settings_.limits.metrics_connections)},
          ConnectionAdmission{caps_of(settings_.limits, settings_.limits.unix_connections)}},
      handshakes_(io,
                  Handshakes::Caps{settings_.limits.handshakes, settings_.limits.address_handshakes,
                                   limits::kHandshakeTurn}),
      sweep_timer_(io),
      stop_timer_(io),
      tasks_(io) {
    // The last is the Unix socket's.
    static_assert(is_count_of<Surface, std::tuple_size_v<decltype(admissions_)> - 1>());
    for (const auto& route : router.routes()) {
        by_route_.push_back(&metrics.route(to_string(route.method), route.path));
    }
    by_route_.push_back(&metrics.route("other", "none"));
    update_date();
}

HttpServer::~HttpServer() = default;

Result<tcp::endpoint> HttpServer::listen(const std::string& address, std::uint16_t port,
                                         Surface surface, std::shared_ptr<TlsContext> tls) {
    const std::string where = address + ":" + std::to_string(port);
    ErrorCode ec;
    const auto ip = net::ip::make_address(address == "localhost" ? "127.0.0.1" : address, ec);
    if (ec) {
        return fail(Errc::invalid, "not an address to listen on: " + where);
    }
    const tcp::endpoint endpoint{ip, port};
    Listener listener{io_};
    listener.surface = surface;
    listener.tls = std::move(tls);
    listener.acceptor.open(endpoint.protocol(), ec);
    if (!ec) {
        listener.acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    }
    if (!ec) {
        listener.acceptor.bind(endpoint, ec);
    }
    if (!ec) {
        listener.acceptor.listen(kBacklog, ec);
    }
    if (!ec) {
        listener.acceptor.non_blocking(true, ec);
    }
    if (ec) {
        return fail(Errc::unavailable, "cannot listen on " + where + ": " + ec.message());
    }
    const tcp::endpoint bound = listener.acceptor.local_endpoint(ec);
    listeners_.push_back(std::move(listener));
    tasks_.spawn("http accept", accept(listeners_.back()));
    begin_sweep();
    return bound;
}

void HttpServer::show(const std::shared_ptr<TlsContext>& tls) {
    for (Listener& listener : listeners_) {
        if (listener.tls) {
            listener.tls = tls;
        }
    }
}

Status HttpServer::listen_unix(const std::filesystem::path& path) {
    auto acceptor = lockstep::listen_unix(io_, path, kBacklog);
    LOCKSTEP_TRY(acceptor);
    unix_listeners_.push_back(UnixListener{std::move(*acceptor), net::steady_timer{io_}});
    tasks_.spawn("unix accept", accept_unix(unix_listeners_.back()));
    begin_sweep();
    return {};
}

void HttpServer::begin_sweep() {
    if (!std::exchange(sweeping_, true)) {
        tasks_.spawn("http sweep", sweep());
    }
}

Task<void> HttpServer::accept_unix(UnixListener& listener) {
    const tcp::endpoint here{net::ip::address_v4::loopback(), 0};
    while (!stopping_) {
        ErrorCode ec;
        net::local::stream_protocol::socket accepted{io_};
        co_await listener.acceptor.async_accept(accepted, into(ec));
        if (!ec) {
            auto socket = take_unix(io_, std::move(accepted));
            if (socket) {
                admit(std::move(*socket), here, Surface::all, nullptr);
            } else {
                log::warn("a connection is refused", {{"what", socket.error().message}});
            }
            continue;
        }
        if (ec == net::error::connection_aborted || stopping_) {
            continue;
        }
        log::warn("cannot accept a connection", {{"error", ec.message()}});
        co_await sleep_on(listener.retry, kAcceptRetry);
    }
}

Task<void> HttpServer::accept(Listener& listener) {
    while (!stopping_) {
        ErrorCode ec;
        tcp::socket socket{io_};
        tcp::endpoint peer;
        co_await listener.acceptor.async_accept(socket, peer, into(ec));
        // Take everything that waits: one wake-up serves a whole herd of agents.
        while (!ec && !stopping_) {
            admit(std::move(socket), peer, listener.surface, listener.tls);
            socket = tcp::socket{io_};
            listener.acceptor.accept(socket, peer, ec);
        }
        const bool transient = ec == net::error::would_block || ec == net::error::try_again ||
                               ec == net::error::connection_aborted;
        if (!ec || transient || stopping_) {
            continue;
        }
        log::warn("cannot accept a connection", {{"error", ec.message()}});
        co_await sleep_on(listener.retry, kAcceptRetry);
    }
}

void HttpServer::admit(tcp::socket socket, const tcp::endpoint& peer, Surface surface,
                       const std::shared_ptr<TlsContext>& tls) {
    const auto now = std::chrono::steady_clock::now();
    if (!admission(surface, socket).make_room(peer.address(), now)) {
        ++counters_.refused;
        metrics_.turned_away(telemetry::TurnedAway::full);
        if (!tls) {  // a handshake is what there is no room for
            refuse(socket);
        }
        return;
    }
    ErrorCode ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.non_blocking(true, ignored);
    if (!is_unix(socket)) {
        probe_silent_peer(socket);
    }
    auto session = std::make_shared<Session>(*this, std::move(socket), peer, surface, tls);
    tasks_.spawn("http session", session->run(session));
}

ConnectionAdmission& HttpServer::admission(Surface surface, const tcp::socket& socket) {
    return is_unix(socket) ? admissions_.back() : admissions_[static_cast<std::size_t>(surface)];
}

bool HttpServer::charge_bodies(std::size_t bytes) {
    if (body_bytes_ + bytes > settings_.limits.bodies) {
        metrics_.turned_away(telemetry::TurnedAway::body);
        return false;
    }
    body_bytes_ += bytes;
    return true;
}

int HttpServer::begin_stream(const Principal& who) {
    const HttpLimits& most = settings_.limits;
    const bool admin = who.role == Role::admin;
    const std::size_t kept = admin ? 0 : std::min(most.admin_streams, most.streams / 2);
    if (counters_.streams + kept >= most.streams) {
        return 503;
    }
    const auto own = streams_.find(who.user);
    if (!admin && own != streams_.end() && own->second >= most.user_streams) {
        return 429;
    }
    ++streams_[who.user];
    metrics_.stream_clients.Set(static_cast<double>(++counters_.streams));
    return 0;
}

void HttpServer::end_stream(const Principal& who) {
    const auto found = streams_.find(who.user);
    if (--found->second == 0) {
        streams_.erase(found);
    }
    metrics_.stream_clients.Set(static_cast<double>(--counters_.streams));
}

void HttpServer::update_date() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    // RFC 9110 §5.6.7; the C locale's names, regardless of the process's locale.
    static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed",
                                                      "Thu", "Fri", "Sat"};
    static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::array<char, 64> text{};
    const int size = std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                                   kDays[static_cast<std::size_t>(parts.tm_wday)], parts.tm_mday,
                                   kMonths[static_cast<std::size_t>(parts.tm_mon)],
                                   parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
    date_.assign(text.data(), static_cast<std::size_t>(size));
}

Task<void> HttpServer::sweep() {
    while (!stopping_) {
        co_await sleep_on(sweep_timer_, settings_.limits.sweep);
        update_date();
        const auto now = std::chrono::steady_clock::now();
        handshakes_.expire(now);
        for (Session* session : sessions_) {
            if (session->overdue(now)) {
                ++counters_.timed_out;
                metrics_.turned_away(telemetry::TurnedAway::silent);
                session->close();
            } else if (session->stream_forbidden()) {
                // Reset, not closed: a client must not take a part for the whole.
                session->close();
            }
        }
        if (++sweeps_ % kAgentSweeps == 0) {
            for (AgentSocket* agent : agents_) {
                agent->look(now);
            }
        }
    }
}

Task<void> HttpServer::stop(std::chrono::milliseconds patience) {
    stopping_ = true;
    for (auto& listener : listeners_) {
        ErrorCode ignored;
        listener.acceptor.close(ignored);
        listener.retry.cancel();
    }
    for (auto& listener : unix_listeners_) {
        ErrorCode ignored;
        listener.acceptor.close(ignored);
        listener.retry.cancel();
    }
    sweep_timer_.cancel();
    for (Session* session : sessions_) {
        session->wind_up();
    }
    const std::string drain =
        wire::encode(wire::DaemonMessage{wire::Drain{"lockstepd is being stopped"}});
    for (AgentSocket* agent : agents_) {
        agent->send(WsMessage{false, drain});
        agent->close("the daemon is stopping");
    }
    auto force = [this](const ErrorCode& ec) {
        if (ec) {
            return;
        }
        for (Session* session : sessions_) {
            session->close();
        }
        for (AgentSocket* agent : agents_) {
            agent->abort();
        }
    };
    stop_timer_.expires_after(patience);
    stop_timer_.async_wait(force);
    co_await tasks_.join();
    stop_timer_.cancel();
}

void HttpServer::count(std::size_t route, int status, std::chrono::steady_clock::duration took) {
    by_route_[std::min(route, by_route_.size() - 1)]->done(
        status, std::chrono::duration<double>(took).count());
}

HttpServer::Sessions::iterator HttpServer::enter(Session& session) {
    ++counters_.connections;
    return sessions_.insert(sessions_.end(), &session);
}

void HttpServer::leave(Sessions::iterator at) {
    --counters_.connections;
    sessions_.erase(at);
}

HttpServer::Agents::iterator HttpServer::enter(AgentSocket& agent) {
    ++counters_.agents;
    return agents_.insert(agents_.end(), &agent);
}

void HttpServer::leave(Agents::iterator at) {
    --counters_.agents;
    agents_.erase(at);
}

}  // namespace lockstep
