// Whether files can be made in the runs folder: the true reason, said once, and until it is over.
#include "daemon/control/base/runs_folder.hpp"

#include "job/base/log.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

using testing::HasSubstr;

std::size_t times(const std::string& text, const std::string& what) {
    std::size_t out = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
        ++out;
    }
    return out;
}

TEST(RunsFolderWrites, LeaveNothing) {
    const test::TemporaryFolder folder;
    EXPECT_TRUE(can_write_into(folder.path()).has_value());
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    const Status missing = can_write_into(folder / "missing");
    ASSERT_FALSE(missing.has_value());
    EXPECT_THAT(missing.error().message, HasSubstr("No such file or directory"));
}

class RunsFolderTest : public ControlTest {
  protected:
    RunsFolder& runs() { return context_->runs_folder; }
    std::filesystem::path path() const { return folder_ / "runs"; }
    void look_often() {
        watched_ = true;
        net::co_spawn(*io_, look(), net::detached);
    }
    Task<void> look() {
        const RunsFolder::Periods periods{std::chrono::hours{1}, std::chrono::milliseconds{2}};
        co_await runs().watch(periods);
        watched_ = false;
    }
    void TearDown() override {
        runs().halt();
        until([this] { return !watched_; }, "the watch ends");
        ControlTest::TearDown();
    }
    Status ready() {
        Status out;
        auto ask = [&]() -> Task<void> { out = co_await control_->ready(); };
        wait(ask());
        return out;
    }
    std::string reason_of(const std::string& id) { return show(id).value("pending_reason", ""); }
    bool watched_ = false;
};

// It was a warning at every tick of every job, and /readyz was ready.
TEST_F(RunsFolderTest, AFolderThatCannotBeWrittenIsToldOnceAndIsNotReady) {
    std::filesystem::create_directory(path());
    testing::internal::CaptureStderr();
    log::start("test", log::Level::info, false);
    look_often();
    EXPECT_TRUE(ready().has_value());
    std::filesystem::remove(path());
    std::ofstream(path()) << "a file";
    const std::string id = submit()->id;
    until([this] { return runs().problem().ends_with("Not a directory"); }, "the true reason");
    const Status now = ready();
    ASSERT_FALSE(now.has_value());
    EXPECT_EQ(now.error().message,
              "runs directory: write into " + path().string() + ": Not a directory");
    until([&] { return reason_of(id).starts_with("cannot prepare the attempt"); },
          "the job says why");
    std::filesystem::remove(path());  // the next try makes it anew
    until([this] { return runs().problem().empty(); }, "it is well again");
    EXPECT_TRUE(ready().has_value());
    until([this] { return scheduler_.submissions > 0; }, "the job goes on");
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(times(log, "write into " + path().string() + ": Not a directory"), 1U) << log;
    EXPECT_EQ(times(log, "can be made in the runs directory again"), 1U) << log;
    EXPECT_LE(times(log, "cannot prepare an attempt"), 1U) << log;
}

// Nothing looks here, so what stays is that each job says it once a reason.
TEST_F(RunsFolderTest, AnAttemptThatCannotBePreparedIsToldOnceAReasonNotOnceATick) {
    std::ofstream(path()) << "a file";
    testing::internal::CaptureStderr();
    log::start("test", log::Level::info, false);
    const std::string id = submit()->id;
    until([&] { return reason_of(id).starts_with("cannot prepare the attempt"); },
          "the job says why");
    for (int events = 0; events < 60; ++events) {
        io_->run_one_for(2 * tick_);
    }
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(times(log, "cannot prepare an attempt"), 1U) << log;
}

}  // namespace
}  // namespace lockstep
