// Jobs that are over, with files as an attempt leaves them.
#pragma once

#include "daemon/control/actor/job_folder.hpp"
#include "daemon/store/clock_records.hpp"
#include "daemon/store/removal_records.hpp"
#include "tests/unit/control/control_fixture.hpp"

#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class RetentionTest : public ControlTest {
  protected:
    void SetUp() override { ControlTest::SetUp(); }

    template <class T>
    T run(Task<T> task) {
        std::optional<T> out;
        auto keep = [&out](Task<T> inner) -> Task<void> { out.emplace(co_await std::move(inner)); };
        wait(keep(std::move(task)));
        return std::move(*out);
    }
    // A job that was cancelled, with files as an attempt leaves them.
    std::string ended(const std::string& extra = "") {
        // After a cancel the scheduler says "ended", of the next one, too.
        scheduler_.seen.state = AllocationState::pending;
        return ended_now(submitted(extra));
    }
    // The same of one that the scheduler had already: it knows where its first attempt was made.
    std::string ended_in_queue() {
        scheduler_.seen.state = AllocationState::pending;
        const int before = scheduler_.submissions;
        const std::string id = submitted("");
        until([&] { return scheduler_.submissions > before; }, "handed over");
        until([&] { return state(id) == "queued"; }, "queued");
        return ended_now(id);
    }
    std::string ended_now(const std::string& id) {
        EXPECT_TRUE(run(control_->commands().cancel(user_, id)).has_value());
        until([&] { return state(id) == "cancelled"; }, "cancelled");
        write(runs(id) / "a1" / "rank-00000.log", 10'000);
        write(runs(id) / "a1" / "evidence" / "gen-1" / "state", 10'000);
        write(runs(id) / "checkpoints" / "step-10", 100'000);
        return id;
    }
    SubmitResult<Submitted> submit(const std::string& fields, const std::string& key = "") {
        const auto json =
            parse_json(R"({"name":"t","framework":"command","command":["x"])" + fields + "}");
        SubmitRequest request;
        request.spec = parse_spec(*json).value();
        request.idempotency_key = key;
        return run(control_->submit(user_, request));
    }
    std::string submitted(const std::string& fields) { return submit(fields)->id; }
    Result<std::string> remove(const std::string& id, bool keep_checkpoints = false) {
        return run(control_->remove(ada_, id, keep_checkpoints));
    }
    // Files and snapshots included.
    void removals_done() {
        const auto left = [&] {
            const std::function<Result<std::vector<RemovalRow>>(Database&)> read =
                [](Database& db) { return RemovalRecords{db}.unfinished(JobId{}, 10); };
            const auto rows = run(store_->read<std::vector<RemovalRow>>(read));
            return !rows || !rows->empty();
        };
        until([&] { return !left(); }, "all that was removed is cleared");
    }
    std::int64_t bytes_of(const std::string& id) const {
        const auto never = std::chrono::steady_clock::time_point::max();
        const DiskUse use = disk_use(runs(id), limits::kFilesOfJob, never);
        return use.logs + use.evidence + use.checkpoints + use.other;
    }
    std::filesystem::path runs(const std::string& id) const { return folder_ / "runs" / id; }
    static void write(const std::filesystem::path& file, std::size_t bytes) {
        std::filesystem::create_directories(file.parent_path());
        std::ofstream{file} << std::string(bytes, 'x');
    }
    // Hour by hour, as lockstepd sees them.
    void days_pass(int days) {
        clock_.advance(std::chrono::hours{24 * days});
        constexpr UnixMillis kAnyTime = std::numeric_limits<UnixMillis>::max();
        ASSERT_TRUE(run(store_->look_at_clock(clock_.wall(), kAnyTime)).has_value());
    }
    bool listed(const std::string& id) {
        return run(control_->list(ada_, JobQuery{}))->find(id) != std::string::npos;
    }

    Caller user_{ada_};  // whose jobs submit() and ended() make
};

}  // namespace lockstep
