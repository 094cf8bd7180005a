// How many calls lockstep-exec has at a time, and what becomes of those that wait.
#include "scheduler-integration/slurm/exec_client.hpp"

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/slurm/fake_exec.hpp"

#include <gtest/gtest.h>

#include <future>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ExecClientTest : public testing::Test {
  protected:
    void SetUp() override {
        if (::geteuid() != 0) {
            GTEST_SKIP() << "lockstepd talks to root's lockstep-exec alone";
        }
    }
    std::future<Result<ExecReply>> call(milliseconds patience) {
        return std::async(std::launch::async, [this, patience] {
            ExecOrder order;
            order.what = exec::What::about;
            return client_.call(order, patience);
        });
    }

    const test::TemporaryFolder folder_;
    const ExecListener listener_{folder_ / "socket"};
    ExecClient client_{(folder_ / "socket").string(), 2};
};

// systemd closed those beyond MaxConnections, and an sbatch among them was in doubt for minutes.
TEST_F(ExecClientTest, NoMoreConnectionsAreOpenAtOnceThanItIsToldOf) {
    std::vector<std::future<Result<ExecReply>>> calls;
    for (int i = 0; i < 5; ++i) {
        calls.push_back(call(seconds{30}));
    }
    UniqueFd open[2] = {listener_.accept(), listener_.accept()};
    for (int more = 0; more < 3; ++more) {
        EXPECT_FALSE(listener_.waits(200));
        ExecListener::answer(open[more % 2].get(), exec::Status::done, "");
        open[more % 2] = listener_.accept();
    }
    for (const UniqueFd& one : open) {
        ExecListener::answer(one.get(), exec::Status::done, "");
    }
    for (auto& one : calls) {
        const auto reply = one.get();
        ASSERT_TRUE(reply) << reply.error().message;
        EXPECT_EQ(reply->status, exec::Status::done);
    }
}

// What has not been asked for has not been done: a submission is tried again at once.
TEST_F(ExecClientTest, ACallThatHasWaitedForOthersOnlyIsNotInDoubt) {
    auto first = call(seconds{30});
    auto second = call(seconds{30});
    const UniqueFd open[2] = {listener_.accept(), listener_.accept()};
    const auto late = call(milliseconds{20}).get();
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, Errc::unavailable);
    EXPECT_FALSE(listener_.waits(0));
    for (const UniqueFd& one : open) {
        ExecListener::answer(one.get(), exec::Status::done, "");
    }
    EXPECT_TRUE(first.get());
    EXPECT_TRUE(second.get());
}

TEST_F(ExecClientTest, ThoseThatWaitEndWithTheOthersWhenItStops) {
    auto first = call(seconds{30});
    auto second = call(seconds{30});
    const UniqueFd open[2] = {listener_.accept(), listener_.accept()};
    auto third = call(seconds{30});
    client_.stop();
    for (auto* one : {&first, &second, &third}) {
        EXPECT_FALSE(one->get());
    }
}

}  // namespace
}  // namespace lockstep
