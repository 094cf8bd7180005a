// Slurm in each user's own name: whose token is whose, and that nobody's jobs hang on another's.
#include "scheduler-integration/slurm/slurm_users.hpp"

#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/slurm/fake_slurm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>
#include <stdexcept>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class ManualClock final : public Clock {
  public:
    UnixMillis wall() const override { return now; }
    std::chrono::steady_clock::time_point steady() const override {
        return std::chrono::steady_clock::now();
    }
    UnixMillis now = 1'000'000'000'000;
};

// As Slurm makes them (auth/jwt): header, claims, signature; base 64 for URLs, unpadded.
std::string jwt(const std::string& claims) {
    const auto encode = [](const std::string& text) {
        std::string out = base64_encode(text);
        out.erase(out.find_last_not_of('=') + 1);
        std::replace(out.begin(), out.end(), '+', '-');
        std::replace(out.begin(), out.end(), '/', '_');
        return out;
    };
    return encode(R"({"alg":"HS256","typ":"JWT"})") + "." + encode(claims) + ".c2lnbmF0dXJl";
}
std::string token_of(const std::string& user, std::int64_t expires = 1'000'003'600) {
    return jwt(R"({"exp":)" + std::to_string(expires) + R"(,"iat":1000000000,"sun":")" + user +
               "\"}");
}

class SlurmTokensTest : public testing::Test {
  protected:
    const test::TemporaryFolder folder_;
    ManualClock clock_;
    SlurmTokens tokens_{clock_, folder_ / "tokens"};
};

TEST(SlurmToken, SaysWhoseItIsAndUntilWhen) {
    const auto claims = read_slurm_token("SLURM_JWT=" + token_of("alice") + "\n");
    ASSERT_TRUE(claims.has_value());
    EXPECT_EQ(claims->user, "alice");
    EXPECT_EQ(claims->expires, 1'000'003'600);
    EXPECT_EQ(read_slurm_token(jwt("{}"))->expires, 0);
}

TEST(SlurmToken, WhatIsNoneIsRefused) {
    const std::string good = token_of("alice");
    for (const std::string& bad :
         {std::string{}, std::string{"x"}, std::string{"a.b"}, good + ".x", good + "\r\nX-Evil: 1",
          "." + good, good.substr(0, good.rfind('.') + 1), jwt("[]"), jwt("no json"),
          std::string(9'000, 'a')}) {
        EXPECT_FALSE(read_slurm_token(bad).has_value()) << bad;
    }
    // Deep JSON in the claims must not be walked down.
    EXPECT_FALSE(read_slurm_token(jwt(std::string(4'000, '['))).has_value());
}

TEST_F(SlurmTokensTest, OnlyOnesOwnLivingTokenIsTaken) {
    EXPECT_THAT(tokens_.put("bob", token_of("alice")).error().message, HasSubstr("of alice"));
    EXPECT_THAT(tokens_.put("alice", token_of("alice", 999'999'999)).error().message,
                HasSubstr("has expired"));
    for (const char* user : {"root", "", "../alice", "Alice", "a/b", "alice\n"}) {
        EXPECT_FALSE(tokens_.put(user, token_of(user)).has_value()) << user;
    }
    EXPECT_TRUE(tokens_.users().empty());
    EXPECT_FALSE(std::filesystem::exists(folder_ / "tokens"));
    ASSERT_TRUE(tokens_.put("alice", token_of("alice")).has_value());
    EXPECT_EQ(tokens_.get("alice"), token_of("alice"));
    EXPECT_EQ(tokens_.get("bob"), "");
}

TEST_F(SlurmTokensTest, ARestartFindsThemAndOthersDoNot) {
    ASSERT_TRUE(tokens_.put("alice", token_of("alice")).has_value());
    struct stat info{};
    ASSERT_EQ(::stat((folder_ / "tokens/alice").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    ASSERT_TRUE(write_file_atomic(folder_ / "tokens/bob", "damaged", 0600).has_value());
    SlurmTokens later{clock_, folder_ / "tokens"};
    later.load();
    EXPECT_THAT(later.users(), ElementsAre("alice"));
    ASSERT_TRUE(later.forget("alice").has_value());
    ASSERT_TRUE(later.forget("alice").has_value()) << "again is no error";
    EXPECT_FALSE(std::filesystem::exists(folder_ / "tokens/alice"));
}

TEST_F(SlurmTokensTest, AnEndedOneIsToldWithWhatToDo) {
    ASSERT_TRUE(tokens_.put("alice", token_of("alice")).has_value());
    EXPECT_TRUE(tokens_.usable("alice").has_value());
    clock_.now += 3'600'000;
    const Status ended = tokens_.usable("alice");
    EXPECT_EQ(ended.error().code, Errc::denied);
    EXPECT_THAT(ended.error().message, HasSubstr("has expired; run: scontrol token"));
    EXPECT_THAT(tokens_.usable("bob").error().message, HasSubstr("no Slurm token of bob"));
}

class SlurmUsersTest : public testing::Test {
  protected:
    void SetUp() override {
        SlurmScheduler::Options options;
        options.agent_path = "/usr/bin/lockstep-agent";
        options.poll_min = 10ms;
        options.poll_max = 50ms;
        options.reads_per_second = 100;
        users_ = std::make_unique<SlurmUsers>(
            io_, clock_,
            [this](const std::string& user, SlurmUsers::Token token) {
                auto fake = std::make_unique<FakeSlurm>(io_);
                fake->answers = !silent_.contains(user);
                slurms_[user] = fake.get();
                tokens_[user] = std::move(token);
                return fake;
            },
            options, folder_ / "tokens");
        wait<Status>(users_->begin());
    }
    void TearDown() override {
        auto stop = [this]() -> Task<Status> {
            co_await users_->stop();
            co_return Status{};
        };
        wait<Status>(stop());
    }
    template <class T>
    T wait(Task<T> task) {
        std::optional<T> out;
        auto run = [&out](Task<T> inner) -> Task<void> { out.emplace(co_await std::move(inner)); };
        net::co_spawn(io_, run(std::move(task)), net::detached);
        io_.restart();
        while (!out) {
            io_.run_one();
        }
        return std::move(*out);
    }
    // Throws, which fails and ends the test, if it never holds.
    void until(const std::function<bool()>& condition) {
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (!condition()) {
            if (std::chrono::steady_clock::now() >= deadline) {
                throw std::runtime_error("it never came to that");
            }
            io_.restart();
            io_.run_one_for(5ms);
        }
    }
    AttemptRequest request(const std::string& user, char last) {
        AttemptRequest out;
        out.job = JobId{std::string{"ls-01J0000000000000000000000"} + last};
        out.user = user;
        out.name = "t";
        out.resources.time_limit_seconds = 600;
        out.directory = (folder_ / (out.job.value + "/a1")).string();
        std::filesystem::create_directories(out.directory);
        return out;
    }
    bool hand_over(AttemptRequest& what) {
        const Handover answer = wait<Handover>(users_->submit(what));
        what.intent_is_fresh = answer.kind == Handover::Kind::again;
        what.intent_at = what.intent_is_fresh ? clock_.wall() : what.intent_at;
        return answer.kind == Handover::Kind::placed;
    }

    const test::TemporaryFolder folder_;
    net::io_context io_{1};
    ManualClock clock_;
    std::set<std::string> silent_;
    std::map<std::string, FakeSlurm*> slurms_;
    std::map<std::string, SlurmUsers::Token> tokens_;
    std::unique_ptr<SlurmUsers> users_;
};

// However its users are told apart.
TEST_F(SlurmUsersTest, SlurmKeepsTheTimeLimit) {
    EXPECT_TRUE(users_->keeps_time_limit());
}

TEST_F(SlurmUsersTest, EachJobGoesToSlurmInItsOwnUsersName) {
    ASSERT_TRUE(users_->put("alice", token_of("alice")).has_value());
    ASSERT_TRUE(users_->put("bob", token_of("bob")).has_value());
    EXPECT_EQ(tokens_["alice"](), token_of("alice"));
    EXPECT_EQ(tokens_["bob"](), token_of("bob"));
    AttemptRequest of_alice = request("alice", 'A');
    AttemptRequest of_bob = request("bob", 'B');
    until([&] { return hand_over(of_alice) && hand_over(of_bob); });
    EXPECT_EQ(slurms_["alice"]->names.size(), 1U);
    EXPECT_EQ(slurms_["alice"]->names.begin()->second, of_alice.job.value);
    EXPECT_EQ(slurms_["bob"]->names.begin()->second, of_bob.job.value);
    EXPECT_EQ(users_->counters().submitted, 2U);

    wait<Status>(users_->cancel(of_bob.job, 1));
    EXPECT_EQ(slurms_["bob"]->cancelled.size(), 1U);
    EXPECT_TRUE(slurms_["alice"]->cancelled.empty());
}

TEST_F(SlurmUsersTest, ARenewedTokenIsUsedAtOnce) {
    ASSERT_TRUE(users_->put("alice", token_of("alice")).has_value());
    ASSERT_TRUE(users_->put("alice", token_of("alice", 1'000'007'200)).has_value());
    EXPECT_EQ(tokens_["alice"](), token_of("alice", 1'000'007'200));
    EXPECT_EQ(users_->good_until("alice"), 1'000'007'200'000);
    ASSERT_TRUE(users_->forget("alice").has_value());
    EXPECT_EQ(tokens_["alice"](), "");
}

TEST_F(SlurmUsersTest, OneUsersSilentSlurmHoldsUpNobodyElse) {
    silent_.insert("alice");
    ASSERT_TRUE(users_->put("alice", token_of("alice")).has_value());
    ASSERT_TRUE(users_->put("bob", token_of("bob")).has_value());
    AttemptRequest of_alice = request("alice", 'A');
    AttemptRequest of_bob = request("bob", 'B');
    until([&] {
        EXPECT_FALSE(hand_over(of_alice));
        return hand_over(of_bob);
    });
    const Handover waits = wait<Handover>(users_->submit(of_alice));
    EXPECT_EQ(waits.kind, Handover::Kind::wait);
    EXPECT_THAT(waits.reason, HasSubstr("no controller"));
    EXPECT_TRUE(wait<Status>(users_->ping()).has_value()) << "Slurm answers somebody";
    EXPECT_TRUE(users_->cluster().reachable);
}

TEST_F(SlurmUsersTest, NobodyIsAdmittedWithoutATokenOrAUnixUser) {
    EXPECT_THAT(users_->admit_user("daemon").error().message, HasSubstr("no Slurm token"));
    ASSERT_TRUE(users_->put("daemon", token_of("daemon")).has_value());
    EXPECT_TRUE(users_->admit_user("daemon").has_value());
    ASSERT_TRUE(users_->put("nobody-of-here", token_of("nobody-of-here")).has_value());
    EXPECT_THAT(users_->admit_user("nobody-of-here").error().message, HasSubstr("not a Unix user"));
}

TEST_F(SlurmUsersTest, AfterARestartNothingIsAbsentBeforeSlurmWasAsked) {
    AttemptRequest known = request("alice", 'A');
    EXPECT_EQ(wait<Observation>(users_->poll(known.job, 1)).kind, Observation::Kind::unreachable);
    known.scheduler_id = "17";
    known.intent_at = clock_.wall();
    silent_.insert("alice");  // no token yet: it answers nothing
    EXPECT_FALSE(wait<Result<bool>>(users_->adopt(known)).has_value());
    EXPECT_EQ(wait<Observation>(users_->poll(known.job, 1)).kind, Observation::Kind::unreachable);
}

}  // namespace
}  // namespace lockstep
