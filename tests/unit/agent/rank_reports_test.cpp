// When the rows of a node leave for the daemon.
#include "job/agent/node/rank_reports.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

class RankReportsTest : public testing::Test {
  protected:
    void see(std::int32_t rank, std::int64_t step) {
        RankReport row;
        row.step = step;
        row.time = 1'700'000'000.0;
        row.metrics.emplace_back("loss", 0.5);
        reports.seen(rank, row);
    }
    // Until nothing waits for its time any more.
    void run() {
        io.restart();
        io.run();
    }
    // The rows of each batch that is to be sent.
    std::vector<std::size_t> rows_sent() {
        std::vector<std::size_t> out;
        while (const auto frame = outbox.next()) {
            const auto batch = decode_batch(frame->bytes);
            EXPECT_TRUE(batch.has_value());
            out.push_back(batch ? batch->rows() : 0);
        }
        return out;
    }

    net::io_context io{1};
    TaskGroup tasks{io};
    const NodeConfig config;
    Outbox outbox;
    NodeChildren children{tasks, {}};
    Standbys standbys{tasks, "", {}, {}};
    int wakes = 0;
    RankReports reports{tasks,
                        config,
                        {outbox, children, standbys},
                        {[] { return true; }, [this] { ++wakes; }, {}}};
};

// They waited for the agent's next look at its processes.
TEST_F(RankReportsTest, AReportLeavesByItselfWithThoseThatCameRightAfterIt) {
    see(0, 1);
    see(1, 1);
    EXPECT_TRUE(rows_sent().empty());
    run();
    EXPECT_EQ(wakes, 1);
    EXPECT_EQ(rows_sent(), (std::vector<std::size_t>{2}));
    see(0, 2);
    run();
    EXPECT_EQ(wakes, 2);
    EXPECT_EQ(rows_sent(), (std::vector<std::size_t>{1}));
}

TEST_F(RankReportsTest, NothingIsWaitedForAnyMoreOnceTheNodeIsOver) {
    see(0, 1);
    reports.stop();
    run();
    see(0, 2);
    run();
    EXPECT_EQ(wakes, 0);
    EXPECT_EQ(tasks.size(), 0U);
}

}  // namespace
}  // namespace lockstep
