// What a profile says of NCCL's operations, beside what the ranks' own processes record.
#include "job/agent/diagnostics/profile_taker.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/model/profile.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

class ProfileOfCollectives : public testing::Test {
  protected:
    // Of ranks whose processes have ended: nobody is asked.
    ProfileQuestion question(std::vector<std::int32_t> wanted) const {
        ProfileQuestion out;
        out.sockets = folder_.path();
        out.folder = folder_.path();
        out.generation = 2;
        out.number = 1;
        out.wanted = std::move(wanted);
        return out;
    }
    TemporaryFolder folder_;
    net::io_context io_{1};
    TaskGroup tasks_{io_};
    ProfileTaker taker_{tasks_};
    std::optional<wire::Profiled> done_;
    const ProfileTaker::Done keep_ = [this](wire::Profiled profiled) { done_ = profiled; };
};

TEST_F(ProfileOfCollectives, AreAFileOfEachRankThatHadAny) {
    const auto began = std::chrono::steady_clock::now();
    ProfileQuestion asked = question({4, 5, 6, 7, 8});
    for (const std::int32_t living : {5, 8}) {
        wire::StartedRank one;
        one.rank = living;
        one.pid = ::getpid();
        asked.living.push_back(one);
    }
    taker_.take(
        std::move(asked),
        [](std::int32_t rank) {
            return rank == 4   ? std::optional{PostedCollectives{"all_reduce 7 GB/s", true}}
                   : rank == 6 ? std::nullopt
                               : std::optional{PostedCollectives{"", rank == 8}};
        },
        keep_);
    io_.run();
    ASSERT_TRUE(done_);
    EXPECT_GE(std::chrono::steady_clock::now() - began, limits::kInspectorPost)
        << "before, nothing is posted";
    ASSERT_EQ(done_->ranks.size(), 5U);
    ASSERT_EQ(done_->ranks[0].files.size(), 1U);
    EXPECT_EQ(done_->ranks[0].files[0].name, "collectives.txt");
    EXPECT_EQ(done_->ranks[0].files[0].size, 17);
    EXPECT_EQ(done_->ranks[0].missing.size(), 1U) << "its own processes' part";
    const auto file = folder_.path() / "profile/gen-2/take-1/rank-00004/collectives.txt";
    EXPECT_EQ(read_file(file, 100).value_or(""), "all_reduce 7 GB/s");
    EXPECT_TRUE(done_->ranks[1].files.empty());
    ASSERT_EQ(done_->ranks[1].missing.size(), 2U);
    EXPECT_EQ(done_->ranks[1].missing[1].what, "collectives.txt");
    EXPECT_EQ(done_->ranks[1].missing[1].why, kNoCollectivesEver);
    EXPECT_TRUE(done_->ranks[2].files.empty());
    EXPECT_EQ(done_->ranks[2].missing.size(), 1U);
    EXPECT_EQ(done_->ranks[3].missing.size(), 1U) << "it has ended";
    ASSERT_EQ(done_->ranks[4].missing.size(), 2U);
    EXPECT_THAT(done_->ranks[4].missing[1].why, HasSubstr("has posted nothing meanwhile"));
}

TEST_F(ProfileOfCollectives, ThereAreNoneWithoutAnInspector) {
    taker_.take(question({4}), nullptr, keep_);
    io_.run();
    ASSERT_TRUE(done_);
    EXPECT_TRUE(done_->ranks[0].files.empty());
    EXPECT_EQ(done_->ranks[0].missing.size(), 1U);
}

// Else what is posted of them would go on being kept, until the next profile.
TEST_F(ProfileOfCollectives, AreOverWhereTheFileSystemDoesNotAnswer) {
    const auto unanswered = [&] {
        return done_ && done_->ranks.size() == 2 && !done_->ranks[0].missing.empty() &&
               done_->ranks[0].missing[0].why.find("file system") != std::string::npos;
    };
    // Its time is over before it begins. On a busy machine what is to be late may be first.
    for (int tried = 0; tried < 50 && !unanswered(); ++tried) {
        ProfileQuestion late = question({4, 5});
        late.seconds = -1000;
        std::vector<std::int32_t> ended;
        taker_.take(
            std::move(late),
            [&](std::int32_t rank) {
                ended.push_back(rank);
                return std::optional{PostedCollectives{"all_reduce 7 GB/s", true}};
            },
            keep_);
        io_.restart();
        io_.run();
        EXPECT_EQ(ended, (std::vector<std::int32_t>{4, 5}));
    }
    ASSERT_TRUE(unanswered());
    EXPECT_TRUE(done_->ranks[0].files.empty());
}

TEST_F(ProfileOfCollectives, AreNotAskedForOnceItIsStopped) {
    bool asked = false;
    taker_.take(
        question({4}),
        [&](std::int32_t) -> std::optional<PostedCollectives> {
            asked = true;
            return std::nullopt;
        },
        keep_);
    io_.run_for(300ms);
    taker_.stop();
    io_.run();
    EXPECT_FALSE(asked);
    EXPECT_FALSE(done_);
}

}  // namespace
}  // namespace lockstep::test
