// What is still to be told to the users of jobs: the rows of schema/0008_notices.sql. Plain values;
// any thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/ids.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct NoticeRow {
    std::int64_t id = 0;  // given when it is stored, ascending
    JobId job{};
    std::string user{};
    Seq seq = 0;
    std::string target{};
    std::string lane{};
    std::string body{};
    UnixMillis created_at = 0;
    UnixMillis due_at = 0;
    std::int32_t tries = 0;
};

// How much of what is due is looked at a time.
struct NoticeQuery {
    UnixMillis now = 0;
    // What is due later than this was written by a clock that was wrong, and is due now.
    UnixMillis latest = 0;
    std::size_t of_lane = 1;  // and user
    std::size_t most = 1;
};
struct NoticeQueue {
    std::vector<NoticeRow> due;                  // users in turn, each user's lanes in turn
    UnixMillis next_due = 0;                     // of those that are not due; 0 = there are none
    std::map<std::string, std::size_t> waiting;  // by user, due or not
};

// What became of a try.
struct NoticeSettled {
    std::int64_t id = 0;
    UnixMillis due_at = 0;  // of the next try; 0: there is none, the row goes
    std::int32_t tries = 0;
};

}  // namespace lockstep
