// The SQLite file: the event log (truth), its fold, telemetry batches and tokens. Blocking and
// single-threaded: the store thread owns it (store.hpp); tests use it directly. WAL with
// synchronous=FULL: what commit() has returned for survives a power cut.
// Errors: exhausted = the disk is full, nothing of the transaction happened and later ones may
// work; corrupt or internal = the file cannot be trusted, stop the program.
#pragma once

#include "job/base/result.hpp"
#include "job/model/event.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

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

struct Append {
    std::vector<Event> events;  // of one job, ascending seq
    JobRow row;
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

struct BatchWrite {
    JobId job;
    std::int32_t attempt = 0;
    std::int32_t node_rank = 0;
    std::uint64_t seq = 0;
    std::string data;
};

struct RowQuery {
    std::optional<JobState> state;
    std::string user, name, label_name, label_value;  // "" = any
    std::string before;                               // ids below this one; "" = from the newest
    std::size_t limit = 50;
};

// See schema/0002_tokens.sql.
struct TokenRow {
    std::string id;
    std::string sha256;
    std::string name;
    std::string user;
    std::string role;
    std::string scopes;  // words with spaces; "" = all that the role has
    UnixMillis created_at = 0;
    UnixMillis expires_at = 0;  // 0 = never, as in the next two
    UnixMillis last_used_at = 0;
    UnixMillis revoked_at = 0;
};

class Database {
  public:
    // Opens or creates the file and migrates it. conflict: written by a newer version.
    static Result<std::unique_ptr<Database>> open(const std::filesystem::path& file);
    ~Database();
    Database(const Database&) = delete;
    Database& operator=(const Database&) = delete;

    Status begin();
    Status commit();
    void rollback();

    // Inside a transaction.
    Status append(const Append& append);
    Result<SubmitDone> submit(const SubmitWrite& write);
    Status add_batch(const BatchWrite& batch);  // a repeated one is ignored
    Status add_token(const TokenRow& token);
    Status use_token(const std::string& id, UnixMillis at);
    Status revoke_token(const std::string& id, UnixMillis at);
    Status remove_token(const std::string& id);
    // Those that ended, either way, before.
    Status remove_ended_tokens(UnixMillis before);
    Status touch();  // writes a row that means nothing: does writing work?

    // Reads.
    Result<Seq> last_seq();
    Result<std::vector<Event>> events_of(const JobId& job, Seq after, std::size_t limit);
    // Of one kind, the newest first.
    Result<std::vector<Event>> newest_of(const JobId& job, EventKind kind, std::size_t limit);
    Result<std::vector<Event>> events_after(Seq after, std::size_t limit);
    Result<std::vector<JobId>> unfinished();                  // oldest first
    Result<std::optional<JobRow>> job(const JobId& id);       // without labels
    Result<std::vector<JobRow>> jobs(const RowQuery& query);  // newest first
    Result<std::int64_t> count(JobState state);
    // The stored batches of an attempt in order; at most `max_bytes` of the newest.
    Result<std::vector<BatchWrite>> batches(const JobId& job, std::size_t max_bytes);
    Result<std::vector<TokenRow>> tokens();  // oldest first
    // Tests: pages the file may have, so that a full disk can be had without one.
    Status limit_pages(std::int64_t pages);

  private:
    struct Impl;
    explicit Database(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// The version this program writes: the number of migrations it knows.
std::int32_t schema_version();

}  // namespace lockstep
