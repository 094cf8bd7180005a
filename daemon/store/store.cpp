#include "daemon/store/store.hpp"

#include "daemon/store/clock_records.hpp"
#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/history_records.hpp"
#include "daemon/store/job_records.hpp"
#include "daemon/store/notice_records.hpp"
#include "daemon/store/removal_records.hpp"
#include "daemon/store/token_records.hpp"
#include "job/base/check.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

namespace lockstep {

Store::Store(net::io_context& io, std::unique_ptr<Database> database, Hooks hooks)
    : io_(io),
      guard_(net::make_work_guard(io)),
      database_(std::move(database)),
      hooks_(std::move(hooks)) {
    const auto last = EventRecords{*database_}.last_seq();
    LOCKSTEP_CHECK(last.has_value());
    seq_ = *last;
    thread_ = std::thread{[this] { run(); }};
}

Store::~Store() {
    stop();
}

void Store::stop() {
    {
        const std::lock_guard lock{mutex_};
        stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) {
        thread_.join();
    }
    guard_.reset();
}

bool Store::enqueue(Write write) {
    {
        const std::lock_guard lock{mutex_};
        if (stopping_ || writes_.size() >= limits::kStoreQueue) {
            return false;
        }
        writes_.push_back(std::move(write));
    }
    wake_.notify_one();
    return true;
}

bool Store::enqueue(Read read) {
    {
        const std::lock_guard lock{mutex_};
        if (stopping_ || reads_.size() >= limits::kStoreQueue) {
            return false;
        }
        reads_.push_back(std::move(read));
    }
    wake_.notify_one();
    return true;
}

void Store::run() {
    for (;;) {
        std::vector<Write> writes;
        std::vector<Read> reads;
        {
            std::unique_lock lock{mutex_};
            wake_.wait(lock, [this] { return stopping_ || !writes_.empty() || !reads_.empty(); });
            if (stopping_ && writes_.empty() && reads_.empty()) {
                return;
            }
            writes.swap(writes_);
            reads.swap(reads_);
        }
        if (!writes.empty()) {
            commit_all(std::move(writes));
        }
        std::vector<std::function<void()>> completions;
        completions.reserve(reads.size());
        for (auto& read : reads) {
            completions.push_back(read(*database_));
        }
        if (const std::optional<Error>& error = database_->disk_error()) {
            give_up(*error);
        }
        if (!completions.empty()) {
            net::post(io_, [completions = std::move(completions)] {
                for (const auto& complete : completions) {
                    complete();
                }
            });
        }
    }
}

// One transaction for all: either every caller's write is durable or none is.
void Store::commit_all(std::vector<Write> writes) {
    const auto start = std::chrono::steady_clock::now();
    Status outcome{};
    if (broken_) {
        outcome = fail(Errc::unavailable, "the store has stopped after an I/O error");
    } else {
        outcome = database_->begin();
    }
    for (std::size_t i = 0; outcome && i < writes.size(); ++i) {
        outcome = writes[i].work(*database_);
    }
    if (outcome) {
        outcome = database_->commit();
    }
    if (!outcome && !broken_) {
        database_->rollback();
        if (outcome.error().code == Errc::corrupt || outcome.error().code == Errc::internal) {
            give_up(outcome.error());
        }
    }
    const auto took = std::chrono::steady_clock::now() - start;
    net::post(io_, [this, took, outcome, writes = std::move(writes)] {
        if (hooks_.on_commit) {
            hooks_.on_commit(took, writes.size());
        }
        for (const auto& write : writes) {
            write.done(outcome);
        }
    });
}

void Store::distrust(Error error) {
    enqueue(Read{[this, error = std::move(error)](Database&) {
        give_up(error);
        return std::function<void()>{[] {}};
    }});
}

void Store::give_up(Error error) {
    if (std::exchange(broken_, true)) {
        return;
    }
    net::post(io_, [this, error = std::move(error)] {
        log::error("the store can no longer be trusted", {{"what", error.message}});
        if (hooks_.on_fatal) {
            hooks_.on_fatal(error);
        }
    });
}

Task<Status> Store::write(std::function<Status(Database&)> work) {
    const auto start = [this, work = std::move(work)](auto handler) mutable {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        Write write;
        write.work = std::move(work);
        write.done = [shared](Status status) { (*shared)(std::move(status)); };
        if (!enqueue(std::move(write))) {
            net::post(io_, [shared] {
                (*shared)(Status{fail(Errc::exhausted, "too many writes are waiting")});
            });
        }
    };
    auto token = net::use_awaitable;
    co_return co_await net::async_initiate<decltype(token), void(Status)>(std::move(start), token);
}

Task<Status> Store::append(Append append) {
    auto shared = std::make_shared<Append>(std::move(append));
    std::function<Status(Database&)> work = [shared](Database& db) {
        return JobRecords{db}.append(*shared);
    };
    co_return co_await write(std::move(work));
}

Task<Result<SubmitDone>> Store::submit(SubmitWrite submit) {
    auto shared = std::make_shared<SubmitWrite>(std::move(submit));
    auto done = std::make_shared<SubmitDone>();
    std::function<Status(Database&)> work = [shared, done](Database& db) -> Status {
        auto result = JobRecords{db}.submit(*shared);
        LOCKSTEP_TRY(result);
        *done = std::move(*result);
        return {};
    };
    const Status status = co_await write(std::move(work));
    LOCKSTEP_CO_TRY(status);
    co_return *done;
}

template <class T>
Task<Result<T>> Store::write_for(std::function<Result<T>(Database&)> work) {
    auto done = std::make_shared<T>();
    const std::function<Status(Database&)> keep = [done,
                                                   work = std::move(work)](Database& db) -> Status {
        auto result = work(db);
        LOCKSTEP_TRY(result);
        *done = std::move(*result);
        return {};
    };
    const Status status = co_await write(keep);
    LOCKSTEP_CO_TRY(status);
    co_return std::move(*done);
}

Task<Result<std::vector<std::int64_t>>> Store::add_log(std::vector<LogWrite> rows) {
    using Ids = std::vector<std::int64_t>;
    auto shared = std::make_shared<std::vector<LogWrite>>(std::move(rows));
    const std::function<Result<Ids>(Database&)> work = [shared](Database& db) -> Result<Ids> {
        Ids ids;
        for (const LogWrite& row : *shared) {
            const auto id = HistoryRecords{db}.add_log(row);
            LOCKSTEP_TRY(id);
            ids.push_back(*id);
        }
        return ids;
    };
    co_return co_await write_for<Ids>(work);
}

Task<Result<std::int64_t>> Store::add_chunks(ChunksWrite write) {
    auto shared = std::make_shared<ChunksWrite>(std::move(write));
    const std::function<Result<std::int64_t>(Database&)> work = [shared](Database& db) {
        return HistoryRecords{db}.add_chunks(*shared);
    };
    co_return co_await write_for<std::int64_t>(work);
}

Task<Result<HistorySize>> Store::expire_history(std::int64_t max_bytes, double before,
                                                std::size_t most) {
    const std::function<Result<HistorySize>(Database&)> work = [=](Database& db) {
        return HistoryRecords{db}.expire(max_bytes, before, most);
    };
    co_return co_await write_for<HistorySize>(work);
}

Task<Result<std::string>> Store::forget_states(std::string after, std::size_t most) {
    const std::function<Result<std::string>(Database&)> work = [after = std::move(after),
                                                                most](Database& db) {
        return HistoryRecords{db}.forget_states(after, most);
    };
    co_return co_await write_for<std::string>(work);
}

Task<Result<bool>> Store::remove_job(RemovalRow removal) {
    const std::function<Result<bool>(Database&)> work = [removal =
                                                             std::move(removal)](Database& db) {
        return RemovalRecords{db}.remove_job(removal);
    };
    co_return co_await write_for<bool>(work);
}

Task<Result<HistorySize>> Store::remove_history(JobId job, std::size_t most) {
    const std::function<Result<HistorySize>(Database&)> work =
        [job = std::move(job), most](Database& db) { return HistoryRecords{db}.remove(job, most); };
    co_return co_await write_for<HistorySize>(work);
}

Task<Status> Store::removal_done(JobId job) {
    std::function<Status(Database&)> work = [job = std::move(job)](Database& db) {
        return RemovalRecords{db}.done(job);
    };
    co_return co_await write(std::move(work));
}

Task<Status> Store::forget_removals(UnixMillis before) {
    std::function<Status(Database&)> work = [before](Database& db) {
        return RemovalRecords{db}.forget(before);
    };
    co_return co_await write(std::move(work));
}

Task<Result<std::vector<ClockGap>>> Store::look_at_clock(UnixMillis now, UnixMillis most) {
    const std::function<Result<std::vector<ClockGap>>(Database&)> work = [=](Database& db) {
        return ClockRecords{db}.look(now, most);
    };
    co_return co_await write_for<std::vector<ClockGap>>(work);
}

Task<Status> Store::settle_notices(std::vector<NoticeSettled> settled) {
    std::function<Status(Database&)> work = [settled = std::move(settled)](Database& db) {
        return NoticeRecords{db}.settle(settled);
    };
    co_return co_await write(std::move(work));
}

Task<Status> Store::add_token(TokenRow token, std::string instead_of) {
    auto shared = std::make_shared<TokenRow>(std::move(token));
    std::function<Status(Database&)> work = [shared, old = std::move(instead_of)](Database& db) {
        const Status removed = old.empty() ? Status{} : TokenRecords{db}.remove(old);
        return removed ? TokenRecords{db}.add(*shared) : removed;
    };
    co_return co_await write(std::move(work));
}

Task<Status> Store::use_token(std::string id, UnixMillis at) {
    std::function<Status(Database&)> work = [id = std::move(id), at](Database& db) {
        return TokenRecords{db}.use(id, at);
    };
    co_return co_await write(std::move(work));
}

Task<Status> Store::revoke_token(std::string id, UnixMillis at) {
    std::function<Status(Database&)> work = [id = std::move(id), at](Database& db) {
        return TokenRecords{db}.revoke(id, at);
    };
    co_return co_await write(std::move(work));
}

Task<Status> Store::probe() {
    std::function<Status(Database&)> work = [](Database& db) { return db.touch(); };
    co_return co_await write(std::move(work));
}

}  // namespace lockstep
