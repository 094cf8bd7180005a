// Who is signed in to the web page. A session stands for a token: it has the token's rights and
// ends with it, with its own time, or when its owner signs out. Its secret is a cookie that scripts
// cannot read; the store has its hash, as a row among the tokens, so that a restart of the daemon
// signs nobody out. The secret is no bearer token. Control thread; the store, the clock and the
// tokens outlive it.
#pragma once

#include "daemon/http/auth/token_table.hpp"
#include "daemon/http/base/message.hpp"
#include "daemon/store/store.hpp"
#include "daemon/store/token_records.hpp"
#include "job/base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

// Whether a row of the store is a session and not a token.
bool is_page_session(const TokenRow& row);

// Cookies belong to a host regardless of the port, so the name has the port of the Host header: a
// second daemon on the machine, or a tunnel to one, has a cookie of its own.
std::string session_cookie_name(std::string_view host);
// The value of that cookie; "" = none.
std::string_view session_cookie(const HttpRequest& request);

class PageSessions {
  public:
    struct Code {
        std::string code;
        std::int64_t expires_at = 0;  // milliseconds since the epoch
    };
    struct Opened {
        Principal principal;
        std::string secret;  // for the cookie
    };

    // `rows`: what the store has; those that are sessions count.
    PageSessions(Store& store, const Clock& clock, TokenTable& tokens, std::vector<TokenRow> rows);
    PageSessions(const PageSessions&) = delete;
    PageSessions& operator=(const PageSessions&) = delete;

    // Whose session the cookie with this hash is, if neither it nor its token has ended.
    std::optional<Principal> authenticate(const std::string& secret_sha256) const;
    // Why the session of the cookie with this hash has ended; "" = it has not, or there is none.
    std::string why_refused(const std::string& secret_sha256) const;
    // Whose session it was, and of which token; empty: there is none.
    AuditOwner whose(const std::string& secret_sha256) const;
    // A code for `who` to sign in with, once. Not durable. conflict: `who` came without a token.
    Result<Code> make_code(const Principal& who);
    // Signs in with a code or a token. denied: it is unknown, used or has ended; exhausted: the
    // disk.
    Task<Result<Opened>> open_by_code(std::string code);
    Task<Result<Opened>> open_by_token(std::string token);
    // Ends the session of the cookie with this hash; durable when it returns. None: no error.
    Task<Status> close(std::string secret_sha256);

  private:
    struct Waiting {
        std::string token;  // id
        std::int64_t expires_at = 0;
    };
    bool ended(const TokenRow& row) const;
    Principal principal(Principal owner, const TokenRow& row) const;
    Task<Result<Opened>> open(Principal owner);
    // Of the user's sessions the oldest, if there are as many as may be; "" = there is room.
    std::string room_for(const std::string& user) const;
    void drop(const std::string& id);

    Store& store_;
    const Clock& clock_;
    TokenTable& tokens_;
    std::map<std::string, TokenRow> rows_;                // by id
    std::unordered_map<std::string, TokenRow*> by_hash_;  // into rows_
    std::map<std::string, Waiting> codes_;                // by hash
};

}  // namespace lockstep
