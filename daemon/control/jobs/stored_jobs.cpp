#include "daemon/control/jobs/stored_jobs.hpp"

#include "daemon/store/job_records.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kTurn = 16;

}  // namespace

std::int64_t specification_bytes(const event::Submitted& submitted) {
    return static_cast<std::int64_t>(encode_event_data(submitted).size());
}

Result<std::vector<StoredJob>> stored_jobs(Database& database, const std::string& before) {
    RowQuery query;
    query.before = before;
    query.limit = kTurn;
    query.specification_bytes = true;
    auto rows = JobRecords{database}.list(query);
    LOCKSTEP_TRY(rows);
    std::vector<StoredJob> out;
    for (JobRow& row : *rows) {
        out.push_back({std::move(row.id), std::move(row.user), row.specification_bytes});
    }
    return out;
}

}  // namespace lockstep
