// Whose token is whose, until when, and what of it is kept.
#include "daemon/store/token_records.hpp"
#include "job/base/limits.hpp"
#include "tests/unit/access/access_fixture.hpp"

namespace lockstep {
namespace {

class TokenTableTest : public AccessTest {
  protected:
    // The store's own keeps the control thread at work; this one goes on without a store.
    std::optional<net::executor_work_guard<net::io_context::executor_type>> guard_;
};

TEST_F(TokenTableTest, OnlyTheHashOfASecretIsStored) {
    const Json made = make(root_, R"({"name":"ci","user":"bob","scopes":["read"]})");
    const std::string id = made["id"];
    const std::string secret = made["token"];
    EXPECT_TRUE(secret.starts_with("lks_"));
    EXPECT_EQ(secret.size(), 4U + 64U);  // 256 bits
    bool found = false;
    for (const TokenRow& row : stored()) {
        for (const std::string& text : {row.id, row.sha256, row.name, row.user, row.scopes}) {
            EXPECT_EQ(text.find(secret.substr(4)), std::string::npos);
        }
        found = found || (row.id == id && row.sha256 == sha256_hex(secret));
    }
    EXPECT_TRUE(found);
    EXPECT_FALSE(tokens_->authenticate(sha256_hex(secret + "x")));
    EXPECT_FALSE(tokens_->authenticate(secret));
}

TEST_F(TokenTableTest, ATokenEndsAtItsTime) {
    const std::string secret = secret_of(root_, R"({"name":"x","user":"bob","expires_in":60})");
    clock_.advance(std::chrono::milliseconds{59'999});
    EXPECT_EQ(who(secret).user, "bob");
    clock_.advance(std::chrono::milliseconds{1});
    EXPECT_FALSE(tokens_->authenticate(sha256_hex(secret)));
    restart_daemon();
    EXPECT_FALSE(tokens_->authenticate(sha256_hex(secret)));
}

TEST_F(TokenTableTest, ThirtyDaysUnlessSaidOtherwise) {
    const Json made = make(root_, R"({"name":"x"})");
    EXPECT_EQ(made["user"], "root");
    EXPECT_EQ(made["role"], "user");
    EXPECT_EQ(made["expires_at"], to_rfc3339(clock_.wall() + 30 * 86'400'000LL));
    const std::string secret = made["token"];
    clock_.advance(std::chrono::hours{24 * 30});
    EXPECT_FALSE(tokens_->authenticate(sha256_hex(secret)));
}

// For an alert: a program whose token has ended is refused, and nobody had been told.
TEST_F(TokenTableTest, TheFirstEndIsThatOfALongTokenInUse) {
    constexpr int kYear = 365 * 86'400;
    const auto made = [&](const std::string& name, const std::string& role, int seconds) {
        return make(
            root_,
            dump_json({{"name", name}, {"user", name}, {"role", role}, {"expires_in", seconds}}));
    };
    const Json year = made("prometheus", "viewer", kYear);
    const Json half = made("backup", "viewer", kYear / 2);
    const Json month = made("person", "viewer", 30 * 86'400);
    const UnixMillis begin = clock_.wall();
    EXPECT_TRUE(tokens_->first_ends().empty()) << "none has been used";
    const auto use = [&](const Json& token) {
        return tokens_->authenticate(sha256_hex(token["token"].get<std::string>())).has_value();
    };
    EXPECT_TRUE(use(month));
    EXPECT_TRUE(tokens_->first_ends().empty());
    EXPECT_TRUE(use(year));
    EXPECT_EQ(tokens_->first_ends().at("viewer"), begin + kYear * 1000LL);
    EXPECT_TRUE(use(half));
    EXPECT_EQ(tokens_->first_ends().at("viewer"), begin + kYear / 2 * 1000LL);
    clock_.advance(std::chrono::hours{49});
    EXPECT_TRUE(use(year));
    EXPECT_EQ(tokens_->first_ends().at("viewer"), begin + kYear * 1000LL) << "it has been replaced";
    EXPECT_EQ(call_as(root_, "DELETE /v1/tokens/" + year["id"].get<std::string>()).status, 204);
    EXPECT_TRUE(tokens_->first_ends().empty());
}

TEST_F(TokenTableTest, ARestartKeepsTokensAndRevocations) {
    const Json made = make(root_, R"({"name":"x","user":"bob","scopes":["metrics","read"]})");
    const std::string gone = made["token"];
    EXPECT_EQ(call_as(root_, "DELETE /v1/tokens/" + made["id"].get<std::string>()).status, 204);
    const std::string kept =
        secret_of(root_, R"({"name":"y","user":"bob","scopes":["metrics","read"]})");
    restart_daemon();
    EXPECT_FALSE(tokens_->authenticate(sha256_hex(gone)));
    const Principal bob = who(kept);
    EXPECT_EQ(bob.user, "bob");
    EXPECT_TRUE(allows(bob, Scope::read));
    EXPECT_FALSE(allows(bob, Scope::write));
    EXPECT_EQ(who(uma_).role, Role::user);
    EXPECT_EQ(who(vic_).role, Role::viewer);
}

TEST_F(TokenTableTest, ARevokedTokenIsRefusedBeforeTheStoreHasWrittenIt) {
    const Json made = make(root_, R"({"name":"x","user":"bob"})");
    const std::string hash = sha256_hex(made["token"].get<std::string>());
    bool done = false;
    auto revoke = [&]() -> Task<void> {
        Principal by = root_;
        std::string id = made["id"];
        const Status revoked = co_await tokens_->revoke(std::move(by), std::move(id));
        EXPECT_TRUE(revoked.has_value());
        done = true;
    };
    net::co_spawn(*io_, revoke(), net::detached);
    until([&] { return !tokens_->authenticate(hash); }, "it is refused");
    EXPECT_FALSE(done);
    until([&] { return done; }, "it is written");
}

TEST_F(TokenTableTest, ARevocationThatCannotBeWrittenStillHoldsAndSaysSo) {
    const Json made = make(root_, R"({"name":"x","user":"bob"})");
    guard_.emplace(io_->get_executor());
    store_->stop();
    EXPECT_EQ(call_as(root_, "DELETE /v1/tokens/" + made["id"].get<std::string>()).status, 507);
    EXPECT_FALSE(tokens_->authenticate(sha256_hex(made["token"].get<std::string>())));
    // And no token is handed out that a restart would forget.
    EXPECT_EQ(call_as(root_, "POST /v1/tokens", R"({"name":"y"})").status, 507);
}

TEST_F(TokenTableTest, UseIsWrittenAtMostOnceAMinute) {
    const auto last_used = [this] {
        wait(tasks_->join());
        for (const TokenRow& row : stored()) {
            if (row.user == "uma") {
                return row.last_used_at;
            }
        }
        return UnixMillis{-1};
    };
    EXPECT_EQ(last_used(), 0);
    const UnixMillis first = clock_.wall();
    who(uma_);
    EXPECT_EQ(tasks_->size(), 1U);
    EXPECT_EQ(last_used(), first);
    for (int second = 0; second < 59; ++second) {
        clock_.advance(std::chrono::seconds{1});
        who(uma_);
    }
    EXPECT_EQ(tasks_->size(), 0U);
    EXPECT_EQ(last_used(), first);
    clock_.advance(std::chrono::seconds{1});
    who(uma_);
    EXPECT_EQ(last_used(), first + 60'000);
}

TEST_F(TokenTableTest, AUsersTokensAreBoundedAndEndedOnesMakeRoom) {
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < limits::kTokensOfUser; ++i) {
        ids.push_back(make(root_, R"({"name":"x","user":"bob"})")["id"]);
    }
    const auto full = call_as(root_, "POST /v1/tokens", R"({"name":"x","user":"bob"})");
    EXPECT_EQ(full.status, 409);
    EXPECT_EQ(call_as(root_, "POST /v1/tokens", R"({"name":"x","user":"bo"})").status, 201);
    // However often one is made and revoked, what is kept of them is bounded.
    for (std::size_t i = 0; i < limits::kTokensOfUser + 20; ++i) {
        EXPECT_EQ(call_as(root_, "DELETE /v1/tokens/" + ids.back()).status, 204);
        clock_.advance(std::chrono::milliseconds{1});
        ids.back() = make(root_, R"({"name":"x","user":"bob"})")["id"];
    }
    const auto rows = stored();
    const auto of_bob = std::count_if(rows.begin(), rows.end(),
                                      [](const TokenRow& row) { return row.user == "bob"; });
    EXPECT_LE(static_cast<std::size_t>(of_bob), 2 * limits::kTokensOfUser);
}

TEST_F(TokenTableTest, ARoleThatThisProgramDoesNotKnowOpensNothing) {
    TokenRow row;
    row.id = "tk-0123456789ab";
    row.sha256 = sha256_hex("s");
    row.user = "bob";
    row.role = "emperor";
    TokenTable table{*store_, clock_, *tasks_, {row}};
    EXPECT_FALSE(table.authenticate(row.sha256));
    row.role = "user";
    row.scopes = "read teleport";
    TokenTable narrow{*store_, clock_, *tasks_, {row}};
    const auto bob = narrow.authenticate(row.sha256);
    ASSERT_TRUE(bob);
    EXPECT_TRUE(allows(*bob, Scope::read));
    EXPECT_FALSE(allows(*bob, Scope::write));
    wait(tasks_->join());
}

}  // namespace
}  // namespace lockstep
