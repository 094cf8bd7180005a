// Logs on a file system that hangs: a pipe that nobody reads plays it. What waits for it for ever
// fails by the test's time limit.
#include "job/agent/ranks/log_writer.hpp"

#include "job/agent/ranks/rank_log.hpp"
#include "tests/support/temporary_folder.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <array>

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class LogWriterTest : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
        reader_.reset(::open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        ASSERT_TRUE(reader_);
    }
    std::filesystem::path path() const { return folder_ / "rank-00000.log"; }
    RankLog open() {
        auto log = RankLog::open(path(), RankLog::Caps(), 1, writer_);
        EXPECT_TRUE(log);
        return std::move(*log);
    }
    // More than a pipe and the queue hold.
    static std::size_t fill(RankLog& log) {
        const std::string piece(64U << 10U, 'x');
        std::size_t bytes = 0;
        while (log.lost_bytes() == 0) {
            log.append(piece);
            bytes += piece.size();
        }
        return bytes;
    }
    // What has come since.
    void read() {
        std::array<char, 64U << 10U> buffer{};
        pollfd readable{reader_.get(), POLLIN, 0};
        if (::poll(&readable, 1, 100) > 0) {
            const auto got = ::read(reader_.get(), buffer.data(), buffer.size());
            text_.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        }
    }

    TemporaryFolder folder_;
    UniqueFd reader_;
    std::shared_ptr<LogWriter> writer_ = std::make_shared<LogWriter>(std::chrono::milliseconds{1});
    std::string text_;
};

// The agent's thread wrote itself: its beats stopped with it, and the node was lost.
TEST_F(LogWriterTest, AFileSystemThatHangsHoldsNobodyUpAndItsLossIsSaidWhereItIs) {
    RankLog log = open();
    const std::size_t before = fill(log);
    const auto lost = static_cast<std::size_t>(log.lost_bytes());
    EXPECT_GE(before, LogWriter::kQueueBytes);
    EXPECT_EQ(log.lost_why(), "the file system did not answer in time");
    while (text_.size() < before - lost) {
        read();
    }
    EXPECT_EQ(text_, std::string(before - lost, 'x')) << "no notice before what came first";
    text_.clear();
    while (text_.find("after\n") == std::string::npos) {  // until there is room again
        log.append("after\n");
        read();
    }
    EXPECT_THAT(text_.substr(0, text_.find("after\n")),
                MatchesRegex("\n.lockstep: [0-9]+ bytes were lost, the file system did not answer "
                             "in time.\n"));
}

TEST_F(LogWriterTest, TheEndOfALogThatCannotBeWrittenIsNotWaitedForAndSaid) {
    RankLog log = open();
    const std::string piece(512U << 10U, 'x');  // more than the pipe holds, less than the queue
    log.append(piece);
    log.end();
    EXPECT_THAT(log.loss_warning(3), HasSubstr("output of rank 3 were not in its log when it"));
    while (text_.size() < piece.size()) {
        read();
    }
    EXPECT_EQ(log.lost_bytes(), 0) << "it came later";
}

TEST_F(LogWriterTest, ALogBehindOneThatHangsIsWrittenOnceThatGoesOn) {
    writer_ = std::make_shared<LogWriter>(std::chrono::hours{1});
    RankLog log = open();
    log.append(std::string(512U << 10U, 'x'));
    log.append("more");
    auto other = RankLog::open(folder_ / "rank-00001.log", RankLog::Caps(), 1, writer_);
    ASSERT_TRUE(other);
    other->append("one\n");  // there is room: nobody waits
    while (text_.size() < (512U << 10U) + 4) {
        read();
    }
    other->end();  // waits until it is written
    EXPECT_EQ(text_of(folder_ / "rank-00001.log"), "one\n");
    EXPECT_EQ(other->loss_warning(1), "");
}

TEST(LogWriter, ALogIsWholeAtItsEndHoweverFastItIsWritten) {
    const TemporaryFolder folder;
    const auto writer = std::make_shared<LogWriter>(std::chrono::hours{1});
    auto log = RankLog::open(folder / "log", RankLog::Caps(), 1, writer);
    ASSERT_TRUE(log);
    std::string all;
    for (int i = 0; i < 400; ++i) {
        const std::string piece(10'000, static_cast<char>('a' + i % 26));
        log->append(piece);
        all += piece;
    }
    log->end();
    EXPECT_EQ(text_of(folder / "log"), all);
    EXPECT_EQ(log->size(), static_cast<std::int64_t>(all.size()));
    EXPECT_EQ(log->loss_warning(0), "");
}

}  // namespace
}  // namespace lockstep::test
