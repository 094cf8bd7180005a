// A disk without room, and a quota that is used up, as SQLite tells them.
#include "daemon/store/connection.hpp"
#include "daemon/store/job_records.hpp"
#include "tests/unit/store/database_fixture.hpp"

#include <sqlite3.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

// Writes of SQLite to files whose names end with `full_end` fail with `full_errno`, 0 = none do.
int full_errno = 0;
std::string_view full_end;

bool fails_now(int fd) {
    std::array<char, 4096> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const auto length = ::readlink(link.c_str(), path.data(), path.size());
    if (full_errno == 0 || length <= 0 ||
        !std::string_view{path.data(), static_cast<std::size_t>(length)}.ends_with(full_end)) {
        return false;
    }
    errno = full_errno;
    return true;
}
ssize_t write_or_fail(int fd, const void* bytes, std::size_t count) {
    return fails_now(fd) ? -1 : ::write(fd, bytes, count);
}
ssize_t pwrite_or_fail(int fd, const void* bytes, std::size_t count, off_t at) {
    return fails_now(fd) ? -1 : ::pwrite(fd, bytes, count, at);
}

void put_call(const char* name, sqlite3_syscall_ptr call) {
    sqlite3_vfs* const vfs = ::sqlite3_vfs_find(nullptr);
    vfs->xSetSystemCall(vfs, name, call);  // of the two names of pwrite() it has one
}

class FullDiskTest : public DatabaseTest {
  protected:
    void SetUp() override {
        DatabaseTest::SetUp();
        put_call("write", reinterpret_cast<sqlite3_syscall_ptr>(write_or_fail));
        put_call("pwrite", reinterpret_cast<sqlite3_syscall_ptr>(pwrite_or_fail));
        put_call("pwrite64", reinterpret_cast<sqlite3_syscall_ptr>(pwrite_or_fail));
    }
    void TearDown() override {
        full_errno = 0;
        for (const char* name : {"write", "pwrite", "pwrite64"}) {
            put_call(name, nullptr);
        }
    }
    static void fail_writes(std::string_view end, int number) {
        full_end = end;
        full_errno = number;
    }
    // One submission in a transaction of its own, which ends either way.
    Status submit_one(int number, std::string view = "{}") {
        SubmitWrite write = submission(number);
        write.append.row.view = std::move(view);
        Status done = db_->begin();
        if (done) {
            const auto submitted = JobRecords{*db_}.submit(write);
            done = submitted ? db_->commit() : fail(submitted.error());
        }
        if (!done) {
            db_->rollback();
        }
        return done;
    }
};

TEST_F(FullDiskTest, AUsedUpQuotaIsAFullDiskAndLaterWritesWork) {
    int next = 1;
    for (const int number : {ENOSPC, EDQUOT}) {
        for (const std::size_t bytes : {std::size_t{2}, std::size_t{8} << 20U}) {  // it spills, too
            fail_writes("-wal", number);
            const Status refused = submit_one(next, std::string(bytes, ' '));
            ASSERT_FALSE(refused.has_value());
            EXPECT_EQ(refused.error().code, Errc::exhausted) << refused.error().message;
            fail_writes("", 0);
            const Status taken = submit_one(next++);
            EXPECT_TRUE(taken.has_value()) << taken.error().message;
        }
    }
}

TEST_F(FullDiskTest, AStoreThatDoesNotOpenForLackOfRoomSaysSo) {
    for (const int number : {ENOSPC, EDQUOT}) {
        db_.reset();
        fail_writes("-shm", number);
        const auto opened = Database::open(file());
        ASSERT_FALSE(opened.has_value());
        EXPECT_EQ(opened.error().code, Errc::exhausted);
        EXPECT_NE(opened.error().message.find(std::strerror(number)), std::string::npos)
            << opened.error().message;
        fail_writes("", 0);
        db_ = std::move(Database::open(file()).value());
    }
}

TEST_F(FullDiskTest, ADiskThatFailsIsNotFull) {
    fail_writes("-wal", EIO);
    const Status failed = submit_one(1);
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code, Errc::internal) << failed.error().message;
}

TEST(SqliteErrors, ASyncThatFailedForLackOfRoomIsNoFullDisk) {
    EXPECT_EQ(sqlite_errc(SQLITE_IOERR, SQLITE_IOERR_WRITE, EDQUOT), Errc::exhausted);
    for (const int sync : {SQLITE_IOERR_FSYNC, SQLITE_IOERR_DIR_FSYNC}) {
        EXPECT_EQ(sqlite_errc(SQLITE_IOERR, sync, EDQUOT), Errc::internal);
        EXPECT_EQ(sqlite_errc(SQLITE_IOERR, sync, ENOSPC), Errc::internal);
    }
}

}  // namespace
}  // namespace lockstep
