#include "daemon/control/jobs/stored_jobs.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kTurn = 16;

}  // namespace

std::int64_t specification_bytes(const event::Submitted& submitted) {
    return static_cast<std::int64_t>(encode_event_data(submitted).size());
}

Result<std::vector<SpecificationSize>> stored_jobs(Database& database, const std::string& before) {
    return JobRecords{database}.specification_sizes(before, kTurn);
}

}  // namespace lockstep
