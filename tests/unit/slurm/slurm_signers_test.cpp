// Which of a user's signatures is used for what any of them allows, and which are kept.
#include "scheduler-integration/slurm/slurm_signers.hpp"

#include "job/base/digest.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/slurm/fake_exec.hpp"

#include <gmock/gmock.h>

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

class SlurmSignersTest : public testing::Test {
  protected:
    void SetUp() override {
        if (::geteuid() != 0) {
            GTEST_SKIP() << "lockstepd talks to root's lockstep-exec alone";
        }
        restart();
    }
    // What lockstepd knew is gone, its files are there.
    void restart(std::chrono::milliseconds open_patience = seconds{20}) {
        signers_.reset();
        auto client = std::make_shared<ExecClient>((folder_ / "socket").string());
        auto begun = SlurmSigners::begin(std::move(client), signatures_, false, open_patience);
        ASSERT_TRUE(begun) << begun.error().message;
        signers_ = std::move(*begun);
    }
    std::string take(const std::string& statement) {
        std::optional<Result<std::string>> out;
        net::io_context io;
        const auto run = [&]() -> Task<void> {
            Signature signature;
            signature.credential = "MUNGE:AAAA:";
            out = co_await signers_->take("ada", signature, statement, "document");
        };
        net::co_spawn(io, run(), net::detached);
        io.run();
        EXPECT_TRUE(out && *out);
        // No two are of one time.
        fs::last_write_time(file(statement), fs::file_time_type::clock::now() + seconds{++taken_});
        return **out;
    }
    fs::path file(const std::string& statement) const {
        return signatures_ / "ada" / (sha256_hex(statement) + ".json");
    }
    std::vector<std::string> files() const {
        std::vector<std::string> out;
        for (const auto& one : fs::directory_iterator{signatures_ / "ada"}) {
            out.push_back(one.path().stem().string());
        }
        return out;
    }
    Result<ExecReply> ask() {
        {
            const std::lock_guard lock{mutex_};
            asked_.clear();
        }
        ExecOrder order;
        order.what = exec::What::jobs;
        order.fence = "abc";
        return signers_->ask("ada", order, seconds{20});
    }
    template <class Change>
    void change(Change what) {
        const std::lock_guard lock{mutex_};
        what();
    }
    // The statements that came with the last question.
    std::vector<std::string> asked() {
        const std::lock_guard lock{mutex_};
        return asked_;
    }
    std::optional<std::pair<exec::Status, std::string>> answer(const exec::Order& order) {
        const auto what = static_cast<exec::What>(order.what);
        if (what == exec::What::about) {
            return std::pair{exec::Status::done,
                             std::string{"audience test\nruns /runs\nagent /agent\n"}};
        }
        const std::lock_guard lock{mutex_};
        if (what != exec::What::signature) {
            asked_.emplace_back(order.statement);
        }
        if (stands_still_ && order.verb == static_cast<std::uint32_t>(exec::Verb::open_log)) {
            return std::nullopt;
        }
        if (ended_.contains(order.statement) || (refuses_ && what != exec::What::signature)) {
            return std::pair{exec::Status::refused, std::string{"no"}};
        }
        const std::string said = what == exec::What::signature ? "ada 9999999999" : "";
        return std::pair{exec::Status::done, said};
    }

    const test::TemporaryFolder folder_;
    const fs::path signatures_ = folder_ / "signatures";
    std::mutex mutex_;
    std::vector<std::string> asked_;
    std::set<std::string> ended_;  // statements whose signatures are not good any more
    bool refuses_ = false;         // whatever the signature
    bool stands_still_ = false;    // the file system of the attempts
    int taken_ = 0;
    FakeExec exec_{folder_ / "socket", [this](const exec::Order& order) { return answer(order); }};
    std::unique_ptr<SlurmSigners> signers_;
};

// It was whichever file came first, for good: one that was too old, and no query was answered.
TEST_F(SlurmSignersTest, AfterARestartTheNewestIsUsed) {
    take("one\n");
    take("two\n");
    take("three\n");
    restart();
    ASSERT_TRUE(ask());
    EXPECT_THAT(asked(), ElementsAre("three\n"));
}

TEST_F(SlurmSignersTest, OneThatIsNotGoodAnyMoreIsFollowedByTheNext) {
    take("one\n");
    take("two\n");
    restart();
    change([this] { ended_ = {"two\n"}; });
    const auto reply = ask();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, exec::Status::done);
    EXPECT_THAT(asked(), ElementsAre("two\n", "one\n"));
    ASSERT_TRUE(ask());
    EXPECT_THAT(asked(), ElementsAre("one\n")) << "it is not tried at each question";
    take("three\n");
    ASSERT_TRUE(ask());
    EXPECT_THAT(asked(), ElementsAre("three\n"));
}

TEST_F(SlurmSignersTest, WhatIsRefusedForItselfIsAskedOnce) {
    take("one\n");
    take("two\n");
    change([this] { refuses_ = true; });
    const auto reply = ask();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, exec::Status::refused);
    EXPECT_THAT(asked(), ElementsAre("two\n"));
    change([this] { refuses_ = false; });
    ASSERT_TRUE(ask());
    EXPECT_THAT(asked(), ElementsAre("two\n"));
}

// All were refused while the configuration was wrong.
TEST_F(SlurmSignersTest, WhenNoneIsLeftTheyAreTriedAgain) {
    take("one\n");
    change([this] { ended_ = {"one\n"}; });
    ASSERT_TRUE(ask());
    change([this] { ended_.clear(); });
    const auto reply = ask();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, exec::Status::done);
}

// With the newest go the user's queries, and what Slurm still has of removed jobs.
TEST_F(SlurmSignersTest, OfThoseThatNoJobNeedsTheNewestStaysForQueries) {
    const std::string one = take("one\n");
    const std::string two = take("two\n");
    ASSERT_TRUE(signers_->forget("ada", one));
    EXPECT_THAT(files(), ElementsAre(two));
    ASSERT_TRUE(signers_->forget("ada", two));
    EXPECT_THAT(files(), ElementsAre("spare"));
    EXPECT_FALSE(signers_->kept("ada", two));
    for (const bool after_a_restart : {false, true}) {
        if (after_a_restart) {
            restart();
        }
        ASSERT_TRUE(ask());
        EXPECT_THAT(asked(), ElementsAre("two\n"));
    }
    const std::string three = take("three\n");
    EXPECT_THAT(files(), UnorderedElementsAre("spare", three));
    ASSERT_TRUE(signers_->forget("ada", three));
    EXPECT_THAT(files(), ElementsAre("spare"));
    restart();
    ASSERT_TRUE(ask());
    EXPECT_THAT(asked(), ElementsAre("three\n"));
}

// Each took 20 s of the control thread, and after three systemd ended lockstepd.
TEST_F(SlurmSignersTest, WhileAFileSystemStandsStillOneFileIsWaitedForAndNotEach) {
    take("one\n");
    restart(std::chrono::milliseconds{50});
    change([this] { stands_still_ = true; });
    const std::string attempt = "/runs/ada/ls-01ARZ3NDEKTSV4RRFFQ69G5FAV/a1/";
    const auto waited_for = signers_->open(attempt + "node-00000.result.json");
    ASSERT_FALSE(waited_for);
    EXPECT_EQ(waited_for.error().code, Errc::timed_out);
    const auto next = signers_->open(attempt + "node-00001.result.json");
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().code, Errc::timed_out);
    EXPECT_THAT(next.error().message, testing::HasSubstr("have just not been opened"));
}

}  // namespace
}  // namespace lockstep
