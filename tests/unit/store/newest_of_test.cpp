// The newest event of a kind in each generation.
#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// A person may have the ranks looked at again and again: only the newest of a generation counts.
TEST(NewestOf, OfManyLooksAtAGenerationTheNewestIsRead) {
    const test::TemporaryFolder folder;
    const auto db = std::move(Database::open(folder / "lockstep.db").value());
    const JobId job{"ls-01J00000000000000000000000"};
    Seq seq = 0;
    const auto add = [&](EventData data) {
        Append write;
        Event event;
        event.seq = ++seq;
        event.job = job;
        event.time = seq;
        event.data = std::move(data);
        write.events.push_back(std::move(event));
        write.row.id = job;
        write.row.last_seq = seq;
        write.row.view = "{}";
        ASSERT_TRUE(db->begin().has_value());
        ASSERT_TRUE(JobRecords{*db}.append(write).has_value());
        ASSERT_TRUE(db->commit().has_value());
    };
    event::Submitted submitted;
    submitted.user = "ada";
    submitted.spec = *parse_json(R"({"name":"t","framework":"native"})");
    add(submitted);
    for (std::int32_t generation = 1; generation <= 4; ++generation) {
        event::GenerationStarted started;
        started.attempt = 1;
        started.generation = generation;
        add(started);
        for (int look = 0; look < 3 && generation != 2;
             ++look) {  // nobody has looked at the second
            event::EvidenceTaken taken;
            taken.attempt = 1;
            taken.generation = generation;
            taken.reason = std::to_string(look);
            add(taken);
        }
    }
    Seq last = 0;
    const auto read = [&](std::size_t limit, Seq before = 0) {
        std::vector<std::string> out;
        const auto events =
            EventRecords{*db}.newest_of(job, EventKind::evidence_taken, limit, before);
        EXPECT_TRUE(events.has_value());
        for (const Event& event : *events) {
            const auto& taken = std::get<event::EvidenceTaken>(event.data);
            out.push_back(std::to_string(taken.generation) + "." + taken.reason);
            last = event.seq;
        }
        return out;
    };
    EXPECT_EQ(read(50), (std::vector<std::string>{"4.2", "3.2", "1.2"}));
    EXPECT_EQ(read(1), (std::vector<std::string>{"4.2"}));
    EXPECT_EQ(read(2), (std::vector<std::string>{"4.2", "3.2"}));
    // The next page begins with the generation before, not with an older look at the same one.
    EXPECT_EQ(read(50, last), (std::vector<std::string>{"1.2"}));
    EXPECT_TRUE(read(50, last).empty());
    EXPECT_TRUE(
        EventRecords{*db}.newest_of(JobId{"ls-none"}, EventKind::evidence_taken, 50)->empty());
}

}  // namespace
}  // namespace lockstep
