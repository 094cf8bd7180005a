#include "daemon/store/store.hpp"

#include "daemon/store/database.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/job_records.hpp"
#include "job/async/task_group.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <future>

namespace lockstep {
namespace {

// Reads of SQLite fail as on a disk that is about to die.
bool reads_fail = false;

ssize_t read_or_eio(int fd, void* bytes, std::size_t count) {
    errno = EIO;
    return reads_fail ? -1 : ::read(fd, bytes, count);
}
ssize_t pread_or_eio(int fd, void* bytes, std::size_t count, off_t at) {
    errno = EIO;
    return reads_fail ? -1 : ::pread(fd, bytes, count, at);
}

// For as long as it is there SQLite reads by the two above.
class WatchedReads {
  public:
    WatchedReads() {
        put("read", reinterpret_cast<sqlite3_syscall_ptr>(read_or_eio));
        put("pread", reinterpret_cast<sqlite3_syscall_ptr>(pread_or_eio));
        put("pread64", reinterpret_cast<sqlite3_syscall_ptr>(pread_or_eio));
    }
    WatchedReads(const WatchedReads&) = delete;
    WatchedReads& operator=(const WatchedReads&) = delete;
    ~WatchedReads() {
        reads_fail = false;
        for (const char* name : {"read", "pread", "pread64"}) {
            put(name, nullptr);
        }
    }

  private:
    static void put(const char* name, sqlite3_syscall_ptr call) {
        sqlite3_vfs* const vfs = ::sqlite3_vfs_find(nullptr);
        vfs->xSetSystemCall(vfs, name, call);  // of the two names of pread() it has one
    }
};

class StoreTest : public ::testing::Test {
  protected:
    void SetUp() override { open_store(); }
    void open_store() {
        Store::Hooks hooks;
        hooks.on_commit = [this](std::chrono::nanoseconds, std::size_t writes) {
            ++commits_;
            largest_ = std::max(largest_, writes);
        };
        hooks.on_fatal = [this](const Error&) { ++fatal_; };
        store_ = std::make_unique<Store>(io_, std::move(Database::open(folder_ / "db").value()),
                                         std::move(hooks));
    }
    SubmitWrite submission(Seq seq) const {
        SubmitWrite write;
        Event event;
        event.seq = seq;
        event.job = make_job_id(1000);
        event::Submitted data;
        data.spec = *parse_json(R"({"name":"t","framework":"native"})");
        event.data = data;
        write.append.row.id = event.job;
        write.append.events.push_back(std::move(event));
        return write;
    }
    // Runs the task on the control thread until it is done, then lets the store end.
    void run(Task<void> task) {
        TaskGroup tasks{io_};
        auto then = [this](Task<void> inner) -> Task<void> {
            co_await std::move(inner);
            store_->stop();
        };
        tasks.spawn("test", then(std::move(task)));
        io_.run();
    }

    // The store's thread waits until let_go(): what is written meanwhile gathers behind it.
    void hold_store(TaskGroup& tasks) {
        tasks.spawn("hold", wait_there());
        io_.poll();
        held_.get_future().wait();
    }
    void let_go() { go_.set_value(); }

    const test::TemporaryFolder folder_;
    net::io_context io_{1};
    std::size_t commits_ = 0;
    std::size_t largest_ = 0;
    int fatal_ = 0;
    std::promise<void> held_;
    std::promise<void> go_;
    std::unique_ptr<Store> store_;  // goes first: its hooks write to what is above

  private:
    Task<void> wait_there() {
        const std::function<Result<bool>(Database&)> wait = [this](Database&) -> Result<bool> {
            held_.set_value();
            go_.get_future().wait();
            return true;
        };
        const auto waited = co_await store_->read<bool>(wait);
        EXPECT_TRUE(waited.has_value());
    }
};

TEST_F(StoreTest, SharesOneCommitBetweenWritesThatWait) {
    constexpr std::size_t kWrites = 500;
    std::size_t stored = 0;
    auto one = [&](Seq seq) -> Task<void> {
        SubmitWrite write = submission(seq);
        const auto done = co_await store_->submit(std::move(write));
        EXPECT_TRUE(done.has_value());
        stored += done.has_value() ? 1 : 0;
        if (stored == kWrites) {
            store_->stop();
        }
    };
    TaskGroup tasks{io_};
    hold_store(tasks);
    for (std::size_t i = 0; i < kWrites; ++i) {
        tasks.spawn("write", one(store_->next_seq()));
    }
    net::post(io_, [this] { let_go(); });
    io_.run();
    EXPECT_EQ(stored, kWrites);
    EXPECT_LT(commits_, kWrites / 4);
    EXPECT_GT(largest_, 4U);
}

TEST_F(StoreTest, ReadsSeeTheWritesQueuedBeforeThem) {
    auto body = [&]() -> Task<void> {
        for (int i = 0; i < 5; ++i) {
            SubmitWrite write = submission(store_->next_seq());
            const auto done = co_await store_->submit(std::move(write));
            EXPECT_TRUE(done.has_value());
        }
        const std::function<Result<std::vector<JobId>>(Database&)> read = [](Database& db) {
            return JobRecords{db}.unfinished();
        };
        const auto ids = co_await store_->read<std::vector<JobId>>(read);
        EXPECT_EQ(ids->size(), 5U);
    };
    run(body());
    EXPECT_EQ(store_->last_seq(), 5);
}

TEST_F(StoreTest, AFullDiskFailsTheWholeGroupAndHealsWithoutARestart) {
    auto body = [&]() -> Task<void> {
        const std::function<Result<bool>(Database&)> shrink = [](Database& db) -> Result<bool> {
            return db.limit_pages(1).has_value();
        };
        const auto shrunk = co_await store_->read<bool>(shrink);
        EXPECT_TRUE(shrunk.value_or(false));
        Errc code = Errc::internal;
        for (int i = 0; i < 500 && code != Errc::exhausted; ++i) {
            SubmitWrite write = submission(store_->next_seq());
            write.append.row.view = std::string(20'000, 'x');
            const auto done = co_await store_->submit(std::move(write));
            code = done ? Errc::internal : done.error().code;
        }
        EXPECT_EQ(code, Errc::exhausted);
        const std::function<Result<bool>(Database&)> grow = [](Database& db) -> Result<bool> {
            return db.limit_pages(1'000'000).has_value();
        };
        co_await store_->read<bool>(grow);
        SubmitWrite write = submission(store_->next_seq());
        const auto healed = co_await store_->submit(std::move(write));
        EXPECT_TRUE(healed.has_value());
    };
    run(body());
    EXPECT_EQ(fatal_, 0);
}

TEST_F(StoreTest, OneWriteThatFailsFailsAllThatShareItsTransaction) {
    int refused = 0;
    int answered = 0;
    auto one = [&](Seq seq) -> Task<void> {
        SubmitWrite write = submission(seq);
        const auto done = co_await store_->submit(std::move(write));
        refused += done ? 0 : 1;
        if (++answered == 3) {
            store_->stop();
        }
    };
    TaskGroup tasks{io_};
    hold_store(tasks);
    for (const Seq seq : {1, 1, 2}) {  // the second cannot be: the number is taken
        tasks.spawn("write", one(seq));
    }
    net::post(io_, [this] { let_go(); });
    io_.run();
    EXPECT_EQ(largest_, 3U);
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(fatal_, 1);
    store_.reset();
    const auto database = std::move(Database::open(folder_ / "db").value());
    EXPECT_TRUE(EventRecords{*database}.after(0, 10)->empty());
}

// What the disk has is not known after an error of SQLite's own: nothing of the transaction stays,
// no other one is begun, and whoever runs the daemon hears of it once.
TEST_F(StoreTest, AfterAnErrorOfTheDatabaseNothingIsWrittenAnyMore) {
    auto body = [&]() -> Task<void> {
        SubmitWrite first = submission(store_->next_seq());
        Append twice = first.append;
        const auto good = co_await store_->submit(std::move(first));
        EXPECT_TRUE(good.has_value());
        // Its second half cannot be: the number is taken.
        Event event = twice.events.front();
        event.seq = store_->next_seq();
        twice.events.insert(twice.events.begin(), event);
        const auto broken = co_await store_->append(std::move(twice));
        EXPECT_FALSE(broken.has_value());
        EXPECT_EQ(broken ? Errc::exhausted : broken.error().code, Errc::internal);
        for (int i = 0; i < 2; ++i) {
            SubmitWrite write = submission(store_->next_seq());
            const auto refused = co_await store_->submit(std::move(write));
            EXPECT_FALSE(refused.has_value());
            EXPECT_EQ(refused ? Errc::exhausted : refused.error().code, Errc::unavailable);
        }
        const std::function<Result<std::vector<Event>>(Database&)> read = [](Database& db) {
            return EventRecords{db}.after(0, 10);
        };
        const auto events = co_await store_->read<std::vector<Event>>(read);
        EXPECT_EQ(events ? events->size() : 0U, 1U) << "the first half of the failed one is there";
    };
    run(body());
    EXPECT_EQ(fatal_, 1);
}

// A disk that cannot be read, or is damaged, was told to whoever asked and to nobody else.
TEST_F(StoreTest, AReadThatTheDiskFailsStopsTheStoreAsAWriteDoes) {
    JobId job;
    auto fill = [&]() -> Task<void> {
        SubmitWrite write = submission(store_->next_seq());
        // Pages that nobody reads at the start.
        write.append.row.view = R"({"n":")" + std::string(200'000, ' ') + R"("})";
        job = write.append.row.id;
        const auto done = co_await store_->submit(std::move(write));
        EXPECT_TRUE(done.has_value());
    };
    run(fill());
    store_.reset();
    io_.restart();
    const WatchedReads watched;
    open_store();
    auto body = [&]() -> Task<void> {
        const std::function<Result<std::optional<JobRow>>(Database&)> read = [&](Database& db) {
            reads_fail = true;
            auto row = JobRecords{db}.find(job);
            reads_fail = false;
            return row;
        };
        const auto row = co_await store_->read<std::optional<JobRow>>(read);
        EXPECT_FALSE(row.has_value());
        SubmitWrite write = submission(store_->next_seq());
        const auto refused = co_await store_->submit(std::move(write));
        EXPECT_FALSE(refused.has_value());
        EXPECT_EQ(refused ? Errc::exhausted : refused.error().code, Errc::unavailable);
    };
    run(body());
    EXPECT_EQ(fatal_, 1);
}

TEST_F(StoreTest, WhatDoesNotDecodeIsTheMatterOfWhoeverAsksForIt) {
    auto body = [&]() -> Task<void> {
        const std::function<Result<bool>(Database&)> read = [](Database&) -> Result<bool> {
            return fail(Errc::corrupt, "a chunk that does not read back");
        };
        const auto chunk = co_await store_->read<bool>(read);
        EXPECT_FALSE(chunk.has_value());
        SubmitWrite write = submission(store_->next_seq());
        const auto taken = co_await store_->submit(std::move(write));
        EXPECT_TRUE(taken.has_value());
    };
    run(body());
    EXPECT_EQ(fatal_, 0);
}

TEST_F(StoreTest, NothingIsAcceptedAfterItStopped) {
    store_->stop();
    io_.restart();  // the store's was the last work, which stops an io_context that nobody runs
    Errc code = Errc::internal;
    auto body = [&]() -> Task<void> {
        SubmitWrite write = submission(1);
        const auto done = co_await store_->submit(std::move(write));
        EXPECT_FALSE(done.has_value());
        code = done.error().code;
    };
    TaskGroup tasks{io_};
    tasks.spawn("late", body());
    io_.run();
    EXPECT_EQ(code, Errc::exhausted);
}

}  // namespace
}  // namespace lockstep
