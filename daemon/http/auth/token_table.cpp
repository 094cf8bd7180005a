#include "daemon/http/auth/token_table.hpp"

#include "daemon/control/base/query_error.hpp"
#include "daemon/http/auth/page_sessions.hpp"
#include "job/base/digest.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace lockstep {
namespace {

constexpr UnixMillis kUseNoted = 60'000;  // how coarse last_used_at is
constexpr UnixMillis kSecond = 1000;
constexpr UnixMillis kLongLife = 60 * 86'400 * kSecond;  // twice what one has by default
constexpr UnixMillis kInUse = 2 * 86'400 * kSecond;      // after its last use

Error at_field(Errc code, std::string_view field, std::string message) {
    std::vector<FieldError> fields{{"/" + std::string{field}, message}};
    return Error{code, std::string{field} + ": " + message, std::move(fields)};
}

std::string words_of(ScopeSet scopes) {
    std::string out;
    for (const Scope scope : kTokenScopes) {
        if ((scopes & bit(scope)) != 0) {
            out.append(out.empty() ? "" : " ").append(to_string(scope));
        }
    }
    return out;
}

// What was stored; nothing when a newer program wrote something that this one does not know.
std::optional<Principal> principal_of(const TokenRow& row) {
    const auto role = parse_role(row.role);
    if (!role) {
        return std::nullopt;
    }
    Principal out;
    out.user = row.user;
    out.role = *role;
    out.token = row.id;
    out.expires_at = row.expires_at;
    if (!row.scopes.empty()) {
        out.scopes = 0;
        for (const auto& word : split(row.scopes, ' ')) {
            const auto scope = parse_token_scope(word);
            out.scopes = static_cast<ScopeSet>(out.scopes | (scope ? bit(*scope) : 0));
        }
    }
    return out;
}

Json view_of(const TokenRow& row) {
    Json json = Json::object();
    json["id"] = row.id;
    json["name"] = row.name;
    json["user"] = row.user;
    json["role"] = row.role;
    json["scopes"] = Json::array();
    if (const auto principal = principal_of(row)) {
        for (const Scope scope : kTokenScopes) {
            if (allows(*principal, scope)) {
                json["scopes"].push_back(to_string(scope));
            }
        }
    }
    if (!row.parent.empty()) {
        json["made_with"] = row.parent;
    }
    json["created_at"] = to_rfc3339(row.created_at);
    for (const auto& [key, time] : {std::pair{"expires_at", row.expires_at},
                                    {"last_used_at", row.last_used_at},
                                    {"revoked_at", row.revoked_at}}) {
        if (time != 0) {
            json[key] = to_rfc3339(time);
        }
    }
    return json;
}

bool sees(const Principal& by, const TokenRow& row) {
    return by.role == Role::admin || by.user == row.user;
}

std::string place_of(const TokenRow& row) {
    return std::to_string(row.created_at) + " " + row.id;
}

}  // namespace

TokenTable::TokenTable(Store& store, const Clock& clock, TaskGroup& tasks,
                       std::vector<TokenRow> rows)
    : store_(store), clock_(clock), tasks_(tasks) {
    for (TokenRow& row : rows) {
        if (!is_page_session(row)) {
            keep(std::move(row));
        }
    }
}

void TokenTable::keep(TokenRow row) {
    const std::string id = row.id;
    TokenRow& kept = rows_[id];
    kept = std::move(row);
    by_hash_[kept.sha256] = &kept;
}

void TokenTable::drop(const std::string& id) {
    if (const auto found = rows_.find(id); found != rows_.end()) {
        by_hash_.erase(found->second.sha256);
        rows_.erase(found);
    }
}

bool TokenTable::ended(const TokenRow& row) const {
    return row.revoked_at != 0 || (row.expires_at != 0 && row.expires_at <= clock_.wall());
}

std::optional<Principal> TokenTable::authenticate(const std::string& token_sha256) {
    const auto found = by_hash_.find(token_sha256);
    if (found == by_hash_.end() || ended(*found->second)) {
        return std::nullopt;
    }
    TokenRow& row = *found->second;
    const UnixMillis now = clock_.wall();
    if (now - row.last_used_at >= kUseNoted) {
        row.last_used_at = now;
        tasks_.spawn("token use", write_use(row.id, now));
    }
    return principal_of(row);
}

std::optional<Principal> TokenTable::owner(const std::string& id) const {
    const auto found = rows_.find(id);
    return found == rows_.end() || ended(found->second) ? std::nullopt
                                                        : principal_of(found->second);
}

std::string TokenTable::why_ended(const std::string& id) const {
    const auto found = rows_.find(id);
    if (found == rows_.end() || !ended(found->second)) {
        return "";
    }
    const TokenRow& row = found->second;
    return row.revoked_at != 0 ? "the token was revoked at " + to_rfc3339(row.revoked_at)
                               : "the token expired at " + to_rfc3339(row.expires_at);
}

std::string TokenTable::why_refused(const std::string& token_sha256) const {
    const auto found = by_hash_.find(token_sha256);
    return found == by_hash_.end() ? std::string{} : why_ended(found->second->id);
}

AuditOwner TokenTable::whose(const std::string& token_sha256) const {
    const auto found = by_hash_.find(token_sha256);
    return found == by_hash_.end() ? AuditOwner{}
                                   : AuditOwner{found->second->user, found->second->id};
}

std::map<std::string, UnixMillis> TokenTable::first_ends() const {
    std::map<std::string, UnixMillis> out;
    for (const auto& [id, row] : rows_) {
        if (!ended(row) && row.expires_at != 0 && row.expires_at - row.created_at >= kLongLife &&
            clock_.wall() - row.last_used_at <= kInUse) {
            UnixMillis& first = out.try_emplace(row.role, row.expires_at).first->second;
            first = std::min(first, row.expires_at);
        }
    }
    return out;
}

Task<void> TokenTable::write_use(std::string id, UnixMillis at) {
    const Status written = co_await store_.use_token(std::move(id), at);
    if (!written) {
        log::debug("the use of a token is not noted", {{"what", written.error().message}});
    }
}

Result<TokenRow> TokenTable::draft(const Principal& by, const TokenRequest& request) const {
    const bool admin = rules(by);
    TokenRow row;
    row.parent = by.token;
    row.user = request.user.empty() ? by.user : request.user;
    if (row.user != by.user && !admin) {
        return fail(at_field(Errc::denied, "user",
                             "only an admin with the scope admin may create tokens for others"));
    }
    // A viewer reads everybody's jobs, so that role is not less than a user's.
    if (request.role != by.role && !admin) {
        return fail(at_field(Errc::denied, "role",
                             "only an admin with the scope admin may give another role"));
    }
    ScopeSet of_role = 0;
    ScopeSet scopes = 0;
    for (const Scope scope : kTokenScopes) {
        const bool asked = request.scopes && (*request.scopes & bit(scope)) != 0;
        if (asked && (!allows(request.role, scope) || !allows(by, scope))) {
            const bool mine = allows(request.role, scope);
            return fail(at_field(mine ? Errc::denied : Errc::invalid, "scopes",
                                 std::string{mine ? "your token" : "the role"} +
                                     " does not have the scope " + std::string{to_string(scope)}));
        }
        of_role = static_cast<ScopeSet>(of_role | (allows(request.role, scope) ? bit(scope) : 0));
        if (asked || (!request.scopes && allows(request.role, scope) && allows(by, scope))) {
            scopes = static_cast<ScopeSet>(scopes | bit(scope));
        }
    }
    if (!account_.may_submit(row.user) && allows(request.role, Scope::write) &&
        (scopes & bit(Scope::write)) != 0) {
        return fail(at_field(Errc::denied, "user",
                             account_.why_not() + ", or make a token that cannot submit (viewer)"));
    }
    row.scopes = scopes == of_role ? "" : words_of(scopes);
    row.name = request.name;
    row.role = to_string(request.role);
    row.created_at = clock_.wall();
    row.expires_at =
        row.created_at + kSecond * request.expires_in.value_or(limits::kTokenDefaultSeconds);
    if (by.expires_at != 0 && row.expires_at > by.expires_at) {
        if (request.expires_in) {
            return fail(
                at_field(Errc::denied, "expires_in",
                         "must not exceed that of the token it is created with, which ends " +
                             to_rfc3339(by.expires_at)));
        }
        row.expires_at = by.expires_at;
    }
    return row;
}

std::vector<std::string> TokenTable::shut_out() const {
    std::vector<std::string> out;
    for (const auto& [id, row] : rows_) {
        const auto whose = ended(row) ? std::nullopt : principal_of(row);
        if (whose && allows(*whose, Scope::write) && !account_.may_submit(row.user) &&
            std::find(out.begin(), out.end(), row.user) == out.end()) {
            out.push_back(row.user);
        }
    }
    return out;
}

Result<std::string> TokenTable::room_for(const std::string& user) const {
    std::size_t all = 0;  // that have not ended
    std::size_t live = 0;
    std::size_t dead = 0;
    const TokenRow* oldest = nullptr;
    for (const auto& [id, row] : rows_) {
        const bool over = ended(row);
        all += over ? 0 : 1;
        if (row.user != user) {
            continue;
        }
        ++(over ? dead : live);
        if (over && (oldest == nullptr || row.created_at < oldest->created_at)) {
            oldest = &row;
        }
    }
    if (live >= limits::kTokensOfUser || all >= limits::kTokens) {
        return fail(Errc::conflict, "limit: there are " + std::to_string(live) + " tokens of " +
                                        user + " and " + std::to_string(all) +
                                        " in all; revoke what is not used");
    }
    return dead >= limits::kTokensOfUser ? oldest->id : std::string{};
}

// Itself and all that were made with it, and with those.
std::vector<TokenRow*> TokenTable::family_of(TokenRow& row) {
    std::unordered_multimap<std::string_view, TokenRow*> children;  // by the id of the one before
    for (auto& [id, one] : rows_) {
        if (!one.parent.empty()) {
            children.emplace(one.parent, &one);
        }
    }
    std::vector<TokenRow*> out{&row};
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto [begin, end] = children.equal_range(out[i]->id);
        for (auto at = begin; at != end; ++at) {
            out.push_back(at->second);
        }
    }
    return out;
}

std::string TokenTable::unused_id() const {
    std::string id;
    do {
        id = "tk-" + random_secret().substr(0, 12);
    } while (rows_.contains(id));
    return id;
}

Task<Result<Json>> TokenTable::create(Principal by, TokenRequest request) {
    auto row = draft(by, request);
    LOCKSTEP_CO_TRY(row);
    const auto room = room_for(row->user);
    LOCKSTEP_CO_TRY(room);
    const std::string secret = "lks_" + random_secret();
    row->id = unused_id();
    row->sha256 = sha256_hex(secret);
    TokenRow copy = *row;
    std::string old = *room;
    const Status stored = co_await store_.add_token(std::move(copy), std::move(old));
    LOCKSTEP_CO_TRY(stored);
    drop(*room);
    if (!row->parent.empty() && !owner(row->parent)) {
        // It was ended meanwhile, before the store had this one to end with it.
        const UnixMillis now = clock_.wall();
        const Status undone = co_await store_.revoke_token(std::move(row->id), now);
        co_return fail(undone ? Error{Errc::denied, "the token that it was created with has ended"}
                              : undone.error());
    }
    Json out = view_of(*row);
    out["token"] = secret;
    log::info("a token was made", {{"token", row->id},
                                   {"user", row->user},
                                   {"role", row->role},
                                   {"by", by.user},
                                   {"with", by.token}});
    keep(std::move(*row));
    co_return out;
}

Result<Json> TokenTable::list(const Principal& by, const TokenQuery& query) const {
    std::string after;
    if (!query.cursor.empty()) {
        auto decoded = base64_decode(query.cursor);
        if (!decoded || decoded->find(" tk-") == std::string::npos) {
            return fail(query_error("cursor", "not one of this service"));
        }
        after = std::move(*decoded);
    }
    std::vector<std::pair<std::string, const TokenRow*>> found;
    for (const auto& [id, row] : rows_) {
        // Milliseconds of this century have 13 digits, so places compare as text.
        std::string place = place_of(row);
        if (sees(by, row) && (query.all || !ended(row)) && (after.empty() || place < after)) {
            found.emplace_back(std::move(place), &row);
        }
    }
    std::sort(found.rbegin(), found.rend());
    Json out = Json::object();
    out["items"] = Json::array();
    for (std::size_t i = 0; i < std::min(found.size(), query.limit); ++i) {
        out["items"].push_back(view_of(*found[i].second));
    }
    if (found.size() > query.limit) {
        out["next_cursor"] = base64_encode(found[query.limit - 1].first);
    }
    return out;
}

Task<Status> TokenTable::revoke(Principal by, std::string id) {
    const auto found = rows_.find(id);
    const bool own = found != rows_.end() && found->second.user == by.user;
    if (found == rows_.end() || (!own && !rules(by))) {
        co_return fail(Errc::not_found,
                       "no token " + printable(std::string_view{id}.substr(0, 64)));
    }
    TokenRow& row = found->second;
    if (id != by.token && !allows(by, Scope::write)) {
        co_return fail(Errc::denied, "without the scope write a token can revoke only itself");
    }
    if (!rules(by) && row.role != to_string(by.role)) {
        co_return fail(Errc::denied, "the token has another role; an admin can revoke it");
    }
    const auto family = family_of(row);
    const bool beyond = std::any_of(family.begin(), family.end(), [&by](const TokenRow* one) {
        const auto whose = principal_of(*one);
        return one->user != by.user || one->role != to_string(by.role) || (whose && rules(*whose));
    });
    if (beyond && id != by.token && !rules(by)) {
        co_return fail(Errc::denied,
                       "tokens of others, or of an admin, would be revoked with it: this needs the "
                       "scope admin");
    }
    const UnixMillis at = row.revoked_at != 0 ? row.revoked_at : clock_.wall();
    for (TokenRow* one : family) {
        if (one->revoked_at == 0) {
            one->revoked_at = at;
            log::info(
                "a token was revoked",
                {{"token", one->id}, {"user", one->user}, {"by", by.user}, {"with", by.token}});
        }
    }
    // Written again when it was revoked before: the first time it may have failed.
    co_return co_await store_.revoke_token(std::move(id), at);
}

}  // namespace lockstep
