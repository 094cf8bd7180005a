#include "daemon/store/token_records.hpp"

#include "daemon/store/connection.hpp"

namespace lockstep {

Status TokenRecords::add(const TokenRow& token) {
    return connection_.guarded("token", [&] {
        const auto insert = connection_.statement(
            "INSERT INTO tokens (id, sha256, name, user, role, scopes, created_at, expires_at, "
            "last_used_at, revoked_at, parent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
        insert->bindNoCopy(1, token.id);
        insert->bindNoCopy(2, token.sha256);
        insert->bindNoCopy(3, token.name);
        insert->bindNoCopy(4, token.user);
        insert->bindNoCopy(5, token.role);
        insert->bindNoCopy(6, token.scopes);
        insert->bind(7, token.created_at);
        insert->bind(8, token.expires_at);
        insert->bind(9, token.last_used_at);
        insert->bind(10, token.revoked_at);
        insert->bindNoCopy(11, token.parent);
        insert->exec();
    });
}

Status TokenRecords::use(const std::string& id, UnixMillis at) {
    return connection_.guarded("token", [&] {
        const auto update = connection_.statement(
            "UPDATE tokens SET last_used_at = max(last_used_at, ?) WHERE id = ?");
        update->bind(1, at);
        update->bindNoCopy(2, id);
        update->exec();
    });
}

Status TokenRecords::revoke(const std::string& id, UnixMillis at) {
    return connection_.guarded("token", [&] {
        const auto update = connection_.statement(
            "WITH RECURSIVE family(id) AS (SELECT ? UNION "
            "SELECT tokens.id FROM tokens JOIN family ON tokens.parent = family.id) "
            "UPDATE tokens SET revoked_at = ? WHERE revoked_at = 0 AND id IN family");
        update->bindNoCopy(1, id);
        update->bind(2, at);
        update->exec();
    });
}

Status TokenRecords::remove(const std::string& id) {
    return connection_.guarded("token", [&] {
        const auto remove = connection_.statement("DELETE FROM tokens WHERE id = ?");
        remove->bindNoCopy(1, id);
        remove->exec();
    });
}

Status TokenRecords::remove_ended(UnixMillis before) {
    return connection_.guarded("token", [&] {
        const auto remove = connection_.statement(
            "DELETE FROM tokens WHERE (revoked_at != 0 AND revoked_at < ?) "
            "OR (expires_at != 0 AND expires_at < ?)");
        remove->bind(1, before);
        remove->bind(2, before);
        remove->exec();
    });
}

Result<std::vector<TokenRow>> TokenRecords::all() {
    return connection_.guarded("tokens", [&] {
        std::vector<TokenRow> out;
        const auto query = connection_.statement(
            "SELECT id, sha256, name, user, role, scopes, created_at, expires_at, last_used_at, "
            "revoked_at, parent FROM tokens ORDER BY created_at, id");
        while (query->executeStep()) {
            TokenRow token;
            token.id = query->getColumn(0).getString();
            token.sha256 = query->getColumn(1).getString();
            token.name = query->getColumn(2).getString();
            token.user = query->getColumn(3).getString();
            token.role = query->getColumn(4).getString();
            token.scopes = query->getColumn(5).getString();
            token.created_at = query->getColumn(6).getInt64();
            token.expires_at = query->getColumn(7).getInt64();
            token.last_used_at = query->getColumn(8).getInt64();
            token.revoked_at = query->getColumn(9).getInt64();
            token.parent = query->getColumn(10).getString();
            out.push_back(std::move(token));
        }
        return out;
    });
}

}  // namespace lockstep
