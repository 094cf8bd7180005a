#include "job/async/net_stream.hpp"

#include "job/async/tls.hpp"
#include "job/base/digest.hpp"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/strand.hpp>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

namespace lockstep {
namespace {

struct FreeX509 {
    void operator()(X509* certificate) const { X509_free(certificate); }
};
using CertificatePtr = std::unique_ptr<X509, FreeX509>;

bool is_address(const std::string& host) {
    ErrorCode ec;
    net::ip::make_address(host, ec);
    return !ec;
}

// A name goes into the ClientHello, an address does not (RFC 6066 §3).
bool announce_host(SSL* ssl, const std::string& host) {
    return is_address(host) || SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
}

// Whom the certificate must name.
bool expect_host(SSL* ssl, const std::string& host) {
    X509_VERIFY_PARAM* const parameters = SSL_get0_param(ssl);
    return is_address(host)
               ? X509_VERIFY_PARAM_set1_ip_asc(parameters, host.c_str()) == 1
               : X509_VERIFY_PARAM_set1_host(parameters, host.c_str(), host.size()) == 1;
}

std::string shown_by(const SSL* ssl) {
    const CertificatePtr certificate{SSL_get1_peer_certificate(ssl)};
    return certificate ? fingerprint_of(certificate.get()) : std::string{};
}

// The peer will send no more, or is not there at all.
bool peer_hung_up(int fd) {
    pollfd asked{fd, POLLRDHUP, 0};
    return ::poll(&asked, 1, 0) > 0 && (asked.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

struct NetStream::Tls {
    Tls(tcp::socket socket, std::shared_ptr<TlsContext> with)
        : context(std::move(with)), stream(std::move(socket), context->context) {}
    std::shared_ptr<TlsContext> context;
    net::ssl::stream<tcp::socket> stream;
};

NetStream::NetStream(tcp::socket socket) : plain_(std::move(socket)) {}
NetStream::~NetStream() = default;
NetStream::NetStream(NetStream&& other) noexcept = default;

tcp::socket& NetStream::tls_socket() const {
    return tls_->stream.next_layer();
}

Status NetStream::start_tls(std::shared_ptr<TlsContext> context) {
    try {
        tls_ = std::make_shared<Tls>(std::move(plain_), std::move(context));
    } catch (const std::exception& error) {  // Asio's stream allocates OpenSSL's objects
        return fail(Errc::exhausted, std::string{"cannot begin TLS: "} + error.what());
    }
    return {};
}

// Asio runs each step of the handshake where the handler's executor says: on one of the workers.
// Only what waits for the socket goes through the loop that the socket belongs to.
Task<Status> NetStream::accept_tls(std::shared_ptr<TlsContext> context, net::io_context& workers) {
    Status begun = start_tls(std::move(context));
    if (!begun) {
        co_return begun;
    }
    const auto home = co_await net::this_coro::executor;
    shaken_fd_ = tls_socket().native_handle();
    auto start = [tls = tls_, fd = shaken_fd_, home, &workers](auto handler) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        // The work guard keeps the home loop running while the workers work.
        auto guard = net::prefer(home, net::execution::outstanding_work.tracked);
        auto done = [shared, guard](const ErrorCode& ec) {
            net::post(guard, [shared, ec] { (*shared)(ec); });
        };
        auto strand = net::make_strand(workers);
        net::post(strand, [tls, fd, strand, done] {
            if (peer_hung_up(fd)) {
                done(net::error::connection_aborted);
            } else {
                tls->stream.async_handshake(net::ssl::stream_base::server,
                                            net::bind_executor(strand, done));
            }
        });
    };
    ErrorCode ec;
    auto token = into(ec);
    co_await net::async_initiate<decltype(token), void(ErrorCode)>(std::move(start), token);
    shaken_fd_ = -1;
    if (!ec) {
        co_return Status{};
    }
    const bool plain = ec.category() == net::error::get_ssl_category() &&
                       ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_HTTP_REQUEST;
    co_return fail(plain ? Errc::invalid : Errc::unavailable, ec.message());
}

Task<Status> NetStream::connect_tls(std::shared_ptr<TlsContext> context, std::string host,
                                    std::string fingerprint) {
    Status begun = start_tls(std::move(context));
    if (!begun) {
        co_return begun;
    }
    SSL* const ssl = tls_->stream.native_handle();
    if (!announce_host(ssl, host) || (fingerprint.empty() && !expect_host(ssl, host))) {
        co_return fail(Errc::invalid, "a certificate cannot name " + host);
    }
    ErrorCode ec;
    co_await tls_->stream.async_handshake(net::ssl::stream_base::client, into(ec));
    if (ec) {
        const long verdict = SSL_get_verify_result(ssl);
        if (fingerprint.empty() && verdict != X509_V_OK) {
            co_return fail(Errc::denied, std::string{"shows a certificate that is not trusted: "} +
                                             X509_verify_cert_error_string(verdict));
        }
        co_return fail(Errc::unavailable, ec.message());
    }
    if (fingerprint.empty()) {
        co_return Status{};
    }
    // The handshake has proven that the peer holds the certificate's key, whoever issued it.
    const std::string shown = shown_by(ssl);
    if (!equal_secret(shown, fingerprint)) {
        close();
        co_return fail(Errc::denied,
                       "shows certificate " + shown + " but " + fingerprint + " is expected");
    }
    co_return Status{};
}

Task<Result<std::string>> NetStream::look_tls(std::shared_ptr<TlsContext> context,
                                              std::string host) {
    Status begun = start_tls(std::move(context));
    LOCKSTEP_CO_TRY(begun);
    SSL* const ssl = tls_->stream.native_handle();
    if (!announce_host(ssl, host)) {
        co_return fail(Errc::invalid, "a certificate cannot name " + host);
    }
    ErrorCode ec;
    co_await tls_->stream.async_handshake(net::ssl::stream_base::client, into(ec));
    std::string shown = ec ? std::string{} : shown_by(ssl);
    if (shown.empty()) {
        co_return fail(Errc::unavailable, ec ? ec.message() : "no certificate");
    }
    co_return shown;
}

Task<void> NetStream::finish() {
    ErrorCode ec;
    if (tls_ && is_open()) {
        co_await tls_->stream.async_shutdown(into(ec));
    }
    socket().shutdown(tcp::socket::shutdown_send, ec);
}

void NetStream::close() {
    if (shaken_fd_ >= 0) {
        // The socket is another thread's: what waits on it ends, and it is closed with its owner.
        ::shutdown(shaken_fd_, SHUT_RDWR);
        return;
    }
    ErrorCode ignored;
    socket().close(ignored);
}

void NetStream::tls_read(net::mutable_buffer buffer, std::unique_ptr<Done> done) {
    tls_->stream.async_read_some(buffer, [keep = tls_, done = std::move(done)](
                                             const ErrorCode& ec, std::size_t size) mutable {
        const auto last = std::move(done);
        last->call(ec, size);
    });
}

void NetStream::tls_write(net::const_buffer buffer, std::unique_ptr<Done> done) {
    tls_->stream.async_write_some(buffer, [keep = tls_, done = std::move(done)](
                                              const ErrorCode& ec, std::size_t size) mutable {
        const auto last = std::move(done);
        last->call(ec, size);
    });
}

StreamDeadline::StreamDeadline(NetStream& stream)
    : state_(std::make_shared<State>(stream, stream.get_executor())) {}

void StreamDeadline::expires_at(std::chrono::steady_clock::time_point when) {
    state_->timer.expires_at(when);
    state_->timer.async_wait([state = state_](const ErrorCode& ec) {
        // A handler that was queued before cancel() comes without an error.
        if (!ec && state->stream != nullptr &&
            state->timer.expiry() <= std::chrono::steady_clock::now()) {
            state->passed = true;
            state->stream->close();
        }
    });
}

void StreamDeadline::cancel() {
    state_->stream = nullptr;
    state_->timer.cancel();
}

}  // namespace lockstep
