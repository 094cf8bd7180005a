// SHA-256 and constant-time comparison. OpenSSL behind it. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// SHA-256 of the bytes as 64 lower-case hexadecimal characters.
std::string sha256_hex(std::string_view bytes);
// The same of bytes that come one after another.
class Sha256 {
  public:
    Sha256();
    void add(std::string_view bytes);
    std::string hex();  // of all that was added; nothing can be added after it

  private:
    struct Free {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, Free> context_;
};
// SHA-1 as 20 bytes: for the WebSocket handshake (RFC 6455 §4.2.2), where it protects nothing.
std::string sha1_bytes(std::string_view bytes);
// Equality in time that depends on the lengths only; for secrets and their hashes.
bool equal_secret(std::string_view a, std::string_view b);

}  // namespace lockstep
