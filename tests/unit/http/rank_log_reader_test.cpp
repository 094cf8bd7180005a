#include "daemon/http/logs/rank_log_reader.hpp"

#include "tests/support/temporary_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

class RankLogReaderTest : public testing::Test {
  protected:
    void write(const std::string& text) { std::ofstream{path_, std::ios::binary} << text; }
    // Frees [from, to) of the file, as the agent does; false where the file system cannot.
    bool punch(std::int64_t from, std::int64_t to) {
        const UniqueFd fd{::open(path_.c_str(), O_RDWR)};
        return ::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from) ==
               0;
    }
    const test::TemporaryFolder folder_;
    const std::string path_ = (folder_ / "rank-00000.log").string();
};

TEST_F(RankLogReaderTest, ReadsFromAnOffset) {
    write("hello\nworld\n");
    const auto reader = RankLogReader::open(path_);
    ASSERT_TRUE(reader);
    const auto slice = reader->read(6, 1000);
    ASSERT_TRUE(slice);
    EXPECT_EQ(slice->text, "world\n");
    EXPECT_EQ(slice->offset, 6);
    EXPECT_EQ(slice->next, 12);
}

TEST_F(RankLogReaderTest, StopsAtTheCapAndGoesOnFromNext) {
    write("0123456789");
    const auto reader = RankLogReader::open(path_);
    ASSERT_TRUE(reader);
    const auto first = reader->read(0, 4);
    EXPECT_EQ(first->text, "0123");
    EXPECT_EQ(reader->read(first->next, 100)->text, "456789");
}

TEST_F(RankLogReaderTest, StampsEachLineOnceHoweverItIsCut) {
    const std::string text = "one\ntwo\nthree";
    write(text);
    {
        std::ofstream marks{log_marks_path(path_), std::ios::binary};
        for (const LogMark& mark : {LogMark{4, 1'763'687'000'000, 1}, {8, 1'763'687'000'250, 2}}) {
            const auto row = encode_log_mark(mark);
            marks.write(row.data(), row.size());
        }
    }
    const auto reader = RankLogReader::open(path_);
    ASSERT_TRUE(reader);
    for (std::size_t cut = 1; cut <= text.size(); ++cut) {
        std::string all;
        for (std::int64_t at = 0; at < static_cast<std::int64_t>(text.size());) {
            LogTimes times = LogTimes::open(path_);
            const auto slice = reader->read(at, cut, &times);
            ASSERT_TRUE(slice);
            all += slice->text;
            at = slice->next;
        }
        EXPECT_EQ(all, "- - one\n2025-11-21T01:03:20.000Z 1 two\n2025-11-21T01:03:20.250Z 2 three")
            << cut;
    }
}

// With lockstep-exec the log was opened as its user, and the marks were not: `lockstep logs
// --since` left out every line.
TEST_F(RankLogReaderTest, LinesOfALogInAFolderOfAnothersHaveTheirTimes) {
    write("one\ntwo\n");
    {
        std::ofstream marks{log_marks_path(path_), std::ios::binary};
        const auto row = encode_log_mark({0, 1'763'687'000'000, 1});
        marks.write(row.data(), row.size());
    }
    const std::filesystem::path closed = "/lockstep-test/closed-to-lockstepd";
    set_foreign_folder(closed, [this](const std::filesystem::path& path) -> Result<UniqueFd> {
        const auto real = folder_ / path.filename().string();
        UniqueFd fd{::open(real.c_str(), O_RDONLY | O_CLOEXEC)};
        return fd ? Result<UniqueFd>{std::move(fd)} : fail(Errc::not_found, "it is not there");
    });
    const std::string log = (closed / "rank-00000.log").string();
    LogTimes times = LogTimes::open(log);
    const auto reader = RankLogReader::open(log);
    set_foreign_folder({}, {});
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->read(0, 100, &times)->text,
              "2025-11-21T01:03:20.000Z 1 one\n2025-11-21T01:03:20.000Z 1 two\n");
}

TEST_F(RankLogReaderTest, WithoutMarksNoLineHasATime) {
    write("one\ntwo\n");
    LogTimes times = LogTimes::open(path_);
    EXPECT_EQ(RankLogReader::open(path_)->read(0, 100, &times)->text, "- - one\n- - two\n");
}

TEST_F(RankLogReaderTest, BelowAFolderNoLinkIsFollowed) {
    namespace fs = std::filesystem;
    fs::create_directories(folder_ / "theirs/gen-1/rank-00000");
    std::ofstream{folder_ / "theirs/gen-1/rank-00000/state.txt"} << "secret";
    fs::create_directories(folder_ / "run/evidence");
    const auto open = [&](const std::string& name) {
        return RankLogReader::open_below((folder_ / "run").string(),
                                         {"evidence", "gen-1", "rank-00000"}, name);
    };
    EXPECT_EQ(open("state.txt").error().code, Errc::not_found);
    fs::create_symlink(folder_ / "theirs/gen-1", folder_ / "run/evidence/gen-1");
    EXPECT_EQ(open("state.txt").error().code, Errc::denied);
    fs::remove(folder_ / "run/evidence/gen-1");
    fs::create_directories(folder_ / "run/evidence/gen-1");
    fs::create_symlink(folder_ / "theirs/gen-1/rank-00000",
                       folder_ / "run/evidence/gen-1/rank-00000");
    EXPECT_EQ(open("state.txt").error().code, Errc::denied);
    fs::remove(folder_ / "run/evidence/gen-1/rank-00000");
    fs::create_directories(folder_ / "run/evidence/gen-1/rank-00000");
    fs::create_symlink(folder_ / "theirs/gen-1/rank-00000/state.txt",
                       folder_ / "run/evidence/gen-1/rank-00000/state.txt");
    EXPECT_EQ(open("state.txt").error().code, Errc::denied);
    std::ofstream{folder_ / "run/evidence/gen-1/rank-00000/ras.txt"} << "ours";
    ASSERT_TRUE(open("ras.txt"));
    EXPECT_EQ(open("ras.txt")->read(0, 100)->text, "ours");
}

TEST_F(RankLogReaderTest, BehindTheEndIsEmpty) {
    write("abc");
    const auto reader = RankLogReader::open(path_);
    const auto slice = reader->read(1000, 10);
    ASSERT_TRUE(slice);
    EXPECT_EQ(slice->text, "");
    EXPECT_EQ(slice->offset, 3);
    EXPECT_EQ(slice->next, 3);
}

TEST_F(RankLogReaderTest, SaysHowMuchAHoleDropped) {
    const std::string block(4096, 'a');
    write(block + std::string(8192, 'b') + std::string(4096, 'c') + "end\n");
    if (!punch(4096, 12288)) {
        GTEST_SKIP() << "this file system cannot free the middle of a file";
    }
    const auto reader = RankLogReader::open(path_);
    const auto slice = reader->read(0, 1U << 20U);
    ASSERT_TRUE(slice);
    EXPECT_EQ(slice->text,
              block + "\n[lockstep: 8192 bytes dropped]\n" + std::string(4096, 'c') + "end\n");
    EXPECT_EQ(slice->next, 4096 + 8192 + 4096 + 4);
    const auto inside = reader->read(5000, 1U << 20U);
    EXPECT_TRUE(inside->text.starts_with("[lockstep: 7288 bytes dropped]\ncccc")) << inside->text;
}

// Whoever goes backwards has to know where a hole begins that an offset is inside.
TEST_F(RankLogReaderTest, TheWholeOfAHoleIsToldWhereverItIsAskedFor) {
    write(std::string(40'960, 'a'));
    if (!punch(4096, 12288) || !punch(20'480, 28'672)) {
        GTEST_SKIP() << "this file system cannot free the middle of a file";
    }
    const auto reader = RankLogReader::open(path_);
    using Hole = RankLogReader::Hole;
    EXPECT_EQ(reader->read(0, 1U << 20U)->dropped, (Hole{4096, 12288})) << "the first one";
    EXPECT_EQ(reader->read(4096, 1U << 20U)->dropped, (Hole{4096, 12288}));
    EXPECT_EQ(reader->read(5000, 100)->dropped, (Hole{4096, 12288}));
    EXPECT_EQ(reader->read(12287, 100)->dropped, (Hole{4096, 12288}));
    EXPECT_EQ(reader->read(28'000, 100)->dropped, (Hole{20'480, 28'672}));
    EXPECT_FALSE(reader->read(0, 4096)->dropped.has_value()) << "the text ends before it";
    EXPECT_FALSE(reader->read(12288, 100)->dropped.has_value());
    EXPECT_FALSE(reader->read(28'672, 1U << 20U)->dropped.has_value());
}

TEST_F(RankLogReaderTest, AHoleUpToTheEndIsTold) {
    write("abc");
    ASSERT_EQ(::truncate(path_.c_str(), 1 << 20), 0);
    const auto reader = RankLogReader::open(path_);
    const auto slice = reader->read(0, 1U << 20U);
    ASSERT_TRUE(slice);
    EXPECT_EQ(slice->next, 1 << 20);
    EXPECT_NE(slice->text.find("bytes dropped]"), std::string::npos);
}

TEST_F(RankLogReaderTest, TailCountsLines) {
    write("one\ntwo\nthree\n");
    const auto reader = RankLogReader::open(path_);
    EXPECT_EQ(reader->tail(1, 1000), 8);
    EXPECT_EQ(reader->tail(2, 1000), 4);
    EXPECT_EQ(reader->tail(3, 1000), 0);
    EXPECT_EQ(reader->tail(99, 1000), 0);
}

TEST_F(RankLogReaderTest, TailCountsAnUnfinishedLine) {
    write("one\ntwo\nthr");
    const auto reader = RankLogReader::open(path_);
    EXPECT_EQ(reader->tail(1, 1000), 8);
    EXPECT_EQ(reader->tail(2, 1000), 4);
}

TEST_F(RankLogReaderTest, TailLooksBackOnlySoFar) {
    write(std::string(300'000, 'x'));
    const auto reader = RankLogReader::open(path_);
    EXPECT_EQ(reader->tail(5, 100'000), 200'000);
    EXPECT_EQ(reader->tail(5, 1'000'000), 0);
}

TEST_F(RankLogReaderTest, TailCrossesBlocks) {
    std::string text;
    for (int i = 0; i < 40'000; ++i) {
        text += std::to_string(i) + "\n";
    }
    write(text);
    const auto reader = RankLogReader::open(path_);
    const auto at = reader->tail(30'000, 1U << 20U);
    ASSERT_TRUE(at);
    EXPECT_TRUE(text.substr(static_cast<std::size_t>(*at)).starts_with("10000\n"));
}

TEST_F(RankLogReaderTest, TailStopsAtAHole) {
    write("first\n" + std::string(20'000, 'b') + "\nlast\n");
    if (!punch(0, 8192)) {
        GTEST_SKIP() << "this file system cannot free the middle of a file";
    }
    const auto reader = RankLogReader::open(path_);
    EXPECT_EQ(reader->tail(10, 1U << 20U), 8192);
    EXPECT_EQ(reader->tail(1, 1U << 20U), 20'007);
}

TEST_F(RankLogReaderTest, AFileOfAnotherNameTooIsRefused) {
    write("somebody's secret");
    const std::string link = (folder_ / "rank-00001.log").string();
    ASSERT_EQ(::link(path_.c_str(), link.c_str()), 0);
    const auto reader = RankLogReader::open(link);
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().code, Errc::denied);
    EXPECT_NE(reader.error().message.find("hard link"), std::string::npos);
}

TEST_F(RankLogReaderTest, OpensNothingButRegularFiles) {
    write("secret");
    const auto link = (folder_ / "link").string();
    std::filesystem::create_symlink(path_, link);
    const auto by_link = RankLogReader::open(link);
    ASSERT_FALSE(by_link);
    EXPECT_EQ(by_link.error().code, Errc::denied);
    const auto pipe = (folder_ / "pipe").string();
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const auto by_pipe = RankLogReader::open(pipe);
    ASSERT_FALSE(by_pipe);
    EXPECT_EQ(by_pipe.error().code, Errc::denied);
    EXPECT_FALSE(RankLogReader::open(folder_.path().string()));
    const auto none = RankLogReader::open((folder_ / "none").string());
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Errc::not_found);
}

}  // namespace
}  // namespace lockstep
