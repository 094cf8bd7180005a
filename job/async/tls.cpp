#include "job/async/tls.hpp"

#include "job/base/digest.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace lockstep {
namespace {

// Key exchange on elliptic curves only: 1 ms a handshake. Over a finite field (OpenSSL offers up to
// ffdhe8192) it is 170 ms for whoever answers and nothing for whoever replays a recorded
// ClientHello (D(HE)at, CVE-2002-20001).
constexpr const char* kTlsGroups = "X25519:P-256:P-384";
// Of TLS 1.2: ephemeral keys and authenticated encryption, no CBC with SHA-1. All of 1.3's are
// good.
constexpr const char* kTls12Ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20";

std::shared_ptr<TlsContext> make(net::ssl::context::method method) {
    auto out = std::make_shared<TlsContext>(method);
    SSL_CTX* const handle = out->context.native_handle();
    SSL_CTX_set_min_proto_version(handle, TLS1_2_VERSION);
    if (SSL_CTX_set1_groups_list(handle, kTlsGroups) != 1 ||
        SSL_CTX_set_cipher_list(handle, kTls12Ciphers) != 1) {
        return nullptr;  // an OpenSSL built without them
    }
    // Connections are long: resumption and renegotiation would save nothing. Idle ones, and 4,000
    // agents are idle most of the time, give their buffers back.
    SSL_CTX_set_options(handle, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(handle, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(handle, 0);
    SSL_CTX_set_mode(handle, SSL_MODE_RELEASE_BUFFERS);
    return out;
}

}  // namespace

std::string tls_error() {
    const unsigned long code = ERR_get_error();
    ERR_clear_error();
    const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
    return reason == nullptr ? "OpenSSL does not say why" : reason;
}

Result<std::shared_ptr<TlsContext>> server_tls(std::string_view certificate, std::string_view key) {
    auto out = make(net::ssl::context::tls_server);
    if (!out) {
        return fail(Errc::unavailable, "cannot set up TLS: " + tls_error());
    }
    ErrorCode ec;
    out->context.use_certificate_chain(net::buffer(certificate.data(), certificate.size()), ec);
    if (ec) {
        return fail(Errc::invalid, "the certificate is not good: " + ec.message());
    }
    out->context.use_private_key(net::buffer(key.data(), key.size()), net::ssl::context::pem, ec);
    if (ec) {
        const bool other =
            ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == X509_R_KEY_VALUES_MISMATCH;
        return fail(Errc::invalid, other ? "the key is not the certificate's"
                                         : "the key is not good: " + ec.message());
    }
    if (SSL_CTX_check_private_key(out->context.native_handle()) != 1) {
        return fail(Errc::invalid, "the key is not the certificate's: " + tls_error());
    }
    return out;
}

Result<std::shared_ptr<TlsContext>> client_tls(bool pinned) {
    auto out = make(net::ssl::context::tls_client);
    if (!out) {
        return fail(Errc::unavailable, "cannot set up TLS: " + tls_error());
    }
    ErrorCode ec;
    if (pinned) {
        out->context.set_verify_mode(net::ssl::verify_none, ec);
    } else {
        out->context.set_default_verify_paths(ec);
        out->context.set_verify_mode(net::ssl::verify_peer, ec);
    }
    if (ec) {
        return fail(Errc::unavailable, "cannot set up TLS: " + ec.message());
    }
    return out;
}

std::string fingerprint_of(const X509* certificate) {
    unsigned char* der = nullptr;
    const int size = i2d_X509(certificate, &der);
    if (size <= 0) {
        return {};
    }
    const std::string hash =
        sha256_hex({reinterpret_cast<const char*>(der), static_cast<std::size_t>(size)});
    OPENSSL_free(der);
    return "sha256:" + hash;
}

}  // namespace lockstep
