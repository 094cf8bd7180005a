// The store thread: one thread owns the Database, commits whatever writes have gathered as one
// transaction (group commit: the fsync is shared), then serves reads. Calls come from the control
// thread and complete there, in the order they were made. Fail-stop: after the first I/O error or
// corruption nothing is accepted any more and `on_fatal` runs once, on the control thread.
// The Store must outlive the calls in flight; stop() waits for them.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/clock.hpp"
#include "job/base/ids.hpp"
#include "job/base/result.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

class Database;
// What is written, and what comes back: beside the types that do it (record_access.hpp).
struct Append;
struct ChunksWrite;
struct ClockGap;
struct HistorySize;
struct LogWrite;
struct NoticeSettled;
struct RemovalRow;
struct SubmitDone;
struct SubmitWrite;
struct TokenRow;

class Store {
  public:
    struct Hooks {
        std::function<void(Error)> on_fatal;
        // After each commit: how long it took and how many writes shared it.
        std::function<void(std::chrono::nanoseconds, std::size_t)> on_commit;
    };
    Store(net::io_context& io, std::unique_ptr<Database> database, Hooks hooks);
    ~Store();
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    // Numbers for events, ascending in the order they are asked for. Control thread.
    Seq next_seq() { return ++seq_; }
    Seq last_seq() const { return seq_; }

    // Durable when they return. exhausted: the disk (or the queue) is full, nothing was stored.
    Task<Status> append(Append append);
    Task<Result<SubmitDone>> submit(SubmitWrite write);
    // The ids of the rows, in the same order.
    Task<Result<std::vector<std::int64_t>>> add_log(std::vector<LogWrite> rows);
    Task<Result<std::int64_t>> add_chunks(ChunksWrite write);  // the newest chunk's id
    Task<Result<HistorySize>> expire_history(std::int64_t max_bytes, double before,
                                             std::size_t most);
    Task<Result<std::string>> forget_states(std::string after, std::size_t most);
    // See RemovalRecords. A job that is removed: the slices of its history after it.
    Task<Result<bool>> remove_job(RemovalRow removal);
    Task<Result<HistorySize>> remove_history(JobId job, std::size_t most);
    Task<Status> removal_done(JobId job);
    Task<Status> forget_removals(UnixMillis before);
    Task<Result<std::vector<ClockGap>>> look_at_clock(UnixMillis now, UnixMillis most);
    Task<Status> settle_notices(std::vector<NoticeSettled> settled);
    // With the removal of another one that makes room, "" = none.
    Task<Status> add_token(TokenRow token, std::string instead_of = "");
    Task<Status> use_token(std::string id, UnixMillis at);
    Task<Status> revoke_token(std::string id, UnixMillis at);
    // Whether a transaction can be committed at the moment.
    Task<Status> probe();

    // Runs on the store thread after the writes that were queued before it.
    template <class T>
    Task<Result<T>> read(std::function<Result<T>(Database&)> work);

    // Another connection to the file has met a disk_error(). Any thread.
    void distrust(Error error);

    // Finishes what is queued, then ends the thread. Idempotent. Completions of calls made before
    // are posted to the io_context as usual.
    void stop();

  private:
    // A write returns what its caller gets; it must leave no exception.
    struct Write {
        std::function<Status(Database&)> work;
        std::function<void(Status)> done;  // control thread
    };
    using Read = std::function<std::function<void()>(Database&)>;  // returns its completion

    bool enqueue(Write write);
    bool enqueue(Read read);
    Task<Status> write(std::function<Status(Database&)> work);
    template <class T>
    Task<Result<T>> write_for(std::function<Result<T>(Database&)> work);
    void run();
    void commit_all(std::vector<Write> writes);
    void give_up(
        Error error);  // nothing is written any more; the first time it is told. Store thread.

    net::io_context& io_;
    net::executor_work_guard<net::io_context::executor_type> guard_;
    std::unique_ptr<Database> database_;
    Hooks hooks_;
    Seq seq_ = 0;  // control thread

    std::mutex mutex_;  // guards the four below
    std::condition_variable wake_;
    std::vector<Write> writes_;
    std::vector<Read> reads_;
    bool stopping_ = false;
    bool broken_ = false;  // store thread only, after a fatal error
    std::thread thread_;
};

template <class T>
Task<Result<T>> Store::read(std::function<Result<T>(Database&)> work) {
    const auto start = [this, work = std::move(work)](auto handler) mutable {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        Read read = [shared, work = std::move(work)](Database& database) {
            auto result = std::make_shared<Result<T>>(work(database));
            return std::function<void()>{[shared, result] { (*shared)(std::move(*result)); }};
        };
        if (!enqueue(std::move(read))) {
            net::post(io_, [shared] {
                (*shared)(Result<T>{fail(Errc::unavailable, "the store is stopping")});
            });
        }
    };
    auto token = net::use_awaitable;
    co_return co_await net::async_initiate<decltype(token), void(Result<T>)>(std::move(start),
                                                                             token);
}

}  // namespace lockstep
