#include "job/collective/gloo.hpp"

#include "job/collective/memory_key_store.hpp"
#include "tests/unit/collective/gloo_ranks.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Runs `body` as every rank of a world, one thread each.
void as_ranks(std::int32_t size, const std::function<void(Communicator&)>& body,
              bool shared_memory = true) {
    MemoryKeyStore store;
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < size; ++rank) {
        threads.emplace_back([&store, &body, rank, size, shared_memory] {
            GlooOptions options;
            options.rank = rank;
            options.size = size;
            options.shared_memory = shared_memory;
            Result<std::unique_ptr<Communicator>> made = make_gloo(options, store);
            ASSERT_TRUE(made.has_value()) << made.error().text();
            body(**made);
            const Status end = (*made)->barrier();
            EXPECT_TRUE(end.has_value());
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

TEST(Gloo, OneRankAloneNeedsNoNetwork) {
    MemoryKeyStore store;
    GlooOptions options;
    options.address = "no such host";
    const Result<std::unique_ptr<Communicator>> made = make_gloo(options, store);
    ASSERT_TRUE(made.has_value());
    std::vector<float> values{1.0F, 2.0F};
    ASSERT_TRUE((*made)->all_reduce_sum(values).has_value());
    EXPECT_EQ(values, (std::vector<float>{1.0F, 2.0F}));
    EXPECT_TRUE((*made)->barrier().has_value());
}

// Found by CI: the write that loses the race against the news of a peer's end killed the process.
TEST(Gloo, AWriteToARankThatHasLeftDoesNotRaiseSigpipe) {
    std::signal(SIGPIPE, SIG_DFL);
    as_ranks(2, [](Communicator&) {});
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    ::close(ends[0]);
    EXPECT_EQ(::write(ends[1], "x", 1), -1);  // the default action would end this test
    EXPECT_EQ(errno, EPIPE);
    ::close(ends[1]);
}

TEST(Gloo, TheProgramsOwnHandlerForSigpipeStays) {
    static volatile std::sig_atomic_t raised = 0;
    std::signal(SIGPIPE, [](int) { raised = 1; });
    as_ranks(2, [](Communicator&) {});
    ASSERT_EQ(std::raise(SIGPIPE), 0);
    EXPECT_EQ(raised, 1);
    std::signal(SIGPIPE, SIG_DFL);
}

// Threads of this process with SCHED_BATCH.
std::size_t batch_threads() {
    std::size_t out = 0;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
        const auto id = static_cast<pid_t>(std::stol(task.path().filename().string()));
        out += ::sched_getscheduler(id) == SCHED_BATCH ? 1 : 0;
    }
    return out;
}

// Beside busy processes a message took a tick of the scheduler, 4 ms: see gloo_device.cpp.
TEST(Gloo, ItsThreadPushesNobodyOffACoreAndNobodyElseHasItsPolicy) {
    ASSERT_EQ(batch_threads(), 0U);
    as_ranks(2, [](Communicator& communicator) {
        EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
        EXPECT_TRUE(communicator.barrier().has_value());
        EXPECT_EQ(batch_threads(), 2U);
        EXPECT_TRUE(communicator.barrier().has_value());
    });
    EXPECT_EQ(batch_threads(), 0U);
}

// So many ranks, over TCP or through the memory that they share.
class GlooWorld : public testing::TestWithParam<std::tuple<std::int32_t, bool>> {
  protected:
    static std::int32_t size() { return std::get<0>(GetParam()); }
    static void as_ranks(const std::function<void(Communicator&)>& body) {
        lockstep::as_ranks(size(), body, std::get<1>(GetParam()));
    }
};

TEST_P(GlooWorld, AllReduceLeavesTheSumWithTheSameBitsOnEveryRank) {
    const std::int32_t size = GlooWorld::size();
    // By exchange for two ranks only, and by the ring for all; in shared memory in one block, in
    // some, and in more than there are slots.
    constexpr std::size_t kPair = 50'000;
    constexpr std::size_t kRing = 150'000;
    constexpr std::size_t kSlotsFull = 700'001;
    for (const std::size_t count : {std::size_t{1}, std::size_t{3}, kPair, kRing, kSlotsFull}) {
        std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
        as_ranks([&](Communicator& communicator) {
            std::vector<float> values(count);
            for (std::size_t i = 0; i < count; ++i) {
                values[i] =
                    0.1F * static_cast<float>(communicator.rank() + 1) + static_cast<float>(i % 7);
            }
            const Status done = communicator.all_reduce_sum(values);
            ASSERT_TRUE(done.has_value()) << done.error().text();
            results[static_cast<std::size_t>(communicator.rank())] = values;
        });
        for (std::size_t i = 0; i < count; ++i) {
            const float want = 0.05F * static_cast<float>(size * (size + 1)) +
                               static_cast<float>(size) * static_cast<float>(i % 7);
            ASSERT_NEAR(results[0][i], want, 1e-4F) << i;
        }
        for (const std::vector<float>& result : results) {
            EXPECT_EQ(result, results[0]);
        }
    }
}

// Which of the two is the maximum depends on their order: it must be the same on every rank.
TEST_P(GlooWorld, ZerosOfBothSignsLeaveTheSameBitsOnEveryRank) {
    const std::int32_t size = GlooWorld::size();
    std::vector<std::vector<bool>> negative(static_cast<std::size_t>(size));
    as_ranks([&](Communicator& communicator) {
        const std::int32_t rank = communicator.rank();
        std::vector<float> values(1000);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = (i >> static_cast<std::size_t>(rank)) % 2 == 0 ? 0.0F : -0.0F;
        }
        const Status done = communicator.all_reduce(buffer_of(values), ReduceOp::max);
        ASSERT_TRUE(done.has_value()) << done.error().text();
        for (const float value : values) {
            negative[static_cast<std::size_t>(rank)].push_back(std::signbit(value));
        }
    });
    for (const std::vector<bool>& signs : negative) {
        EXPECT_EQ(signs, negative[0]);
    }
}

TEST_P(GlooWorld, BroadcastCopiesTheRoot) {
    as_ranks([](Communicator& communicator) {
        std::vector<std::byte> bytes(1000, static_cast<std::byte>(communicator.rank()));
        const std::int32_t root = communicator.size() - 1;
        ASSERT_TRUE(communicator.broadcast(bytes, root).has_value());
        EXPECT_EQ(bytes, std::vector<std::byte>(1000, static_cast<std::byte>(root)));
    });
}

INSTANTIATE_TEST_SUITE_P(Sizes, GlooWorld,
                         testing::Combine(testing::Range(1, 10), testing::Bool()));

TEST(Gloo, AMissingPeerIsATimeout) {
    MemoryKeyStore store;
    GlooOptions options;
    options.size = 2;
    options.connect_timeout = 50ms;
    const Result<std::unique_ptr<Communicator>> made = make_gloo(options, store);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, Errc::timed_out);
    EXPECT_EQ(made.error().message, "gloo: connect: missing: rank 1");
}

// Where rank 1 never comes, of a group whose members are ranks 5 and 7 of the job.
TEST(Gloo, AMissingPeerIsNamedAsTheJobKnowsIt) {
    MemoryKeyStore store;
    GlooOptions options;
    options.size = 2;
    options.names = {5, 7};
    options.connect_timeout = 50ms;
    const Result<std::unique_ptr<Communicator>> made = make_gloo(options, store);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().message, "gloo: connect: missing: rank 7");
}

// A process of its own that suspends this one for a while, as Slurm suspends a job, once it is
// asked to. Made before there are threads.
class Suspension {
  public:
    explicit Suspension(timespec how_long) {
        std::array<int, 2> ends{};
        EXPECT_EQ(::pipe(ends.data()), 0);
        const pid_t all = ::getpid();
        child_ = ::fork();
        if (child_ == 0) {
            ::close(ends[1]);
            char go = 0;
            if (::read(ends[0], &go, 1) != 1) {
                ::_exit(1);  // the test is over without it
            }
            const timespec until_they_wait{0, 200'000'000};
            ::nanosleep(&until_they_wait, nullptr);
            ::kill(all, SIGSTOP);
            ::nanosleep(&how_long, nullptr);
            ::kill(all, SIGCONT);
            ::_exit(0);
        }
        ::close(ends[0]);
        go_ = ends[1];
    }
    Suspension(const Suspension&) = delete;
    Suspension& operator=(const Suspension&) = delete;
    ~Suspension() { ::close(go_); }
    // Comes back when this process goes on.
    void happen() const {
        EXPECT_EQ(::write(go_, "x", 1), 1);
        EXPECT_EQ(::waitpid(child_, nullptr, 0), child_);
    }

  private:
    pid_t child_ = -1;
    int go_ = -1;
};

class GlooSuspended : public testing::TestWithParam<bool> {};

// It went on with a clock that had gone on, and gave up a rank that had been suspended with it.
TEST_P(GlooSuspended, WhoWaitsDoesNotCountTheTimeInWhichItWasSuspended) {
    const Suspension suspension{{3, 0}};
    as_gloo_ranks(
        2,
        [&](Communicator& ranks) {
            std::vector<float> values(1000, 1.0F);
            ASSERT_TRUE(ranks.all_reduce_sum(values).has_value());
            if (ranks.rank() == 1) {
                suspension.happen();
            }
            const Status done = ranks.all_reduce_sum(values);
            EXPECT_TRUE(done.has_value()) << done.error().text();
            EXPECT_EQ(values.front(), 4.0F);
        },
        2s, GetParam());
}

// Its patience is at its end some time nevertheless.
TEST_P(GlooSuspended, WhoIsNeverAnsweredIsTold) {
    std::promise<void> told;
    std::shared_future<void> heard = told.get_future().share();
    as_gloo_ranks(
        2,
        [&](Communicator& ranks) {
            std::vector<float> values(1000, 1.0F);
            ASSERT_TRUE(ranks.all_reduce_sum(values).has_value());
            if (ranks.rank() == 0) {
                const Status done = ranks.all_reduce_sum(values);
                EXPECT_FALSE(done.has_value());
                EXPECT_TRUE(done || done.error().code == Errc::timed_out) << "rank 0";
                told.set_value();
            } else {
                heard.wait();  // the connection stays as long
            }
        },
        1s, GetParam());
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, GlooSuspended, testing::Bool());

TEST(Gloo, APeerThatLeavesFailsTheOperationOfTheOthers) {
    MemoryKeyStore store;
    std::vector<Status> results(2);
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&store, &results, rank] {
            GlooOptions options;
            options.rank = rank;
            options.size = 2;
            Result<std::unique_ptr<Communicator>> made = make_gloo(options, store);
            ASSERT_TRUE(made.has_value());
            ASSERT_TRUE((*made)->barrier().has_value());  // everybody has met; now one may leave
            if (rank == 0) {
                std::vector<float> values(10'000, 1.0F);
                results[0] = (*made)->all_reduce_sum(values);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    ASSERT_FALSE(results[0].has_value());
    EXPECT_EQ(results[0].error().code, Errc::unavailable);
}

}  // namespace
}  // namespace lockstep
