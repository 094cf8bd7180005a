// The agent's own log on a file system that hangs: a pipe that nobody reads plays it.
#include "job/agent/own_log.hpp"

#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace lockstep::test {
namespace {

using testing::HasSubstr;

class OwnLogTest : public testing::Test {
  protected:
    void SetUp() override {
        log::start("own-log-test", log::Level::info, false);
        std::array<int, 2> ends{};
        ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
        reader_.reset(ends[0]);
        writer_.reset(ends[1]);
    }
    void TearDown() override { log::redirect({}); }

    // Until `last` has come, which fails by the test's time limit if it never does.
    std::string read_until(const std::string& last) {
        std::string text;
        std::array<char, 64U << 10U> buffer{};
        while (text.find(last) == std::string::npos) {
            const auto got = ::read(reader_.get(), buffer.data(), buffer.size());
            if (got <= 0) {
                break;
            }
            text.append(buffer.data(), static_cast<std::size_t>(got));
        }
        return text;
    }

    UniqueFd reader_;
    UniqueFd writer_;
};

// The agent's thread wrote its log itself: its beats stopped with the file server, and a healthy
// node was lost.
TEST_F(OwnLogTest, AFileSystemThatHangsHoldsNobodyUpAndWhatIsLostIsCounted) {
    const OwnLog own_log{writer_.get()};
    const std::string piece(32U << 10U, 'x');
    for (int line = 0; line < 100; ++line) {  // far more than the pipe and the queue hold
        log::info(piece, {{"line", line}});
    }
    EXPECT_THAT(read_until("line=3\n"), HasSubstr("prog=own-log-test level=info msg=xxx"));
    // As soon as there is room again, each line of the log says what was lost before it.
    std::string text;
    while (text.find("msg=after") == std::string::npos) {
        log::info("after");
        pollfd readable{reader_.get(), POLLIN, 0};
        std::array<char, 64U << 10U> buffer{};
        if (::poll(&readable, 1, 10) > 0) {
            const auto got = ::read(reader_.get(), buffer.data(), buffer.size());
            text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        }
    }
    EXPECT_THAT(
        text.substr(0, text.find("msg=after")),
        HasSubstr("prog=own-log-test level=warn msg=\"lines of this log were lost: they could "
                  "not be written in time\" lines="));
}

TEST_F(OwnLogTest, ItIsWholeAndInOrderAtItsEndAndStderrHasTheRestAgain) {
    {
        const OwnLog own_log{writer_.get()};
        for (int line = 0; line < 100; ++line) {
            log::info("line", {{"number", line}});
        }
    }  // has waited for it
    writer_.reset();
    const std::string text = read_until("not there");
    std::size_t at = 0;
    for (int line = 0; line < 100; ++line) {
        const auto found = text.find("msg=line number=" + std::to_string(line) + "\n", at);
        ASSERT_NE(found, std::string::npos) << line << " of\n" << text;
        at = found;
    }
    testing::internal::CaptureStderr();
    log::info("direct");
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("msg=direct"));
}

TEST_F(OwnLogTest, AnEndBehindAFileSystemThatHangsIsNotWaitedForLong) {
    {
        const OwnLog own_log{writer_.get()};
        log::info(std::string(200U << 10U, 'x'));  // more than a pipe holds
    }
    EXPECT_EQ(LooseThread::abandoned(), 1);
    testing::internal::CaptureStderr();
    log::info("late");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "it would wait, too";
    EXPECT_EQ(read_until("x\n").find("late"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
