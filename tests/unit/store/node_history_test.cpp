#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/node_records.hpp"
#include "job/base/limits.hpp"
#include "tests/support/temporary_folder.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <lockstep_migrations.hpp>

namespace lockstep {
namespace {

constexpr UnixMillis kNow = 1'700'000'000'000;
constexpr UnixMillis kDay = 86'400'000;

class NodeHistoryTest : public ::testing::Test {
  protected:
    void SetUp() override { db_ = std::move(Database::open(folder_ / "db").value()); }

    static NodeFault fault(const std::string& node, UnixMillis time, const std::string& kind,
                           std::int32_t generation) {
        NodeFault out;
        out.node = node;
        out.time = time;
        out.kind = kind;
        out.job = JobId{"ls-00000000000000000000000001"};
        out.user = "ada";
        out.attempt = 1;
        out.generation = generation;
        out.message = "it was silent";
        return out;
    }
    // With an event of its own, as every note comes.
    void keep(NodeNotes notes, bool commit = true) {
        Append append;
        Event event;
        event.seq = ++seq_;
        event.job = JobId{"ls-00000000000000000000000001"};
        event.data = event::CancelRequested{"ada"};
        append.events.push_back(event);
        append.row.id = event.job;
        append.row.user = "ada";
        append.row.name = "t";
        append.row.last_seq = seq_;
        append.row.view = "{}";
        append.notes = std::move(notes);
        ASSERT_TRUE(db_->begin().has_value());
        const Status done = JobRecords{*db_}.append(append);
        ASSERT_TRUE(done.has_value()) << done.error().message;
        if (commit) {
            ASSERT_TRUE(db_->commit().has_value());
        } else {
            db_->rollback();
        }
    }
    std::map<std::string, NodeSummary> summaries(UnixMillis now = kNow,
                                                 const std::string& first = "a",
                                                 const std::string& last = "z") {
        return NodeRecords{*db_}.summaries(first, last, now).value();
    }

    const test::TemporaryFolder folder_;
    std::unique_ptr<Database> db_;
    Seq seq_ = 0;
};

TEST_F(NodeHistoryTest, CountsByKindAndSurvivesAReopen) {
    NodeNotes notes;
    notes.faults = {fault("n1", kNow - 8 * kDay, "node_lost", 1),
                    fault("n1", kNow - kDay, "node_lost", 2),
                    fault("n1", kNow - 2 * kDay, "hang", 3), fault("n2", kNow, "gpu_xid", 1)};
    notes.ended = {{"n1", kNow - 3 * kDay, true}, {"n1", kNow - kDay, false}};
    keep(notes);
    db_.reset();
    db_ = std::move(Database::open(folder_ / "db").value());
    const auto all = summaries();
    ASSERT_EQ(all.size(), 2U);
    const NodeSummary& one = all.at("n1");
    EXPECT_EQ(one.attempts, 2);
    EXPECT_EQ(one.first_at, kNow - 8 * kDay);
    EXPECT_EQ(one.healthy_at, kNow - 3 * kDay);
    EXPECT_EQ(one.kinds.at("node_lost").all, 2);
    EXPECT_EQ(one.kinds.at("node_lost").lately, 1);
    EXPECT_EQ(one.kinds.at("node_lost").newest, kNow - kDay);
    EXPECT_EQ(one.kinds.at("hang").lately, 1);
    EXPECT_EQ(summaries(kNow, "n2", "n2").size(), 1U);
    EXPECT_TRUE(summaries(kNow, "n3", "z").empty());
    const auto faults = NodeRecords{*db_}.faults("n1", kNow, 2).value();
    ASSERT_EQ(faults.size(), 2U);
    EXPECT_EQ(faults[0].kind, "node_lost");
    EXPECT_EQ(faults[0].generation, 2);
    EXPECT_EQ(faults[0].user, "ada");
    EXPECT_EQ(faults[0].message, "it was silent");
    EXPECT_EQ(faults[1].kind, "hang");
}

TEST_F(NodeHistoryTest, IsPartOfTheTransactionOfItsEvents) {
    NodeNotes notes;
    notes.faults = {fault("n1", kNow, "hang", 1)};
    keep(notes, false);
    EXPECT_TRUE(summaries().empty());
    EXPECT_EQ(*EventRecords{*db_}.last_seq(), 0);
}

TEST_F(NodeHistoryTest, TheSameFaultSaidAgainIsOne) {
    NodeNotes notes;
    notes.faults = {fault("n1", kNow, "gpu_xid", 1), fault("n1", kNow + 5, "gpu_xid", 1)};
    keep(notes);
    keep(notes);
    notes.faults[0].gpu = 3;
    keep(notes);
    EXPECT_EQ(summaries().at("n1").kinds.at("gpu_xid").all, 2) << "one a GPU";
}

TEST_F(NodeHistoryTest, WhatTheSchedulerEndedIsNoLossOfItsLastGeneration) {
    NodeNotes notes;
    notes.faults = {fault("n1", kNow, "node_lost", 1), fault("n1", kNow, "node_lost", 2),
                    fault("n2", kNow, "hang", 2)};
    keep(notes);
    NodeNotes end;
    end.absolved = NodesAbsolved{JobId{"ls-00000000000000000000000001"}, 1, 2};
    keep(end);
    EXPECT_EQ(summaries().at("n1").kinds.at("node_lost").all, 1);
    EXPECT_EQ(summaries().at("n2").kinds.at("hang").all, 1);
}

TEST_F(NodeHistoryTest, IsBoundedByAgeAndByNumber) {
    NodeNotes old;
    old.faults = {fault("gone", kNow - 91 * kDay, "hang", 1), fault("n1", kNow, "hang", 1)};
    old.ended = {{"gone", kNow - 91 * kDay, true}};
    keep(old);
    EXPECT_FALSE(summaries().contains("gone"));
    EXPECT_TRUE(summaries(kNow - 30 * kDay).contains("n1"));
    EXPECT_FALSE(summaries(kNow + 91 * kDay).contains("n1")) << "though nothing was written since";
    EXPECT_TRUE(NodeRecords{*db_}.faults("n1", kNow + 91 * kDay, 9).value().empty());
    NodeNotes many;
    const auto most = static_cast<std::int32_t>(limits::kNodeFaults);
    for (std::int32_t i = 0; i < most + 20; ++i) {
        many.faults.push_back(fault("n2", kNow + i, "node_lost", i + 1));
    }
    keep(many);
    EXPECT_EQ(summaries().at("n2").kinds.at("node_lost").all, most);
    const auto left = NodeRecords{*db_}.faults("n2", kNow, limits::kNodeFaults + 100).value();
    EXPECT_EQ(left.back().time, kNow + 20) << "the oldest go";
    EXPECT_EQ(summaries().at("n1").kinds.at("hang").all, 1) << "others' stay";
}

TEST_F(NodeHistoryTest, ADatabaseOfVersion3IsTakenOver) {
    const auto file = folder_ / "old.db";
    {
        SQLite::Database raw{file.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE};
        for (std::size_t i = 0; i < 3; ++i) {
            raw.exec(kMigrations[i].sql);
        }
        raw.exec("PRAGMA user_version = 3");
    }
    db_ = std::move(Database::open(file).value());
    NodeNotes notes;
    notes.ended = {{"n1", kNow, true}};
    keep(notes);
    EXPECT_EQ(summaries().at("n1").attempts, 1);
}

}  // namespace
}  // namespace lockstep
