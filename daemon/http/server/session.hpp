// One HTTP connection: reads requests one after the other, checks each in a fixed order (framing,
// host, route, origin, token, length, type), calls the handler and writes the answer. Control
// thread; owned by its coroutine; the server outlives it.
#pragma once

#include "daemon/http/base/answer_writer.hpp"
#include "daemon/http/base/request_head.hpp"
#include "daemon/http/server/server.hpp"
#include "job/async/net_stream.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

class Session {
  public:
    // `tls` null: plain HTTP.
    Session(HttpServer& server, tcp::socket socket, const tcp::endpoint& peer, Surface surface,
            std::shared_ptr<TlsContext> tls);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Until the connection ends. `self` keeps the session while it runs.
    Task<void> run(std::shared_ptr<Session> self);
    bool overdue(std::chrono::steady_clock::time_point now) const { return now >= deadline_; }
    // At once; what waits on the socket ends.
    void close();
    // A stream whose token has ended since it was opened.
    bool stream_forbidden() const;
    // The daemon stops: ends a stream or a pause now, a request in flight after its answer.
    void wind_up();

  private:
    using Instant = std::chrono::steady_clock::time_point;
    enum class Phase : std::uint8_t { idle, busy, streaming };

    // What the checks say about a request whose header is complete.
    struct Verdict {
        std::optional<HttpResponse> refusal;
        const Route* route = nullptr;
        std::size_t index = SIZE_MAX;
        bool close = false;
    };

    // The TLS handshake, where the listener asks for one.
    Task<bool> secure();
    Task<void> serve_all(std::shared_ptr<Session> self);
    Task<bool> serve(std::shared_ptr<Session> self);
    Task<void> refuse_and_close(HeadProblem problem);
    Verdict judge();
    static Verdict refusal(HttpResponse response, bool close);
    bool host_allowed(std::string_view host) const;
    bool surface_serves(const Route& route) const;
    std::optional<HttpResponse> check_caller(const Route& route);
    // The request's entry in the audit log, written once it is answered; none if it only reads.
    std::optional<AuditEntry> change_of(const Route* route) const;
    void note_change(AuditEntry change, const HttpResponse& response);
    // Of a credential that is not good.
    void note_refusal(std::string_view what, const std::string& path, const AuditOwner& owner = {});
    // A write that another site's page may have begun.
    std::optional<HttpResponse> check_origin(const Route& route, bool with_cookie) const;
    std::optional<HttpResponse> check_body(const Route& route) const;
    // Drops `bytes` from the front of in_.
    void consume(std::size_t bytes);
    // Drops the request's header and what is here of its body; whether that was all of it.
    bool drop_body();
    enum class BodyRead : std::uint8_t { whole, no_room, lost };
    Task<BodyRead> read_body();
    // Makes room for more of the body, as it comes; false: all connections together have too much.
    bool grow_body(std::size_t length);
    void free_body();
    // Nothing when the handler has to wait.
    std::optional<HttpResponse> call_now(const Handler& handler);
    Task<HttpResponse> call(const SlowHandler& handler);
    // JSON that is smaller as gzip, and worth the time.
    static bool worth_packing(const HttpResponse& response);
    Task<void> pack(HttpResponse& response);
    void begin_answer(const HttpResponse& response, bool keep, bool head_only, bool chunked);
    // What out_ has: as much as the socket takes at once; all of it.
    bool write_now();
    Task<bool> write_all();
    Task<bool> answer(const HttpResponse& response, bool keep, bool head_only);
    // Makes the body one that is there as a whole, or the answer a failure.
    static void collect_body(HttpResponse& response);
    // A body in pieces; `response` is what the client got, at the end. False: the connection cannot
    // be used any more.
    Task<bool> answer_in_pieces(HttpResponse& response, bool keep, bool head_only);
    Task<void> stream(std::shared_ptr<Session> self, HttpResponse response, bool head_only);
    void watch_for_end(const std::shared_ptr<Session>& self,
                       const std::shared_ptr<BodyStream>& body);
    Task<void> linger();
    // Hands the connection to an AgentSocket, or says why not.
    std::optional<HttpResponse> upgrade();
    void wait_at_most(std::chrono::milliseconds time);

    HttpServer& server_;
    NetStream socket_;
    std::shared_ptr<TlsContext> tls_;
    Surface surface_;
    std::string remote_;  // addresses as text
    std::string local_;   // in [] when IPv6, as in a Host header
    bool near_ = false;   // the peer is on this machine
    HttpServer::Sessions::iterator place_;
    ConnectionAdmission::Place admitted_;
    Handshakes::Turn turn_;
    Instant deadline_ = Instant::max();
    std::size_t requests_ = 0;  // answered on this connection
    Phase phase_ = Phase::idle;
    std::string in_;  // a buffer; its first in_size_ bytes are received and not yet used
    std::size_t in_size_ = 0;
    std::size_t head_size_ = 0;  // of the request at the front of in_
    HttpRequest request_;
    TokenMemo token_;
    bool with_token_ = false;   // this request needed it
    bool with_cookie_ = false;  // and it was a cookie's
    AnswerWriter out_;
    std::shared_ptr<BodyStream> stream_;
    Principal stream_caller_;  // whose a stream is that this request may become
    std::size_t charged_ = 0;  // bytes of the body that the server counts
};

}  // namespace lockstep
