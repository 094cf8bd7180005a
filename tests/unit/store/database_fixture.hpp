// A database in a folder of its own, and the submissions that its tests write.
#pragma once

#include "daemon/store/database.hpp"
#include "daemon/store/job_records.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

namespace lockstep {

class DatabaseTest : public ::testing::Test {
  protected:
    void SetUp() override { db_ = std::move(Database::open(file()).value()); }
    std::filesystem::path file() const { return folder_ / "lockstep.db"; }

    static SubmitWrite submission(int number, const std::string& key = "",
                                  const std::string& body = "b") {
        SubmitWrite write;
        Event event;
        event.seq = number;
        event.job = JobId{"ls-0000000000000000000000" + std::to_string(1000 + number)};
        event.time = 1000 + number;
        event::Submitted data;
        data.user = "ada";
        data.spec = *parse_json(R"({"name":"t","framework":"native"})");
        event.data = data;
        write.append.events.push_back(event);
        JobRow& row = write.append.row;
        row.id = event.job;
        row.user = "ada";
        row.name = number % 2 == 0 ? "even" : "odd";
        row.submitted_at = event.time;
        row.last_seq = number;
        row.view = "{\"n\":" + std::to_string(number) + "}";
        row.labels = {{"parity", row.name}};
        write.idempotency_key = key;
        write.body_sha256 = body;
        return write;
    }
    SubmitDone submit(const SubmitWrite& write) {
        EXPECT_TRUE(db_->begin().has_value());
        const auto done = JobRecords{*db_}.submit(write);
        EXPECT_TRUE(done.has_value()) << done.error().message;
        EXPECT_TRUE(db_->commit().has_value());
        return *done;
    }

    const test::TemporaryFolder folder_;
    std::unique_ptr<Database> db_;
};

}  // namespace lockstep
