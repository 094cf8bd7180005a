#include "daemon/control/jobs/stored_jobs.hpp"

#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"

#include <utility>
#include <variant>

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
    auto rows = JobRecords{database}.list(query);
    LOCKSTEP_TRY(rows);
    std::vector<StoredJob> out;
    for (JobRow& row : *rows) {
        const auto events = EventRecords{database}.of_job(row.id, 0, 1);
        if (!events && events.error().code != Errc::corrupt) {
            return fail(events.error());
        }
        StoredJob one{std::move(row.id), std::move(row.user), 0};
        if (events && !events->empty()) {
            const auto* submitted = std::get_if<event::Submitted>(&events->front().data);
            one.bytes = submitted != nullptr ? specification_bytes(*submitted) : 0;
        }
        out.push_back(std::move(one));
    }
    return out;
}

}  // namespace lockstep
