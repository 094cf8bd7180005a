// What the ends of a TLS connection are set up with: TLS 1.2 and later, OpenSSL behind it. With
// net_stream.cpp the only place that includes Asio's TLS. Make at start-up or per connection; any
// one thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <boost/asio/ssl/context.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

struct TlsContext {
    explicit TlsContext(net::ssl::context::method method) : context(method) {}
    net::ssl::context context;
};

// For a listener: the certificate chain and its key as PEM. invalid: what is wrong with them.
Result<std::shared_ptr<TlsContext>> server_tls(std::string_view certificate, std::string_view key);
// For a client. `pinned`: the caller compares the certificate's fingerprint; otherwise the system's
// authorities vouch for it.
Result<std::shared_ptr<TlsContext>> client_tls(bool pinned);
// "sha256:" and the hash of the certificate's DER in hexadecimal.
std::string fingerprint_of(const X509* certificate);
// OpenSSL's first queued reason; clears the queue.
std::string tls_error();

}  // namespace lockstep
