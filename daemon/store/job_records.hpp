// Jobs in the database: what an append leaves of them, their labels, and the keys under which they
// were submitted. Threads, transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/node_history.hpp"
#include "daemon/store/notices.hpp"
#include "daemon/store/record_access.hpp"
#include "job/base/clock.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"
#include "job/model/event.hpp"
#include "job/model/state.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct Job;

// The row of a job that an append leaves behind.
struct JobRow {
    JobId id;
    std::string user;
    std::string name;
    JobState state = JobState::accepted;
    UnixMillis submitted_at = 0;
    UnixMillis finished_at = 0;
    Seq last_seq = 0;
    std::string view;                                         // the job as the API shows it
    std::vector<std::pair<std::string, std::string>> labels;  // stored with the first append
};

// The row of `job` with `view`; without labels.
JobRow row_of(const Job& job, std::string view);

struct Append {
    std::vector<Event> events;  // of one job, ascending seq
    JobRow row;
    NodeNotes notes{};                 // of nodes, that follow from the events
    std::vector<NoticeRow> notices{};  // to be told of the events
};

struct SubmitWrite {
    Append append;                // one `submitted` event
    std::vector<Append> more;     // jobs that come with it (a sweep's), each like `append`
    std::string idempotency_key;  // "" = none
    std::string body_sha256;
};
struct SubmitDone {
    JobId id;  // of the job that has this key: the new one or an earlier one
    bool repeated = false;
    bool other_body = false;  // the key was used with another body: nothing was stored
};

// Under this name the store finds the jobs that run in a snapshot; no label of a user's can have
// it.
inline constexpr const char* kSnapshotLabel = "lockstep:snapshot";
// Likewise the jobs of a sweep: the id of its first job is the value.
inline constexpr const char* kSweepLabel = "lockstep:sweep";
// Likewise the jobs that have files in another job's folder: its id is the value.
inline constexpr const char* kFolderLabel = "lockstep:folder";
// The same of a folder that is called like a job and is in none of now's: it may be that job's in
// a runs directory that there was before, or anything.
inline constexpr const char* kNamesakeLabel = "lockstep:namesake";

// A job that is over, and when it ended: the place of one in the order of age.
struct EndedJob {
    UnixMillis finished_at = 0;
    JobId job{};
    std::string user{};  // no part of its place
};

struct RowQuery {
    std::vector<JobState> states;                     // any of these; empty = any
    std::string user, name, label_name, label_value;  // "" = any
    std::string before;                               // ids below this one; "" = from the newest
    std::size_t limit = 50;
};

// How long the event with a job's specification is, as it is stored; 0 of a job without one.
struct SpecificationSize {
    JobId job{};
    std::string user{};
    std::int64_t bytes = 0;
};

// What a turn of a search came to.
struct JobSearchTurn {
    std::vector<JobRow> found{};
    std::size_t looked_at = 0;
    std::string
        last{};         // id of the last one looked at, from where the next turn goes on; "" = none
    bool more = false;  // there are jobs behind it
};

class JobRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction.
    Status append(const Append& append);
    Result<SubmitDone> submit(const SubmitWrite& write);

    // Reads.
    Result<std::vector<JobId>> unfinished();                  // oldest first
    Result<std::optional<JobRow>> find(const JobId& id);      // without labels
    Result<std::vector<JobRow>> list(const RowQuery& query);  // newest first
    // At most `limit` jobs older than `before` ("" = from the newest), newest first. SQLite reads
    // each specification for its length; nothing else does.
    Result<std::vector<SpecificationSize>> specification_sizes(const std::string& before,
                                                               std::size_t limit);
    // Of the next `rows` jobs of the query, newest first, at most query.limit in whose id, name,
    // user, framework, labels (as name:value) or cause each of the words occurs, letters of ASCII
    // in either case.
    Result<JobSearchTurn> search(const RowQuery& query, const std::vector<std::string>& words,
                                 std::size_t rows);
    Result<std::int64_t> count(JobState state);
    // The submission of the user with this Idempotency-Key; nothing if there is none.
    Result<std::optional<SubmitDone>> submitted_before(const std::string& user,
                                                       const std::string& key,
                                                       const std::string& body_sha256);
    // Jobs without the label keep that ended before a time, by age, after `after`.
    Result<std::vector<EndedJob>> ended_before(UnixMillis before, const EndedJob& after,
                                               std::size_t limit);
    // Whether a job that is not removed runs in the snapshot.
    Result<bool> snapshot_used(const std::string& snapshot);
    // Another job that has files in this one's folder; "" = none. `earlier`: that folder is in a
    // runs directory that there was before, so jobs with kNamesakeLabel count, too.
    Result<std::string> user_of_folder(const JobId& job, bool earlier = false);
};

}  // namespace lockstep
