// Notices in the database: written with the events that they tell of, until they are settled.
// Threads, transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/notices.hpp"
#include "daemon/store/record_access.hpp"
#include "job/base/result.hpp"

#include <vector>

namespace lockstep {

class NoticeRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction.
    Status add(const std::vector<NoticeRow>& rows);
    // What became of tries; a row that went with its job stays away.
    Status settle(const std::vector<NoticeSettled>& settled);
    Status drop_all();

    Result<NoticeQueue> queue(const NoticeQuery& query);
};

}  // namespace lockstep
