// Bearer tokens. A token is looked up by its SHA-256 in a table the caller owns (token_table.hpp),
// so nothing here depends on the secret's bytes in time: who tries tokens learns at most how hashes
// compare, and hashes cannot be steered. Expiry and revocation are the table's. Control thread.
#pragma once

#include "daemon/http/base/message.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// The owner of the token with this hash (64 hexadecimal characters), or nothing.
using Authenticator = std::function<std::optional<Principal>(const std::string& token_sha256)>;

// The token of an Authorization header; "" unless it is `Bearer <token>` of 1..512 visible
// characters.
std::string_view bearer_token(std::string_view authorization);

// The hash of the token that the connection sent last: a client sends the same one each time.
class TokenMemo {
  public:
    const std::string& hash(std::string_view token);
    const std::string& last_hash() const { return hash_; }

  private:
    std::string token_;
    std::string hash_;
};

}  // namespace lockstep
