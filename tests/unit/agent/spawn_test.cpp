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

// Every failure was the user's, also of a node that could start no process any more.
TEST(SpawnRank, OnlyArgumentsThatAreTooLongAreTheJobsFault) {
    SpawnRequest request;
    request.agent_program = "/bin/true";
    request.program = "/bin/true";
    request.argv = {"true", std::string(4U << 20U, 'x')};
    request.directory = "/";
    const auto too_long = spawn_rank(request);
    ASSERT_FALSE(too_long);
    EXPECT_EQ(too_long.error().code, Errc::invalid);
    EXPECT_EQ(too_long.error().message, "start /bin/true: Argument list too long");
    request.argv = {"true"};
    request.agent_program = "/nowhere/lockstep-agent";
    const auto no_shim = spawn_rank(request);
    ASSERT_FALSE(no_shim);
    EXPECT_EQ(no_shim.error().code, Errc::unavailable);
}

}  // namespace
}  // namespace lockstep::test
