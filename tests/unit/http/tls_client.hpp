// A TLS client on OpenSSL's blocking calls: sends exactly the bytes it is given, with the protocol
// version it is told, and says how the connection ended.
#pragma once

#include "tests/unit/http/raw_client.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

class TlsClient {
  public:
    // `groups`: for the key exchange, OpenSSL's names; null: its own choice.
    explicit TlsClient(std::uint16_t port, int most = TLS1_3_VERSION, const char* groups = nullptr)
        : tcp_(port) {
        SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
        SSL_CTX_set_max_proto_version(context_.get(), most);
        // Or this end would refuse the old versions by itself.
        SSL_CTX_set_cipher_list(context_.get(), "ALL:@SECLEVEL=0");
        if (groups != nullptr) {
            SSL_CTX_set1_groups_list(context_.get(), groups);
        }
        ssl_.reset(SSL_new(context_.get()));
        SSL_set_fd(ssl_.get(), tcp_.descriptor());
        shaken_ = SSL_connect(ssl_.get()) == 1;
        refusal_ = shaken_ ? 0 : ERR_GET_REASON(ERR_peek_error());
        ERR_clear_error();
    }
    bool shaken() const { return shaken_; }
    int refusal() const { return refusal_; }  // OpenSSL's reason
    bool send(std::string_view bytes) {
        return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
               static_cast<int>(bytes.size());
    }
    std::string read_some() {
        std::string out(64U << 10U, '\0');
        const int got = SSL_read(ssl_.get(), out.data(), static_cast<int>(out.size()));
        out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return out;
    }
    // Until `text` has arrived, or the end; "" = the end.
    std::string read_until(std::string_view text = {}) {
        std::string all;
        while (text.empty() || all.find(text) == std::string::npos) {
            const auto piece = read_some();
            if (piece.empty()) {
                break;
            }
            all += piece;
        }
        return all;
    }
    // The peer said that nothing more comes (close_notify).
    bool ended_properly() const {
        return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
    }

  private:
    struct Free {
        void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
        void operator()(SSL* ssl) const { SSL_free(ssl); }
    };
    RawClient tcp_;
    std::unique_ptr<SSL_CTX, Free> context_{SSL_CTX_new(TLS_client_method())};
    std::unique_ptr<SSL, Free> ssl_;
    bool shaken_ = false;
    int refusal_ = 0;
};

}  // namespace lockstep
