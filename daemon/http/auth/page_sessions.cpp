#include "daemon/http/auth/page_sessions.hpp"

#include "job/base/digest.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kSessionPrefix = "ss-";
constexpr std::int64_t kMillisPerSecond = 1000;

Error not_signed_in() {
    return {Errc::denied,
            "the code is unknown, was used already or is older than a minute: make "
            "another with lockstep open"};
}

}  // namespace

bool is_page_session(const TokenRow& row) {
    return row.id.starts_with(kSessionPrefix);
}

std::string session_cookie_name(std::string_view host) {
    std::string name = "lockstep_session";
    const auto colon = host.rfind(':');
    // Not the colons of an IPv6 address.
    if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
        name.append("_").append(host.substr(colon + 1));
    }
    return name;
}

std::string_view session_cookie(const HttpRequest& request) {
    std::string_view cookies = request.header("cookie");
    if (cookies.empty()) {
        return {};
    }
    const std::string name = session_cookie_name(request.header("host"));
    while (!cookies.empty()) {
        const auto end = std::min(cookies.find(';'), cookies.size());
        const auto one = trim(cookies.substr(0, end));
        if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=') {
            return one.substr(name.size() + 1);
        }
        cookies.remove_prefix(std::min(end + 1, cookies.size()));
    }
    return {};
}

PageSessions::PageSessions(Store& store, const Clock& clock, TokenTable& tokens,
                           std::vector<TokenRow> rows)
    : store_(store), clock_(clock), tokens_(tokens) {
    for (TokenRow& row : rows) {
        // One that has expired is kept, for whoever still sends its cookie to be told so.
        if (!is_page_session(row) || row.revoked_at != 0) {
            continue;
        }
        TokenRow& kept = rows_[row.id];
        kept = std::move(row);
        by_hash_[kept.sha256] = &kept;
    }
}

bool PageSessions::ended(const TokenRow& row) const {
    return row.revoked_at != 0 || row.expires_at <= clock_.wall();
}

Principal PageSessions::principal(Principal owner, const TokenRow& row) const {
    owner.expires_at =
        owner.expires_at == 0 ? row.expires_at : std::min(owner.expires_at, row.expires_at);
    owner.session = row.id;
    return owner;
}

std::optional<Principal> PageSessions::authenticate(const std::string& secret_sha256) const {
    const auto found = by_hash_.find(secret_sha256);
    if (found == by_hash_.end() || ended(*found->second)) {
        return std::nullopt;
    }
    auto owner = tokens_.owner(found->second->name);
    if (!owner) {
        return std::nullopt;
    }
    return principal(std::move(*owner), *found->second);
}

std::string PageSessions::why_refused(const std::string& secret_sha256) const {
    const auto found = by_hash_.find(secret_sha256);
    if (found == by_hash_.end()) {
        return "";
    }
    const TokenRow& row = *found->second;
    std::string out = tokens_.why_ended(row.name);
    return out.empty() && ended(row) ? "the session expired at " + to_rfc3339(row.expires_at) : out;
}

AuditOwner PageSessions::whose(const std::string& secret_sha256) const {
    const auto found = by_hash_.find(secret_sha256);
    return found == by_hash_.end() ? AuditOwner{}
                                   : AuditOwner{found->second->user, found->second->name};
}

Result<PageSessions::Code> PageSessions::make_code(const Principal& who) {
    if (!tokens_.owner(who.token)) {
        return fail(Errc::conflict, "a code is made with a token");
    }
    const auto now = clock_.wall();
    std::erase_if(codes_, [now](const auto& one) { return one.second.expires_at <= now; });
    const auto own = std::count_if(codes_.begin(), codes_.end(),
                                   [&](const auto& one) { return one.second.token == who.token; });
    if (own >= limits::kSignInCodesOfUser || codes_.size() >= limits::kSignInCodes) {
        return fail(Errc::exhausted, "too many unused codes; they expire within a minute");
    }
    Code out{random_secret(), now + limits::kSignInCodeSeconds * kMillisPerSecond};
    codes_[sha256_hex(out.code)] = Waiting{who.token, out.expires_at};
    return out;
}

Task<Result<PageSessions::Opened>> PageSessions::open_by_code(std::string code) {
    const auto found = codes_.find(sha256_hex(code));
    if (found == codes_.end()) {
        co_return fail(not_signed_in());
    }
    const Waiting waiting = found->second;
    codes_.erase(found);
    auto owner = tokens_.owner(waiting.token);
    if (waiting.expires_at <= clock_.wall() || !owner) {
        co_return fail(not_signed_in());
    }
    co_return co_await open(std::move(*owner));
}

Task<Result<PageSessions::Opened>> PageSessions::open_by_token(std::string token) {
    const std::string hash = sha256_hex(token);
    auto owner = tokens_.authenticate(hash);
    if (!owner) {
        const std::string why = tokens_.why_refused(hash);
        co_return fail(Errc::denied, why.empty() ? "there is no such token" : why);
    }
    co_return co_await open(std::move(*owner));
}

std::string PageSessions::room_for(const std::string& user) const {
    std::size_t count = 0;
    const TokenRow* oldest = nullptr;
    for (const auto& [id, row] : rows_) {
        if (row.user != user) {
            continue;
        }
        ++count;
        // One that has ended goes before one that somebody uses.
        const auto age = [this](const TokenRow& one) {
            return std::pair{!ended(one), one.created_at};
        };
        if (oldest == nullptr || age(row) < age(*oldest)) {
            oldest = &row;
        }
    }
    return count < limits::kSessionsOfUser ? std::string{} : oldest->id;
}

void PageSessions::drop(const std::string& id) {
    if (const auto found = rows_.find(id); found != rows_.end()) {
        by_hash_.erase(found->second.sha256);
        rows_.erase(found);
    }
}

Task<Result<PageSessions::Opened>> PageSessions::open(Principal owner) {
    const std::string secret = random_secret();
    TokenRow row;
    row.id = std::string{kSessionPrefix} + random_secret().substr(0, 16);
    row.sha256 = sha256_hex(secret);
    row.name = owner.token;
    row.user = owner.user;
    row.role = to_string(owner.role);
    row.created_at = clock_.wall();
    row.expires_at = row.created_at + limits::kPageSessionSeconds * kMillisPerSecond;
    if (owner.expires_at != 0) {
        row.expires_at = std::min(row.expires_at, owner.expires_at);
    }
    const std::string old = room_for(owner.user);
    TokenRow copy = row;
    std::string instead_of = old;
    const Status stored = co_await store_.add_token(std::move(copy), std::move(instead_of));
    LOCKSTEP_CO_TRY(stored);
    drop(old);
    Opened out;
    out.principal = principal(std::move(owner), row);
    out.secret = secret;
    log::info("signed in to the web page",
              {{"user", row.user}, {"session", row.id}, {"token", row.name}});
    TokenRow& kept = rows_[row.id];
    kept = std::move(row);
    by_hash_[kept.sha256] = &kept;
    co_return out;
}

Task<Status> PageSessions::close(std::string secret_sha256) {
    const auto found = by_hash_.find(secret_sha256);
    if (found == by_hash_.end()) {
        co_return Status{};
    }
    const std::string id = found->second->id;
    drop(id);  // refused from this moment on
    log::info("signed out of the web page", {{"session", id}});
    std::string row = id;
    co_return co_await store_.revoke_token(std::move(row), clock_.wall());
}

}  // namespace lockstep
