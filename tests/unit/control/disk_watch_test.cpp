// How full the file systems are, and that one which does not answer holds nobody up.
#include "daemon/control/disk_watch.hpp"

#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(DiskRoom, IsWhatTheFileSystemSays) {
    const test::TemporaryFolder folder;
    const auto room = disk_room(folder.path());
    ASSERT_TRUE(room.has_value());
    const auto space = std::filesystem::space(folder.path());
    EXPECT_EQ(room->size, static_cast<std::int64_t>(space.capacity));
    EXPECT_GT(room->free, 0);
    EXPECT_LE(room->free, room->size);
    const auto missing = disk_room(folder / "missing");
    ASSERT_FALSE(missing.has_value());
    EXPECT_THAT(missing.error().message, HasSubstr("No such file or directory"));
}

TEST(DiskRoom, IsNearlyFullByBytesOrByFiles) {
    EXPECT_FALSE((telemetry::DiskRoom{1000, 60, 1000, 60}.nearly_full()));
    EXPECT_TRUE((telemetry::DiskRoom{1000, 40, 1000, 60}.nearly_full()));
    EXPECT_TRUE((telemetry::DiskRoom{1000, 60, 1000, 40}.nearly_full()));
    EXPECT_FALSE((telemetry::DiskRoom{1000, 60, 0, 0}.nearly_full())) << "as btrfs says it";
}

TEST(DiskWatch, ShowsEachFolderAndEndsWhenItIsHalted) {
    const test::TemporaryFolder folder;
    net::io_context io;
    telemetry::DaemonMetrics metrics;
    telemetry::DiskMetrics gauges{metrics.registry(), {"data", "runs"}};
    DiskWatch watch{io, gauges, {folder.path(), folder / "missing"}};
    bool ended = false;
    auto run = [&]() -> Task<void> {
        co_await watch.watch(std::chrono::hours{1});
        ended = true;
    };
    net::co_spawn(io, run(), net::detached);
    const auto text = [&] {
        std::string out;
        telemetry::MetricText writer{telemetry::TextFormat::prometheus, out};
        metrics.write(writer);
        return out;
    };
    const std::string unknown = "lockstep_disk_size_bytes{folder=\"data\"} 0\n";
    while (text().find(unknown) != std::string::npos) {
        io.run_one_for(std::chrono::seconds{30});
    }
    EXPECT_THAT(text(), HasSubstr("lockstep_disk_free_bytes{folder=\"data\"}"));
    EXPECT_THAT(text(), HasSubstr("lockstep_disk_size_bytes{folder=\"runs\"} 0\n"));
    watch.halt();
    io.run_for(std::chrono::seconds{30});
    EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace lockstep
