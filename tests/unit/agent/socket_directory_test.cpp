// Where the report sockets lie, on a machine with other users.
#include "job/agent/ranks/socket_directory.hpp"

#include "job/agent/ranks/last_words.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class SocketFolder : public testing::Test {
  protected:
    static std::string shared_name() { return "lockstep-" + std::to_string(::geteuid()); }
    fs::path shared() const { return base_ / shared_name(); }
    // A folder for this agent alone, beside the name that is taken.
    void expect_own(const SocketDirectory& made) const {
        const fs::path path{made.path()};
        EXPECT_EQ(path.parent_path(), base_.path());
        EXPECT_TRUE(path.filename().string().starts_with(shared_name() + "-")) << path;
        struct stat info{};
        ASSERT_EQ(::lstat(path.c_str(), &info), 0);
        EXPECT_TRUE(S_ISDIR(info.st_mode));
        EXPECT_EQ(info.st_uid, ::geteuid());
        EXPECT_EQ(info.st_mode & 0777U, 0700U);
    }

    test::TemporaryFolder base_;
};

TEST_F(SocketFolder, AgentsOfAUserShareAPrivateFolder) {
    const auto first = SocketDirectory::create({base_.path().string()});
    const auto second = SocketDirectory::create({base_.path().string()});
    ASSERT_TRUE(first.has_value()) << first.error().message;
    ASSERT_TRUE(second.has_value()) << second.error().message;
    EXPECT_EQ(fs::path{first->path()}.parent_path(), shared());
    EXPECT_EQ(fs::path{second->path()}.parent_path(), shared());
    EXPECT_NE(first->path(), second->path());
}

TEST_F(SocketFolder, ANameThatOthersCanWriteToIsNotUsed) {
    ASSERT_EQ(::mkdir(shared().c_str(), 0700), 0);
    ASSERT_EQ(::chmod(shared().c_str(), 0777), 0);
    std::string path;
    {
        const auto made = SocketDirectory::create({base_.path().string()});
        ASSERT_TRUE(made.has_value()) << made.error().message;
        expect_own(*made);
        path = made->path();
    }
    EXPECT_FALSE(fs::exists(path)) << "it goes with the agent";
    EXPECT_TRUE(fs::is_empty(shared())) << "nothing was put there";
}

TEST_F(SocketFolder, ALinkOrAFileUnderTheNameIsNotFollowed) {
    const test::TemporaryFolder elsewhere;
    fs::create_directory_symlink(elsewhere.path(), shared());
    {
        const auto made = SocketDirectory::create({base_.path().string()});
        ASSERT_TRUE(made.has_value()) << made.error().message;
        expect_own(*made);
        EXPECT_TRUE(fs::is_empty(elsewhere.path()));
    }
    fs::remove(shared());
    ASSERT_TRUE(replace_file(shared(), "squatted").has_value());
    const auto made = SocketDirectory::create({base_.path().string()});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    expect_own(*made);
    EXPECT_EQ(test::text_of(shared()), "squatted");
}

TEST_F(SocketFolder, ANameThatAnotherUserHasTakenDoesNotFailTheJob) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can give a folder to another user";
    }
    ASSERT_EQ(::mkdir(shared().c_str(), 0700), 0);
    ASSERT_EQ(::chown(shared().c_str(), 65'534, 65'534), 0);
    const auto made = SocketDirectory::create({base_.path().string()});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    expect_own(*made);
    EXPECT_TRUE(fs::is_empty(shared()));
}

TEST_F(SocketFolder, WhatAKilledAgentLeftBesideATakenNameIsRemoved) {
    ASSERT_EQ(::mkdir(shared().c_str(), 0777), 0);
    ASSERT_EQ(::chmod(shared().c_str(), 0777), 0);
    const fs::path left = base_ / (shared_name() + "-aaaaaa");
    const fs::path young = base_ / (shared_name() + "-bbbbbb");
    const fs::path others = base_ / (shared_name() + "7-cccccc");
    for (const fs::path& one : {left, young, others}) {
        ASSERT_EQ(::mkdir(one.c_str(), 0700), 0);
    }
    const auto old = fs::file_time_type::clock::now() - std::chrono::hours{1};
    fs::last_write_time(left, old);
    fs::last_write_time(others, old);
    const auto held = SocketDirectory::create({base_.path().string()});
    ASSERT_TRUE(held.has_value()) << held.error().message;
    EXPECT_FALSE(fs::exists(left));
    EXPECT_TRUE(fs::exists(young)) << "its agent may be about to lock it";
    EXPECT_TRUE(fs::exists(others)) << "of the user whose number is longer";
    fs::last_write_time(held->path(), old);
    const auto second = SocketDirectory::create({base_.path().string()});
    ASSERT_TRUE(second.has_value()) << second.error().message;
    EXPECT_TRUE(fs::exists(held->path())) << "its agent lives";
}

TEST_F(SocketFolder, TheNextBaseIsTriedAndTheReasonsAreTold) {
    const std::string missing = (base_ / "missing").string();
    const auto none = SocketDirectory::create({missing});
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code, Errc::unavailable);
    EXPECT_NE(none.error().message.find("mkdir " + missing), std::string::npos)
        << none.error().message;
    const auto made = SocketDirectory::create({missing, base_.path().string()});
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_EQ(fs::path{made->path()}.parent_path(), shared());
}

TEST_F(SocketFolder, ItsPathsFitASocketAddress) {
    // The longest that create() itself makes: a base of 39 bytes and the largest number of a user.
    const std::string longest =
        std::string(39, 'x') + "/lockstep-4294967295-XXXXXX" + "/r00000.sock";
    EXPECT_LT(longest.size(), sizeof(sockaddr_un{}.sun_path));
    const auto made = SocketDirectory::create();
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_LT(made->socket_path(1023).size(), sizeof(sockaddr_un{}.sun_path));
    EXPECT_LT(made->task_path().size(), sizeof(sockaddr_un{}.sun_path));
}

TEST(LastWords, AreReadByTheDaemon) {
    const test::TemporaryFolder attempt;
    leave_last_words(attempt.path(), 3, {"i", "n3", "it could not start: no folder"});
    const auto text = read_plain_file(attempt / wire::gave_up_file_name(3), 10'000);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    const auto words = wire::decode_gave_up_file(*text);
    ASSERT_TRUE(words.has_value()) << words.error().message;
    EXPECT_EQ(words->node, "n3");
    EXPECT_EQ(words->reason, "it could not start: no folder");
}

}  // namespace
}  // namespace lockstep
