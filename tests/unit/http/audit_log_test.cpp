// What the audit log says of changes and of tokens that are not good, and what it does when it
// cannot be written.
#include "daemon/http/auth/audit_log.hpp"

#include "job/base/digest.hpp"
#include "job/base/json.hpp"
#include "job/base/text.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/test_clock.hpp"
#include "tests/unit/http/session_fixture.hpp"

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class AuditLogTest : public SessionTest {
  protected:
    std::vector<Json> lines() {
        EXPECT_TRUE(log_.flush());
        return lines_of(file_);
    }
    static std::vector<Json> lines_of(const std::filesystem::path& file) {
        std::vector<Json> out;
        for (const std::string& line : split(test::text_of(file), '\n')) {
            if (!line.empty()) {
                const auto json = parse_json(line);
                EXPECT_TRUE(json) << line;
                out.push_back(json.value_or(Json::object()));
            }
        }
        return out;
    }
    void start_audited() {
        HttpSettings settings;
        settings.audit = &log_;
        start(std::move(settings));
    }
    std::string change(const std::string& token) {
        return exchange(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token +
            "\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
            "2\r\n\r\n{}");
    }

    test::TemporaryFolder folder_;
    const std::filesystem::path file_ = folder_ / "audit.log";
    TestClock clock_;
    std::atomic<std::size_t> lost_{0};
    AuditLog log_{file_, clock_, [this](std::size_t lines) { lost_ += lines; }};
};

TEST_F(AuditLogTest, AChangeIsALineThatSaysWhoFromWhereWhatAndHowItEnded) {
    start_audited();
    EXPECT_EQ(status_in(change("user-token")), 200);
    EXPECT_EQ(status_in(get("/private", "Authorization: Bearer user-token\r\n")), 200);  // a read
    EXPECT_EQ(status_in(change("viewer-token")), 403);
    const auto all = lines();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0]["time"], to_rfc3339(clock_.wall()));
    EXPECT_EQ(all[0]["user"], "uma");
    EXPECT_EQ(all[0]["remote"], "127.0.0.1");
    EXPECT_EQ(all[0]["operation"], "POST/echo");
    EXPECT_EQ(all[0]["path"], "/echo");
    EXPECT_EQ(all[0]["status"], 200);
    EXPECT_EQ(all[1]["user"], "vic");
    EXPECT_EQ(all[1]["status"], 403);
    struct stat info = {};
    ASSERT_EQ(::stat(file_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

// Two hundred wrong tokens left no trace.
TEST_F(AuditLogTest, WrongTokensAreCountedAllAndWrittenSome) {
    start_audited();
    constexpr int kTried = limits::kAuditRefusalsAtOnce + 30;
    for (int i = 0; i < kTried; ++i) {
        EXPECT_EQ(status_in(get("/private", "Authorization: Bearer wrong\r\n")), 401);
    }
    EXPECT_EQ(status_in(get("/private")), 401);  // none was shown
    clock_.advance(1s);
    EXPECT_EQ(status_in(change("wrong")), 401);
    const auto all = lines();
    ASSERT_EQ(all.size(), static_cast<std::size_t>(limits::kAuditRefusalsAtOnce) + 1);
    EXPECT_EQ(all.front()["refused"], "token");
    EXPECT_EQ(all.front()["remote"], "127.0.0.1");
    EXPECT_EQ(all.front()["path"], "/private");
    EXPECT_FALSE(all.front().contains("not_written"));
    EXPECT_EQ(all.back()["path"], "/echo");
    EXPECT_EQ(all.back()["not_written"], 30);
    EXPECT_EQ(test::text_of(file_).find("wrong"), std::string::npos);
}

TEST_F(AuditLogTest, WhoseTokenWasRevokedOrIsSentAfterItsEndIsInTheLine) {
    HttpSettings settings;
    settings.audit = &log_;
    settings.whose = [](const std::string& hash, bool cookie) {
        return hash == sha256_hex("ended") && !cookie ? AuditOwner{"uma", "tk-1"} : AuditOwner{};
    };
    start(std::move(settings));
    EXPECT_EQ(status_in(change("ended")), 401);
    EXPECT_EQ(status_in(change("wrong")), 401);
    AuditEntry entry;
    entry.user = "root";
    entry.token = "tk-2";
    entry.operation = "revokeToken";
    entry.owner = "uma";
    log_.answered(entry, 204, "");
    const auto all = lines();
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0]["owner"], "uma");
    EXPECT_EQ(all[0]["token"], "tk-1");
    EXPECT_FALSE(all[1].contains("owner"));
    EXPECT_FALSE(all[1].contains("token"));
    EXPECT_EQ(all[2]["user"], "root");
    EXPECT_EQ(all[2]["owner"], "uma");
}

TEST_F(AuditLogTest, AFileThatIsMovedAwayIsMadeAnew) {
    AuditEntry entry;
    entry.user = "uma";
    entry.operation = "cancelJob";
    entry.path = "/v1/jobs/ls-1/cancel";
    log_.answered(entry, 200, "");
    ASSERT_TRUE(log_.flush());
    std::filesystem::rename(file_, folder_ / "audit.log.1");
    log_.answered(entry, 201, "/v1/jobs/ls-2");
    const auto now = lines();
    ASSERT_EQ(now.size(), 1U);
    EXPECT_EQ(now[0]["made"], "/v1/jobs/ls-2");
    EXPECT_EQ(lines_of(folder_ / "audit.log.1").size(), 1U);
}

TEST_F(AuditLogTest, WhatCannotBeWrittenWaitsAndIsWrittenLater) {
    AuditEntry entry;
    entry.operation = "cancelJob";
    std::filesystem::create_directory(file_);  // opening it for writing fails
    log_.answered(entry, 200, "");
    EXPECT_FALSE(log_.flush());
    log_.answered(entry, 409, "");
    std::filesystem::remove(file_);
    const auto all = lines();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0]["status"], 200);
    EXPECT_EQ(all[1]["status"], 409);
    EXPECT_EQ(lost_, 0U);
}

TEST_F(AuditLogTest, AFullDiskKeepsTheLinesWaitingAndHoldsNobodyUp) {
    std::size_t lost = 0;
    {
        AuditLog full{"/dev/full", clock_, [&lost](std::size_t lines) { lost += lines; }};
        full.answered({}, 200, "");
        EXPECT_FALSE(full.flush());
        full.answered({}, 200, "");
        EXPECT_EQ(lost, 0U);
    }
    EXPECT_EQ(lost, 2U) << "the daemon ended before there was room";
}

TEST_F(AuditLogTest, LinesBeyondWhatMayWaitAreCounted) {
    std::filesystem::create_directory(file_);
    AuditEntry entry;
    entry.path = std::string(500, 'x');
    std::size_t given = 0;
    while (lost_ == 0 && given < 100'000) {
        log_.answered(entry, 200, "");
        ++given;
    }
    EXPECT_GT(given, 1'000U);
    EXPECT_GT(lost_, 0U);
    std::filesystem::remove(file_);
}

TEST_F(AuditLogTest, ALinkIsNotFollowed) {
    std::filesystem::create_symlink(folder_ / "elsewhere", file_);
    log_.answered({}, 200, "");
    EXPECT_FALSE(log_.flush());
    EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
    std::filesystem::remove(file_);
}

}  // namespace
}  // namespace lockstep
