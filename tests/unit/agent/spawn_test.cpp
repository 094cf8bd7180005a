#include "job/agent/ranks/spawn.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

TEST(FindProgram, LooksThroughThePathAsAShellDoes) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "a");
    std::filesystem::create_directories(folder / "b/tool");  // a folder is no program
    ASSERT_TRUE(write_file_atomic(folder / "a/tool", "#!/bin/sh\n", 0644));
    const std::string path = (folder / "b").string() + ":" + (folder / "a").string();
    const auto refused = find_program("tool", path, "/");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::denied);
    EXPECT_EQ(refused.error().message,
              "command is not executable: " + (folder / "a/tool").string());
    ASSERT_TRUE(write_file_atomic(folder / "a/tool", "#!/bin/sh\n", 0755));
    EXPECT_EQ(find_program("tool", path, "/"), (folder / "a/tool").string());
}

TEST(FindProgram, ASlashMeansAPathRelativeToTheWorkingDirectory) {
    const TemporaryFolder folder;
    ASSERT_TRUE(write_file_atomic(folder / "run.sh", "", 0755));
    EXPECT_EQ(find_program("./run.sh", "/bin", folder.path().string()),
              folder.path().string() + "/./run.sh");
    const auto missing = find_program("run.sh", "/nowhere", folder.path().string());
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().message, "command not found: run.sh");
    EXPECT_FALSE(find_program("", "/bin", "/"));
    EXPECT_TRUE(find_program("sh", "/nowhere:/bin", "/"));
}

}  // namespace
}  // namespace lockstep::test
