// Stacks as CPython's faulthandler writes them, and who is to blame by them.
#include "job/model/python_stack.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// As seen of torch 1.13 with two threads.
constexpr const char* kInBackward = R"(Thread 0x00007f2b2b7fe6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/home/me/run/train.py", line 9 in log_forever

Current thread 0x00007f2b4ae0a040 (most recent call first):
  File "/usr/lib/python3/dist-packages/torch/autograd/__init__.py", line 197 in backward
  File "/usr/lib/python3/dist-packages/torch/_tensor.py", line 488 in backward
  File "/home/me/run/train.py", line 39 in main
  File "/home/me/run/train.py", line 44 in <module>
)";
const std::string kBackward =
    "~ torch/autograd/__init__.py:197 backward\n~ torch/_tensor.py:488 backward\n"
    "train.py:39 main\ntrain.py:44 <module>";
const std::string kLoader = "train.py:37 wait_for_data_loader\ntrain.py:38 main";
const std::string kReduce =
    "~ torch/distributed/distributed_c10d.py:1700 all_reduce\n"
    "~ torch/distributed/c10d_logger.py:72 wrapper\ntrain.py:51 main";
const std::string kGather =
    "~ torch/distributed/distributed_c10d.py:2400 all_gather\ntrain.py:60 main";

TEST(PythonStack, TheMainThreadsCallsAreRead) {
    EXPECT_EQ(main_python_stack(kInBackward), kBackward);
    EXPECT_EQ(main_python_stack("nothing\n"), "");
    EXPECT_EQ(python_frame(kBackward), "train.py:39 main < torch/_tensor.py:488 backward");
    EXPECT_EQ(python_frame(kLoader), "train.py:37 wait_for_data_loader");
    EXPECT_EQ(python_frame(""), "");
}

// Seen of real torch: the place of every rank that met was a line of Lockstep's own hooks.
TEST(PythonStack, LockstepsOwnFunctionsAreNotTheProgram) {
    const std::string stack =
        main_python_stack(R"(Current thread 0x00007f2b4ae0a040 (most recent call first):
  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 754 in init_process_group
  File "/usr/local/share/lockstep/python/hooks/_lockstep_ranks.py", line 105 in init_process_group
  File "/home/me/run/train.py", line 7 in main
)");
    EXPECT_EQ(python_frame(stack),
              "train.py:7 main < torch/distributed/distributed_c10d.py:754 init_process_group");
    EXPECT_EQ(compare_stacks({{0, stack}, {1, stack}}).words,
              "all 2 wait in init_process_group (train.py:7 main)");
    const std::string barrier =
        main_python_stack(R"(Current thread 0x00007f2b4ae0a040 (most recent call first):
  File "/usr/local/share/lockstep/python/lockstep/world.py", line 31 in barrier
  File "/home/me/run/train.py", line 9 in main
)");
    EXPECT_EQ(python_frame(barrier), "train.py:9 main < lockstep/world.py:31 barrier");
}

TEST(PythonStack, WhoIsNotWhereTheOthersWaitIsTheCulprit) {
    const auto verdict =
        compare_stacks({{0, kBackward}, {1, kLoader}, {2, kBackward}, {3, kBackward}});
    EXPECT_THAT(verdict.culprits, ElementsAre(1));
    EXPECT_EQ(verdict.words,
              "rank 1 alone is in train.py:37 wait_for_data_loader; 3 wait in backward");
    // Also where there is no majority, or the wrong one.
    EXPECT_THAT(compare_stacks({{0, kBackward}, {1, kLoader}}).culprits, ElementsAre(1));
    EXPECT_THAT(compare_stacks({{0, kBackward}, {1, kLoader}, {2, kLoader}}).culprits,
                ElementsAre(1, 2));
}

TEST(PythonStack, OfThoseThatAllWaitTheFewAreTheCulprits) {
    const auto verdict = compare_stacks({{0, kReduce}, {1, kReduce}, {2, kGather}, {3, kReduce}});
    EXPECT_THAT(verdict.culprits, ElementsAre(2));
    EXPECT_EQ(verdict.words,
              "rank 2 alone waits in all_gather (train.py:60 main); 3 wait in all_reduce "
              "(train.py:51 main)");
    const auto half = compare_stacks({{0, kReduce}, {1, kGather}});
    EXPECT_THAT(half.culprits, IsEmpty()) << "nobody can tell";
    EXPECT_NE(half.words, "");
}

TEST(PythonStack, OfThoseThatWaitForNobodyTheFewAreTheCulprits) {
    // On a GPU a wait looks like the user's own line.
    const std::string item = "train.py:52 main";
    EXPECT_THAT(compare_stacks({{0, item}, {1, item}, {2, kLoader}, {3, item}}).culprits,
                ElementsAre(2));
    EXPECT_THAT(compare_stacks({{0, item}, {1, item}, {2, kLoader}, {3, kBackward}}).culprits,
                ElementsAre(2));
}

TEST(PythonStack, RanksThatHaveNotMetAreKnownByTheCallInWhichAllMeet) {
    const std::string meets =
        "~ torch/distributed/distributed_c10d.py:1500 _new_process_group_helper\n"
        "~ torch/distributed/distributed_c10d.py:895 init_process_group\ntrain.py:12 main";
    const std::string loads = "train.py:8 load\ntrain.py:11 main";
    const auto late = compare_stacks({{0, meets}, {1, loads}, {2, meets}});
    EXPECT_TRUE(waits_to_meet(late));
    EXPECT_THAT(late.culprits, ElementsAre(1));
    EXPECT_EQ(late.words, "rank 1 alone is in train.py:8 load; 2 wait in init_process_group");
    const auto all = compare_stacks({{0, meets}, {1, meets}});
    EXPECT_TRUE(waits_to_meet(all)) << "they do not find each other";
    EXPECT_EQ(all.words, "all 2 wait in init_process_group (train.py:12 main)");
    // A job whose ranks are on their own, or talk without meeting, is let be; so is a script's own
    // function of that name.
    EXPECT_FALSE(
        waits_to_meet(compare_stacks({{0, loads}, {1, "train.py:9 load\ntrain.py:11 main"}})));
    EXPECT_FALSE(waits_to_meet(compare_stacks({{0, loads}, {1, kReduce}})));
    EXPECT_FALSE(waits_to_meet(compare_stacks({{0, "train.py:9 init_process_group"}, {1, loads}})));
    EXPECT_FALSE(waits_to_meet(compare_stacks({})));
}

TEST(PythonStack, EqualStacksNameNobody) {
    const auto verdict = compare_stacks({{0, kBackward}, {1, kBackward}, {2, ""}});
    EXPECT_THAT(verdict.culprits, IsEmpty());
    EXPECT_EQ(verdict.words, "all 2 wait in backward (train.py:39 main)");
    EXPECT_EQ(compare_stacks({}).words, "");
}

}  // namespace
}  // namespace lockstep
