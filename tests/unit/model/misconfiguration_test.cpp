#include "job/model/spec/misconfiguration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Optional;

// As Paddle 2.6 prints them, python/paddle/distributed/parallel.py.
TEST(Misconfiguration, PaddlesTwoWarningsAreRecognised) {
    EXPECT_THAT(trains_alone("/x/parallel.py:1135: UserWarning: Currently not a parallel execution "
                             "environment, `paddle.distributed.init_parallel_env` will not do "
                             "anything."),
                Optional(HasSubstr("not a parallel execution environment")));
    EXPECT_THAT(trains_alone("The program will return to single-card operation. Please check 1, "
                             "whether you use spawn or fleetrun to start the program."),
                Optional(HasSubstr("single-card")));
}

TEST(Misconfiguration, LightningsOneOfOneIsAndOneOfManyIsNot) {
    EXPECT_TRUE(trains_alone("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1"));
    EXPECT_FALSE(trains_alone("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/16"));
    EXPECT_FALSE(trains_alone("Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2"));
    EXPECT_FALSE(trains_alone("Epoch 1/2, Loss: 0.5"));
}

TEST(Misconfiguration, PaddlesDataReaderSaysHowManyTrainersThereAre) {
    EXPECT_EQ(printed_world("start data reader (trainers_num: 3, trainer_id: 0)"), 3);
    EXPECT_EQ(printed_world("[rank1] start data reader (trainers_num: 16, trainer_id: 1)"), 16);
    EXPECT_FALSE(printed_world("start data reader (trainers_num: many)"));
    EXPECT_FALSE(printed_world("start data reader (trainers_num: "));
    EXPECT_FALSE(printed_world("trainers_num: 3"));
}

TEST(Misconfiguration, AWorldOfAnotherSizeIsTold) {
    EXPECT_THAT(wrong_world(1, 4), Optional(HasSubstr("a world size 1 of an expected 4")));
    EXPECT_THAT(wrong_world(2, 4), Optional(HasSubstr("a world size 2 of an expected 4")));
    EXPECT_THAT(wrong_world(2, 1), Optional(HasSubstr("the script starts 2 ranks itself")));
    EXPECT_FALSE(wrong_world(4, 4));
    EXPECT_FALSE(wrong_world(-1, 4)) << "nothing was said";
}

}  // namespace
}  // namespace lockstep
