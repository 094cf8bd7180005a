// A rank that is killed, as a process of its own, in the middle of a message.
#include "job/base/files.hpp"
#include "job/collective/gloo.hpp"
#include "job/collective/key_store.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// Far more than the kernel takes at once: 256 MiB.
constexpr std::size_t kMany = 64ULL << 20U;

// Keys that processes share: a file each.
class FolderKeyStore final : public KeyStore {
  public:
    explicit FolderKeyStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

    Status set(const std::string& key, std::string_view value) override {
        return write_file_atomic(path(key), value);
    }
    Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override {
        const auto end = std::chrono::steady_clock::now() + timeout;
        while (!std::filesystem::exists(path(key))) {
            if (std::chrono::steady_clock::now() > end) {
                return fail(Errc::timed_out, key);
            }
            std::this_thread::yield();
        }
        return read_file(path(key), 1U << 20U);
    }

  private:
    std::filesystem::path path(std::string key) const {
        std::replace(key.begin(), key.end(), '/', '.');
        return folder_ / key;
    }
    std::filesystem::path folder_;
};

// Returns when another thread, Gloo's, has written to the value.
void wait_for_change(float& value, float from) {
    while (std::atomic_ref{value}.load(std::memory_order_relaxed) == from) {
        std::this_thread::yield();
    }
}

class GlooKilled : public testing::Test {
  protected:
    using Values = std::vector<float>;
    using Body = std::function<Status(Communicator&, Values&)>;

    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "gloo-killed-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    Result<std::unique_ptr<Communicator>> meet(std::int32_t rank, std::int32_t ranks) {
        FolderKeyStore store{folder_};
        GlooOptions options;
        options.rank = rank;
        options.size = ranks;
        return make_gloo(options, store);
    }

    // What rank 0's call says after rank 1, a process, has killed itself: when the first or the
    // last of its values has changed, or is killed when rank 0's have.
    Status outcome(const Body& survivor, const Body& victim, bool victim_sees_it) {
        const pid_t child = ::fork();
        if (child == 0) {
            auto values = Values(kMany, 2.0F);
            auto made = meet(1, 2);
            if (victim_sees_it) {
                std::thread{[&] {
                    wait_for_change(values.front(), 2.0F);
                    ::kill(::getpid(), SIGKILL);
                }}.detach();
            }
            static_cast<void>(victim(**made, values));
            ::pause();
        }
        const auto values = std::make_shared<Values>(kMany, 1.0F);
        std::promise<Status> said;
        std::future<Status> result = said.get_future();
        std::thread thread{[this, values, &survivor, said = std::move(said)]() mutable {
            auto made = meet(0, 2);
            said.set_value(made ? survivor(**made, *values) : Status{fail(made.error())});
        }};
        if (!victim_sees_it) {
            wait_for_change(values->front(), 1.0F);
            ::kill(child, SIGKILL);
        }
        int status = 0;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        if (result.wait_for(30s) != std::future_status::ready) {
            ADD_FAILURE() << "rank 0 did not notice that rank 1 was killed";
            std::fflush(nullptr);
            std::_Exit(1);  // nothing ends its thread
        }
        thread.join();
        return result.get();
    }

    std::filesystem::path folder_;
};

Status send(Communicator& ranks, std::vector<float>& values) {
    return ranks.send({values.data(), values.size(), Dtype::f32, Device::cpu}, 1 - ranks.rank());
}
Status receive(Communicator& ranks, std::vector<float>& values) {
    return ranks.recv({values.data(), values.size(), Dtype::f32, Device::cpu}, 1 - ranks.rank());
}
Status sum(Communicator& ranks, std::vector<float>& values) {
    return ranks.all_reduce_sum(values);
}

TEST_F(GlooKilled, WhoReceivesFromItIsTold) {
    const Status told = outcome(receive, send, /*victim_sees_it=*/false);
    ASSERT_FALSE(told.has_value());
    EXPECT_EQ(told.error().code, Errc::unavailable) << told.error().text();
}

TEST_F(GlooKilled, WhoSendsToItIsTold) {
    const Status told = outcome(send, receive, /*victim_sees_it=*/true);
    ASSERT_FALSE(told.has_value());
    EXPECT_EQ(told.error().code, Errc::unavailable) << told.error().text();
}

TEST_F(GlooKilled, WhoSumsWithItIsTold) {
    const Status told = outcome(sum, sum, /*victim_sees_it=*/true);
    ASSERT_FALSE(told.has_value());
    EXPECT_EQ(told.error().code, Errc::unavailable) << told.error().text();
}

}  // namespace
}  // namespace lockstep
