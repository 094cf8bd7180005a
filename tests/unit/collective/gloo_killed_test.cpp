// A rank that is killed, as a process of its own, in the middle of a message.
#include "job/collective/gloo.hpp"
#include "tests/support/folder_key_store.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Far more than the kernel takes at once: 128 MiB.
constexpr std::size_t kMany = 32ULL << 20U;

// Whether another thread, Gloo's, has written to the value within the time.
bool changes(float& value, float from) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (std::atomic_ref{value}.load(std::memory_order_relaxed) == from) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

// Over TCP, or through the memory that the ranks share.
class GlooKilled : public testing::TestWithParam<bool> {
  protected:
    using Values = std::vector<float>;
    using Body = std::function<Status(Communicator&, Values&)>;

    Result<std::unique_ptr<Communicator>> meet(std::int32_t rank, std::int32_t ranks) {
        test::FolderKeyStore store{folder_ / std::to_string(tries_)};
        GlooOptions options;
        options.rank = rank;
        options.size = ranks;
        options.connect_timeout = 30s;
        options.shared_memory = GetParam();
        return make_gloo(options, store);
    }

    // A process that is a rank. `dies`: as soon as the first of its values changes.
    pid_t start(std::int32_t rank, std::int32_t ranks, const Body& body, bool dies) {
        const pid_t child = ::fork();
        if (child != 0) {
            return child;
        }
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(60);
        auto values = Values(kMany, 2.0F);
        auto made = meet(rank, ranks);
        if (!made) {
            std::_Exit(1);
        }
        if (dies) {
            std::thread{[&] {
                if (changes(values.front(), 2.0F)) {
                    ::kill(::getpid(), SIGKILL);
                }
            }}.detach();
        }
        static_cast<void>(body(**made, values));
        for (;;) {
            ::pause();
        }
    }

    // What rank 0's call says after rank 1 was killed in the middle of it: by itself when its
    // values change, or when rank 0's do.
    Status once(std::int32_t ranks, const Body& survivor, const Body& victim, bool victim_sees_it) {
        ++tries_;
        std::filesystem::create_directory(folder_ / std::to_string(tries_));
        std::vector<pid_t> children;
        for (std::int32_t rank = 1; rank < ranks; ++rank) {
            children.push_back(
                start(rank, ranks, rank == 1 ? victim : survivor, rank == 1 && victim_sees_it));
        }
        const auto values = std::make_shared<Values>(kMany, 1.0F);
        std::promise<Status> said;
        std::future<Status> result = said.get_future();
        std::thread thread{[this, ranks, values, &survivor, said = std::move(said)]() mutable {
            auto made = meet(0, ranks);
            said.set_value(made ? survivor(**made, *values) : Status{fail(made.error())});
        }};
        if (!victim_sees_it) {
            EXPECT_TRUE(changes(values->front(), 1.0F));
            ::kill(children.front(), SIGKILL);
        }
        const bool ended = result.wait_for(30s) == std::future_status::ready;
        for (const pid_t child : children) {
            ::kill(child, SIGKILL);
            EXPECT_EQ(::waitpid(child, nullptr, 0), child);
        }
        if (!ended) {
            ADD_FAILURE() << "rank 0 did not notice that rank 1 was killed";
            std::fflush(nullptr);
            std::_Exit(1);  // nothing ends its thread
        }
        thread.join();
        return result.get();
    }

    // The message may be through before the thread that is to notice it has run.
    void is_told(std::int32_t ranks, const Body& survivor, const Body& victim,
                 bool victim_sees_it) {
        Status told;
        while (told && tries_ < 10) {
            told = once(ranks, survivor, victim, victim_sees_it);
        }
        ASSERT_FALSE(told.has_value());
        EXPECT_EQ(told.error().code, Errc::unavailable) << told.error().text();
    }

    test::TemporaryFolder folder_;
    int tries_ = 0;
};

Buffer all_of(std::vector<float>& values) {
    return {values.data(), values.size(), Dtype::f32, Device::cpu};
}
Status send(Communicator& ranks, std::vector<float>& values) {
    return ranks.send(all_of(values), 1 - ranks.rank());
}
Status receive(Communicator& ranks, std::vector<float>& values) {
    return ranks.recv(all_of(values), 1 - ranks.rank());
}
Status sum(Communicator& ranks, std::vector<float>& values) {
    return ranks.all_reduce_sum(values);
}
// Many that are too few for the ring, until one fails.
Status small_sums(Communicator& ranks, std::vector<float>& values) {
    for (;;) {
        if (const Status done = ranks.all_reduce_sum(std::span{values}.first(3000)); !done) {
            return done;
        }
    }
}
Status from_root(Communicator& ranks, std::vector<float>& values) {
    return ranks.broadcast(all_of(values), 0);
}

TEST_P(GlooKilled, WhoReceivesFromItIsTold) {
    is_told(2, receive, send, /*victim_sees_it=*/false);
}

TEST_P(GlooKilled, WhoSendsToItIsTold) {
    is_told(2, send, receive, /*victim_sees_it=*/true);
}

TEST_P(GlooKilled, WhoSumsWithItIsTold) {
    is_told(2, sum, sum, /*victim_sees_it=*/true);
}

TEST_P(GlooKilled, WhoSumsFewValuesWithItIsTold) {
    is_told(2, small_sums, small_sums, /*victim_sees_it=*/true);
}

// Rank 1 gives its values to rank 0, which exchanges them with rank 2.
TEST_P(GlooKilled, WhoSumsFewValuesForItAndAnotherIsTold) {
    is_told(3, small_sums, small_sums, /*victim_sees_it=*/true);
}

// Gloo's broadcast sends to both from one buffer; rank 2 has its values and stays.
TEST_P(GlooKilled, WhoSendsToItAndToAnotherIsTold) {
    is_told(3, from_root, from_root, /*victim_sees_it=*/true);
}

INSTANTIATE_TEST_SUITE_P(SharedMemory, GlooKilled, testing::Bool());

}  // namespace
}  // namespace lockstep
