#include "daemon/store/token_records.hpp"
#include "tests/unit/store/database_fixture.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <lockstep_migrations.hpp>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

TEST_F(DatabaseTest, TokensOfVersion1AreKept) {
    const auto old = folder_ / "old.db";
    {
        SQLite::Database raw{old.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE};
        raw.exec(kMigrations[0].sql);
        raw.exec("PRAGMA user_version = 1");
        raw.exec("INSERT INTO tokens VALUES ('h1','ada','admin',5,0), ('h2','bob','admin',6,90)");
    }
    const auto db = std::move(Database::open(old).value());
    const auto rows = TokenRecords{*db}.all();
    ASSERT_TRUE(rows.has_value());
    ASSERT_EQ(rows->size(), 2U);
    EXPECT_EQ((*rows)[0].sha256, "h1");
    EXPECT_EQ((*rows)[0].user, "ada");
    EXPECT_EQ((*rows)[0].role, "admin");
    EXPECT_EQ((*rows)[0].scopes, "");
    EXPECT_EQ((*rows)[0].expires_at, 0);
    EXPECT_EQ((*rows)[0].revoked_at, 0);
    EXPECT_EQ((*rows)[1].created_at, 6);
    EXPECT_EQ((*rows)[1].expires_at, 90);
    EXPECT_EQ((*rows)[0].id.size(), 15U);
    EXPECT_NE((*rows)[0].id, (*rows)[1].id);
}

TEST_F(DatabaseTest, EndedTokensAreForgottenAfterAWhile) {
    const auto add = [&](const std::string& id, UnixMillis expires, UnixMillis revoked) {
        TokenRow row;
        row.id = id;
        row.sha256 = "h" + id;
        row.expires_at = expires;
        row.revoked_at = revoked;
        EXPECT_TRUE(TokenRecords{*db_}.add(row).has_value());
    };
    add("endless", 0, 0);
    add("expired-long-ago", 99, 0);
    add("expired", 100, 0);
    add("revoked-long-ago", 0, 99);
    add("revoked", 0, 100);
    EXPECT_TRUE(TokenRecords{*db_}.remove_ended(100).has_value());
    std::set<std::string> left;
    const auto rows = TokenRecords{*db_}.all();
    for (const TokenRow& row : rows.value()) {
        left.insert(row.id);
    }
    EXPECT_EQ(left, (std::set<std::string>{"endless", "expired", "revoked"}));
}

TEST_F(DatabaseTest, ATokenThatIsRevokedTwiceWasRevokedTheFirstTime) {
    TokenRow row;
    row.id = "one";
    row.sha256 = "h";
    ASSERT_TRUE(TokenRecords{*db_}.add(row).has_value());
    ASSERT_TRUE(TokenRecords{*db_}.revoke("one", 5).has_value());
    ASSERT_TRUE(TokenRecords{*db_}.revoke("one", 9).has_value());
    const auto rows = TokenRecords{*db_}.all();
    ASSERT_EQ(rows->size(), 1U);
    EXPECT_EQ(rows->front().revoked_at, 5);
}

TEST_F(DatabaseTest, ATokenThatIsRevokedTakesAllThatWereMadeWithItAlong) {
    const std::vector<std::pair<std::string, std::string>> tokens{
        {"root", ""}, {"a", "root"}, {"a1", "a"}, {"a11", "a1"}, {"b", "root"}, {"other", ""}};
    for (const auto& [id, parent] : tokens) {
        TokenRow row;
        row.id = id;
        row.sha256 = "hash of " + id;
        row.parent = parent;
        ASSERT_TRUE(TokenRecords{*db_}.add(row).has_value());
    }
    ASSERT_TRUE(TokenRecords{*db_}.revoke("a1", 5).has_value());
    ASSERT_TRUE(TokenRecords{*db_}.revoke("a", 9).has_value());
    std::map<std::string, UnixMillis> revoked;
    const auto rows = TokenRecords{*db_}.all();
    ASSERT_TRUE(rows.has_value());
    for (const TokenRow& row : *rows) {
        revoked[row.id] = row.revoked_at;
    }
    const std::map<std::string, UnixMillis> expected{{"root", 0}, {"a", 9}, {"a1", 5},
                                                     {"a11", 5},  {"b", 0}, {"other", 0}};
    EXPECT_EQ(revoked, expected);
}

}  // namespace
}  // namespace lockstep
