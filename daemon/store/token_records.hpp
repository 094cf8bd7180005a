// The tokens of the API's users in the database. Threads, transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/record_access.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <string>
#include <vector>

namespace lockstep {

// See schema/0002_tokens.sql.
struct TokenRow {
    std::string id;
    std::string sha256;
    std::string name;
    std::string user;
    std::string role;
    std::string scopes;  // words with spaces; "" = all that the role has
    UnixMillis created_at = 0;
    UnixMillis expires_at = 0;  // 0 = never, as in the next two
    UnixMillis last_used_at = 0;
    UnixMillis revoked_at = 0;
    std::string parent{};  // id of the token it was made with, which it ends with; "" = none
};

class TokenRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction.
    Status add(const TokenRow& token);
    Status use(const std::string& id, UnixMillis at);
    // And all that were made with it, and with those.
    Status revoke(const std::string& id, UnixMillis at);
    Status remove(const std::string& id);
    // Those that ended, either way, before.
    Status remove_ended(UnixMillis before);

    Result<std::vector<TokenRow>> all();  // oldest first
};

}  // namespace lockstep
