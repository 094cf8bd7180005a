// The bearer tokens: whose each is, what it may do, until when. All of them are in memory, by the
// SHA-256 of their secret; the store has what must outlive the daemon. A fast hash is enough: a
// secret is 256 random bits, which no search of hashes finds; slow hashes are for passwords.
// Control thread. The store, the clock and the task group outlive it.
#pragma once

#include "daemon/control/base/jobs_account.hpp"
#include "daemon/http/auth/audit_log.hpp"
#include "daemon/http/base/router.hpp"
#include "daemon/store/store.hpp"
#include "daemon/store/token_records.hpp"
#include "job/async/task_group.hpp"
#include "job/base/clock.hpp"
#include "job/base/json.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {

struct TokenRequest {
    std::string name;
    std::string user;  // "" = the caller
    Role role = Role::user;
    std::optional<ScopeSet> scopes{};          // nothing: all rights of the role and of the caller
    std::optional<std::int64_t> expires_in{};  // seconds; nothing: limits::kTokenDefault
};

struct TokenQuery {
    bool all = false;  // with those that have ended
    std::size_t limit = 0;
    std::string cursor{};
};

class TokenTable {
  public:
    // `rows`: what the store has; the web page's sessions among them (page_sessions.hpp) do not
    // count.
    TokenTable(Store& store, const Clock& clock, TaskGroup& tasks, std::vector<TokenRow> rows);
    TokenTable(const TokenTable&) = delete;
    TokenTable& operator=(const TokenTable&) = delete;

    // Whose jobs run as whom: who may not submit any gets no token to do so.
    void restrict_to(JobsAccount account) { account_ = std::move(account); }
    // Whose tokens could submit jobs, but for that.
    std::vector<std::string> shut_out() const;
    // The owner of the token with this hash, if it has not ended. Notes its use, at most once a
    // minute.
    std::optional<Principal> authenticate(const std::string& token_sha256);
    // The owner of the token with this id, if it has not ended.
    std::optional<Principal> owner(const std::string& id) const;

    // Why the token with this id has ended, for whoever had its secret; "" = it has not, or there
    // is none.
    std::string why_ended(const std::string& id) const;
    // The same of the token with this hash.
    std::string why_refused(const std::string& token_sha256) const;

    // Whose the token with this hash is, or was, and its id; and whose the one with this id. Empty:
    // there is none.
    AuditOwner whose(const std::string& token_sha256) const;
    std::string user_of(const std::string& id) const {
        const auto found = rows_.find(id);
        return found == rows_.end() ? std::string{} : found->second.user;
    }
    // When the first of the tokens ends that were made for long and are in use, by role: a program
    // would be refused. People who have one for a month make another.
    std::map<std::string, UnixMillis> first_ends() const;

    // The token as list() shows it and its secret as `token`; durable. It ends with the token that
    // `by` came with, at the latest. denied: it would have more rights than `by`, or belong to
    // somebody else; conflict: too many; exhausted: the disk.
    Task<Result<Json>> create(Principal by, TokenRequest request);
    // {items, next_cursor}, newest first: all of them for an admin, else the caller's. No secrets.
    Result<Json> list(const Principal& by, const TokenQuery& query) const;
    // From this call on the token is refused, with all that were made with it; durable when it
    // returns. Again is no error. Whoever has a token may end it with that. not_found: also for
    // others' tokens; denied: it has rights that the caller has not.
    Task<Status> revoke(Principal by, std::string id);

  private:
    // What a new token gets, or why not.
    Result<TokenRow> draft(const Principal& by, const TokenRequest& request) const;
    // Room for one more of the user: the id of an ended one to give up for it, or "".
    Result<std::string> room_for(const std::string& user) const;
    std::vector<TokenRow*> family_of(TokenRow& row);
    std::string unused_id() const;
    bool ended(const TokenRow& row) const;
    void keep(TokenRow row);
    void drop(const std::string& id);
    Task<void> write_use(std::string id, UnixMillis at);

    JobsAccount account_;
    Store& store_;
    const Clock& clock_;
    TaskGroup& tasks_;
    std::map<std::string, TokenRow> rows_;                // by id
    std::unordered_map<std::string, TokenRow*> by_hash_;  // into rows_
};

}  // namespace lockstep
