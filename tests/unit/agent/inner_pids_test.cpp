#include "job/agent/ranks/inner_pids.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace lockstep::test {
namespace {

class InnerPidsTest : public testing::Test {
  protected:
    void process(pid_t pid, const std::string& numbers) {
        const auto folder = proc_.path() / std::to_string(pid);
        std::filesystem::create_directories(folder);
        std::ofstream{folder / "status"} << "Name:\ta\nPid:\t" << pid << "\nNSpid:" << numbers
                                         << "\nThreads:\t1\n";
    }
    InnerPids look() const { return inner_pids({{10, 3}, {20, 4}}, children_, proc_.path()); }

    TemporaryFolder proc_;
    std::multimap<pid_t, pid_t> children_{{10, 11}, {11, 12}, {20, 21}};
};

TEST_F(InnerPidsTest, AProcessInAContainerIsKnownByItsOwnNumber) {
    process(10, "\t10");
    process(11, "\t11\t1");
    process(12, "\t12\t7\t2");
    process(20, "\t20");
    process(21, "\t21\t8");
    const InnerPids seen = look();
    EXPECT_TRUE(seen.nested);
    const std::map<std::int64_t, std::uint32_t> ranks{{10, 3}, {1, 3}, {2, 3}, {20, 4}, {8, 4}};
    EXPECT_EQ(seen.ranks, ranks);
    EXPECT_TRUE(seen.ambiguous.empty());
}

TEST_F(InnerPidsTest, ANumberOfTwoRanksIsOfNeither) {
    process(10, "\t10");
    process(11, "\t11\t1");
    process(20, "\t20");
    process(21, "\t21\t1");
    const InnerPids seen = look();
    EXPECT_FALSE(seen.ranks.contains(1));
    EXPECT_EQ(seen.ambiguous, std::set<std::int64_t>{1});
}

TEST_F(InnerPidsTest, WithoutNamespacesNothingIsNested) {
    process(10, "\t10");
    process(11, "\t11");
    const InnerPids seen = look();  // the others are gone
    EXPECT_FALSE(seen.nested);
    EXPECT_EQ(seen.ranks.size(), 2U);
}

TEST_F(InnerPidsTest, AStatusThatSaysNothingIsNoProcess) {
    process(10, "");
    process(11, "\tx");
    process(20, "\t20\t");
    EXPECT_TRUE(look().ranks.empty());
}

}  // namespace
}  // namespace lockstep::test
