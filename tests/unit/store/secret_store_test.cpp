#include "daemon/store/secret_store.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>

namespace lockstep {
namespace {

class SecretStoreTest : public ::testing::Test {
  protected:
    template <class T>
    T wait(Task<T> task) {
        net::io_context io;
        std::optional<T> out;
        auto run = [&out](Task<T> one) -> Task<void> { out = co_await std::move(one); };
        net::co_spawn(io, run(std::move(task)), net::detached);
        io.run();
        return std::move(*out);
    }
    bool put(const std::string& user, const std::string& name, const std::string& value) {
        return wait(store_.put(user, name, value)).has_value();
    }
    std::filesystem::path file(const std::string& user, const std::string& name) const {
        return folder_.path() / "secrets" / user / name;
    }

    const test::TemporaryFolder folder_;
    SecretStore store_{folder_.path() / "secrets"};
};

TEST_F(SecretStoreTest, OneIsAPrivateFileAndIsThereAfterARestart) {
    ASSERT_TRUE(put("ada", "KEY", "value\nof two lines"));
    struct stat info{};
    ASSERT_EQ(::stat(file("ada", "KEY").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    SecretStore next{folder_.path() / "secrets"};
    next.load();
    EXPECT_EQ(next.values("ada", {"KEY", "OTHER"}),
              (SecretStore::Values{{"KEY", "value\nof two lines"}}));
    EXPECT_EQ(next.missing("ada", {"KEY", "OTHER"}), std::vector<std::string>{"OTHER"});
    EXPECT_EQ(next.list("ada").front().set_at, store_.list("ada").front().set_at);
    EXPECT_TRUE(next.values("eve", {"KEY"}).empty());
}

TEST_F(SecretStoreTest, RemovedItsFileIsGoneAndTheFolderWithTheLast) {
    ASSERT_TRUE(put("ada", "KEY", "value"));
    EXPECT_EQ(wait(store_.remove("eve", "KEY")).error().code, Errc::not_found);
    ASSERT_TRUE(wait(store_.remove("ada", "KEY")).has_value());
    EXPECT_FALSE(std::filesystem::exists(file("ada", "KEY").parent_path()));
    EXPECT_EQ(wait(store_.remove("ada", "KEY")).error().code, Errc::not_found);
}

// What runs later would get it, and its owner would read that it is still there.
TEST_F(SecretStoreTest, RemovedItIsNeitherListedNorUsedAnyMore) {
    ASSERT_TRUE(put("ada", "KEY", "value"));
    ASSERT_TRUE(put("ada", "OTHER", "another"));
    ASSERT_TRUE(wait(store_.remove("ada", "KEY")).has_value());
    EXPECT_TRUE(store_.values("ada", {"KEY"}).empty());
    EXPECT_EQ(store_.missing("ada", {"KEY", "OTHER"}), std::vector<std::string>{"KEY"});
    ASSERT_EQ(store_.list("ada").size(), 1U);
    EXPECT_EQ(store_.list("ada").front().name, "OTHER");
    SecretStore next{folder_.path() / "secrets"};
    next.load();
    EXPECT_TRUE(next.values("ada", {"KEY"}).empty());
    EXPECT_EQ(next.list("ada").size(), 1U);
}

TEST_F(SecretStoreTest, NoUsersFolderIsAnothersOrLeadsElsewhere) {
    EXPECT_EQ(secret_folder_name("ada@host.org"), "ada@host.org");
    EXPECT_EQ(secret_folder_name("../x"), "%2E.%2Fx");
    EXPECT_EQ(secret_folder_name("a%2Fb"), "a%252Fb");
    EXPECT_EQ(secret_folder_name(".."), "%2E.");
    ASSERT_TRUE(put("../x", "KEY", "value"));
    SecretStore next{folder_.path() / "secrets"};
    next.load();
    EXPECT_EQ(next.list("../x").size(), 1U);
}

TEST_F(SecretStoreTest, AUserHasSoManyAndSoMuch) {
    for (std::size_t i = 0; i < limits::kSecretsOfUser; ++i) {
        ASSERT_TRUE(put("ada", "KEY" + std::to_string(i), "v"));
    }
    EXPECT_FALSE(put("ada", "ONE_MORE", "v"));
    EXPECT_TRUE(put("ada", "KEY0", "another value"));
    EXPECT_TRUE(put("eve", "ONE_MORE", "v"));
    const std::string large(limits::kSecretBytes, 'x');
    std::size_t kept = 0;
    while (kept < 100 && put("uma", "KEY" + std::to_string(kept), large)) {
        ++kept;
    }
    EXPECT_EQ(kept, limits::kSecretBytesOfUser / limits::kSecretBytes);
}

TEST_F(SecretStoreTest, WhatACrashHasLeftOfAWriteIsNoSecret) {
    ASSERT_TRUE(put("ada", "KEY", "value"));
    const auto half = file("ada", "KEY.tmp.17");
    ASSERT_TRUE(replace_file(half, "val", 0600).has_value());
    SecretStore next{folder_.path() / "secrets"};
    next.load();
    EXPECT_EQ(next.list("ada").size(), 1U);
    EXPECT_FALSE(std::filesystem::exists(half));
}

}  // namespace
}  // namespace lockstep
