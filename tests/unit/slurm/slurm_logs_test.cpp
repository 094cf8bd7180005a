#include "scheduler-integration/slurm/slurm_logs.hpp"

#include "job/base/files.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

class LaunchWords : public testing::Test {
  protected:
    void write(const std::string& name, const std::string& text) {
        ASSERT_TRUE(replace_file((folder_ / name).string(), text, 0600));
    }
    std::string words(std::int32_t node) const {
        return slurm::find_launch_words(folder_.path(), node);
    }
    test::TemporaryFolder folder_;
};

// As Slurm 22.05 wrote it where the program was on no such path of that node.
TEST_F(LaunchWords, AreTheStepDaemonsOwnOfAProgramThatIsNotThere) {
    const std::string line =
        "slurmstepd-n3: error: execve(): /opt/lockstep-agent: No such file or directory";
    write("agent-00002.log", line + "\n");
    write("batch.log", "srun: error: n3: task 2: Exited with exit code 2\n");
    EXPECT_EQ(words(2), line);
}

// As it wrote where the folder of the attempt was not there on the node.
TEST_F(LaunchWords, AreSrunsOfATaskThatWasNotLaunched) {
    write("batch.log", "srun: error: task 2 launch failed: Slurmd could not connect IO\n");
    EXPECT_EQ(words(2), "srun: error: task 2 launch failed: Slurmd could not connect IO");
    EXPECT_EQ(words(1), "");
    EXPECT_EQ(words(12), "");
}

TEST_F(LaunchWords, AreNotAnAgentsOwn) {
    write("agent-00000.log", "slurmstepd-n1: error: a warning\nts=… msg=connected\n");
    EXPECT_EQ(words(0), "");
    EXPECT_EQ(words(7), "");
}

}  // namespace
}  // namespace lockstep
