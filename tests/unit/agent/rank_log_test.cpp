#include "job/agent/ranks/rank_log.hpp"

#include "job/model/log_marks.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

namespace lockstep::test {
namespace {

using testing::HasSubstr;

RankLog::Caps small() {
    RankLog::Caps caps;
    caps.total = 256 << 10;
    caps.head = 16 << 10;
    caps.chunk = 32 << 10;
    caps.tail = 10;
    return caps;
}

// 16 bytes that say which of them they are.
std::string piece(int i) {
    std::string text = std::to_string(i);
    return std::string(15 - text.size(), '.') + text + "\n";
}

TEST(RankLog, KeepsTheBeginningAndTheNewestAndFreesTheMiddle) {
    const TemporaryFolder folder;
    auto log = RankLog::open(folder / "log", small(), 1);
    ASSERT_TRUE(log);
    constexpr int kPieces = 1 << 16;  // 1 MiB
    for (int i = 0; i < kPieces; ++i) {
        log->append(piece(i));
    }
    const std::string text = text_of(folder / "log");
    EXPECT_EQ(log->size(), 16LL * kPieces);
    ASSERT_EQ(text.size(), 16U * kPieces) << "offsets stay those of the whole output";
    EXPECT_EQ(text.substr(0, 16), piece(0));
    EXPECT_EQ(text.substr((16 << 10) - 16, 16), piece(1023)) << "the head is whole";
    EXPECT_EQ(text.substr(16U * (kPieces - 1)), piece(kPieces - 1));
    const std::size_t newest = (256 - 16 - 32) << 10;
    EXPECT_EQ(text.find('\0', text.size() - newest), std::string::npos) << "the newest are whole";
    EXPECT_EQ(text[300 << 10], '\0');
    struct stat info{};
    ASSERT_EQ(::stat((folder / "log").c_str(), &info), 0);
    EXPECT_LE(info.st_blocks * 512, 256 << 10);
    EXPECT_EQ(log->lost_bytes(), 0);
}

// An agent that was thought lost woke up and wrote over what the rank had said on another node.
TEST(RankLog, TwoAgentsThatWriteToOneLeaveEachOthersWordsAlone) {
    const TemporaryFolder folder;
    auto lost = RankLog::open(folder / "log", small(), 1);
    ASSERT_TRUE(lost);
    lost->append("first\n");
    auto newer = RankLog::open(folder / "log", small(), 2);
    ASSERT_TRUE(newer);
    newer->append("second\n");
    lost->append("late\n");
    newer->append("third\n");
    EXPECT_EQ(text_of(folder / "log"), "first\nsecond\nlate\nthird\n");
    EXPECT_EQ(newer->size(), 24);
}

std::vector<LogMark> marks_of(const std::filesystem::path& log) {
    const std::string bytes = text_of(log_marks_path(log));
    std::vector<LogMark> marks;
    for (std::size_t at = 0; at + kLogMarkBytes <= bytes.size(); at += kLogMarkBytes) {
        marks.push_back(decode_log_mark(bytes.data() + at));
    }
    return marks;
}

TEST(RankLog, NotesBesideItselfWhenItGrew) {
    const TemporaryFolder folder;
    const auto path = folder / "rank-00000.log";
    auto log = RankLog::open(path, 1);
    ASSERT_TRUE(log);
    log->append("one\n", 1'000);
    log->append("two\n", 1'004);  // too soon for a mark of its own
    log->append("three\n", 1'010);
    auto next = RankLog::open(path, 2);
    ASSERT_TRUE(next);
    next->append("four\n", 1'011);  // another generation: always
    EXPECT_EQ(marks_of(path), (std::vector<LogMark>{{0, 1'000, 1}, {8, 1'010, 1}, {14, 1'011, 2}}));
}

TEST(RankLog, MarksLieFartherApartTheMoreThereAre) {
    const TemporaryFolder folder;
    const auto path = folder / "rank-00000.log";
    LogMarker marker = LogMarker::open(path);
    UnixMillis now = 0;
    for (std::int64_t i = 0; i < 3 * LogMarker::kRows; ++i, now += 10) {
        marker.mark(i, now, 1);
    }
    const auto marks = marks_of(path);
    // All of the first kRows, then every second one.
    EXPECT_EQ(marks.size(), static_cast<std::size_t>(2 * LogMarker::kRows));
    EXPECT_EQ(marks.back().time - marks[marks.size() - 2].time, 20);
}

TEST(RankLog, TailHoldsTheLastBytesPrintable) {
    const TemporaryFolder folder;
    auto log = RankLog::open(folder / "log", small(), 1);
    ASSERT_TRUE(log);
    log->append("abc");
    EXPECT_EQ(log->tail(), "abc");
    log->append("defghijklmnop\x1b\xff");
    EXPECT_EQ(log->tail(), "ijklmnop\xEF\xBF\xBD");
    log->append("1");
    log->append("2");
    EXPECT_EQ(log->tail(),
              "klmnop\xEF\xBF\xBD"
              "12");
}

TEST(RankLog, IsContinuedByTheNextGeneration) {
    const TemporaryFolder folder;
    RankLog::open(folder / "log", 1)->append("one\n");
    auto log = RankLog::open(folder / "log", 1);
    EXPECT_EQ(log->size(), 4);
    log->append("two\n");
    EXPECT_EQ(text_of(folder / "log"), "one\ntwo\n");
}

TEST(RankLog, StopsAtTheCapWhereTheMiddleCannotBeFreedAndSaysSo) {
    const TemporaryFolder folder;
    RankLog::Caps caps = small();
    caps.may_punch = false;
    auto log = RankLog::open(folder / "log", caps, 1);
    ASSERT_TRUE(log);
    for (int i = 0; i < 1 << 16; ++i) {
        log->append(piece(i));
    }
    const std::string text = text_of(folder / "log");
    EXPECT_LE(text.size(), (256U << 10) + 300);
    EXPECT_THAT(text.substr(text.size() - 200), HasSubstr("the rest is not kept]"));
    EXPECT_EQ(text.find("the rest is not kept"), text.rfind("the rest is not kept"));
    EXPECT_GT(log->lost_bytes(), 0);
    EXPECT_EQ(log->tail(), piece((1 << 16) - 1).substr(6)) << "the tail of a cause still works";
}

TEST(RankLog, AFullDiskLosesBytesCountsThemAndSaysSoLater) {
    const TemporaryFolder folder;
    if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
        GTEST_SKIP() << "needs the right to mount a small tmpfs";
    }
    {
        const std::string ballast(40 << 10, 'x');
        ASSERT_TRUE(write_file_atomic(folder / "ballast", ballast));
        auto log = RankLog::open(folder / "log", 1);
        ASSERT_TRUE(log);
        const std::string chunk(16 << 10, 'a');
        log->append(chunk);
        log->append(chunk);
        log->append(chunk);
        EXPECT_EQ(log->lost_bytes(), 32 << 10);
        std::filesystem::remove(folder / "ballast");
        log->append("after\n");
        EXPECT_EQ(text_of(folder / "log"),
                  chunk + "\n[lockstep: 32768 bytes were lost, the disk was full]\nafter\n");
    }
    ::umount2(folder.path().c_str(), MNT_DETACH);
}

TEST(RankLog, WhatWasLostLastIsSaidAtTheEndOfTheOutput) {
    const TemporaryFolder folder;
    if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
        GTEST_SKIP() << "needs the right to mount a small tmpfs";
    }
    {
        ASSERT_TRUE(write_file_atomic(folder / "ballast", std::string(40 << 10, 'x')));
        auto log = RankLog::open(folder / "log", 1);
        ASSERT_TRUE(log);
        EXPECT_EQ(log->lost_why(), "");
        const std::string chunk(16 << 10, 'a');
        log->append(chunk);
        log->append(chunk);
        EXPECT_EQ(log->lost_why(), "the disk was full");
        std::filesystem::remove(folder / "ballast");
        log->end();
        EXPECT_EQ(text_of(folder / "log"),
                  chunk + "\n[lockstep: 16384 bytes were lost, the disk was full]\n");
    }
    ::umount2(folder.path().c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace lockstep::test
