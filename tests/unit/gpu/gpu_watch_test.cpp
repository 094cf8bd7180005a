#include "job/agent/gpu/gpu_watch.hpp"

#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/gpu/gpu_script.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// What the watch said, for the test's thread to wait for.
class Heard {
  public:
    GpuWatch::Handlers handlers() {
        return {[this](GpuBatch batch) {
                    const std::lock_guard lock{mutex_};
                    batches_.push_back(std::move(batch));
                    changed_.notify_all();
                },
                [this](GpuXidSeen seen, std::int32_t rank) {
                    const std::lock_guard lock{mutex_};
                    errors_.emplace_back(seen, rank);
                    changed_.notify_all();
                }};
    }
    template <class Predicate>
    bool wait(Predicate predicate) {
        std::unique_lock lock{mutex_};
        return changed_.wait_for(lock, 10s, [&] { return predicate(batches_, errors_); });
    }
    using Batches = std::vector<GpuBatch>;
    using Errors = std::vector<std::pair<GpuXidSeen, std::int32_t>>;

    Batches batches_;
    Errors errors_;

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
};

// Handlers that hold the token until the watch's thread has let go of them.
GpuWatch::Handlers holding(Heard& heard, const std::shared_ptr<int>& token) {
    GpuWatch::Handlers out = heard.handlers();
    out.sampled = [token, inner = std::move(out.sampled)](GpuBatch batch) {
        inner(std::move(batch));
    };
    return out;
}

template <class Condition>
bool until(const Condition& condition) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!condition() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
    }
    return condition();
}

TEST(GpuWatch, WithoutALibraryThereIsOneLineAndNothingElse) {
    for (const char* library : {"libthere-is-no-such.so.9", FAKE_NVML_NEW}) {
        Heard heard;
        const test::TemporaryFolder folder;
        const auto path = folder / "log";
        const UniqueFd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
        const UniqueFd usual{::dup(STDERR_FILENO)};
        ASSERT_EQ(::dup2(file.get(), STDERR_FILENO), STDERR_FILENO);
        log::start("test", log::Level::info, false);
        {
            const GpuWatch watch{heard.handlers(), 10ms, library};
            // It leaves a thread alone that has not got there soon.
            until([&] { return test::text_of(path).find('\n') != std::string::npos; });
        }
        ASSERT_EQ(::dup2(usual.get(), STDERR_FILENO), STDERR_FILENO);
        const std::string log = test::text_of(path);
        EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
        EXPECT_NE(log.find("no GPU metrics"), std::string::npos) << log;
        EXPECT_EQ(log.find("error"), std::string::npos) << log;
        EXPECT_TRUE(heard.batches_.empty());
    }
}

TEST(GpuWatch, LooksAgainAndAgain) {
    const GpuScript script{"gpus 2\ngpu 0 utilization 10\n"};
    Heard heard;
    const GpuWatch watch{heard.handlers(), 10ms, FAKE_NVML_NEW};
    EXPECT_TRUE(heard.wait([](const auto& batches, const auto&) { return batches.size() >= 2; }));
    script.write("gpus 2\ngpu 0 utilization 90\n");
    EXPECT_TRUE(heard.wait([](const auto& batches, const auto&) {
        return batches.back().gpus.at(0)[GpuMetric::utilization] == 0.9;
    }));
}

TEST(GpuWatch, AnErrorNamesItsGpuAndRankAndStaysInTheSamples) {
    const std::string before = "gpus 4\ngpu 2 process " + std::to_string(::getpid()) + " 7\n";
    const GpuScript script{before};
    Heard heard;
    GpuWatch watch{heard.handlers(), 10ms, FAKE_NVML_NEW};
    watch.set_ranks({{::getpid(), 6}});
    EXPECT_TRUE(heard.wait([](const auto& batches, const auto&) {
        return !batches.empty() && batches.back().uses.size() == 1;
    }));
    // Twice: the second within a minute is not told again. The GPU is lost with it, as with 79.
    script.write(before + "gpu 2 lost\nxid 2 79\nxid 2 79\nxid 1 63\n");
    EXPECT_TRUE(heard.wait([](const auto& batches, const auto& errors) {
        return errors.size() == 2 && batches.back().xids.size() == 2;
    }));
    EXPECT_EQ(heard.errors_[0].first.gpu, 2U);
    EXPECT_EQ(heard.errors_[0].first.xid, 79U);
    EXPECT_EQ(heard.errors_[0].second, 6) << "who used it before it was lost";
    EXPECT_EQ(heard.errors_[1].first.gpu, 1U);
    EXPECT_EQ(heard.errors_[1].second, -1) << "nobody used it";
}

TEST(GpuWatch, EndsPromptly) {
    const GpuScript script{"gpus 8\n"};
    Heard heard;
    const auto token = std::make_shared<int>(0);
    auto watch = std::make_unique<GpuWatch>(holding(heard, token), 1h, FAKE_NVML_NEW);
    EXPECT_TRUE(heard.wait([](const auto& batches, const auto&) { return !batches.empty(); }));
    watch.reset();
    EXPECT_TRUE(until([&] { return token.use_count() == 1; })) << "long before its next look";
}

// Xid 79 and 119: a call into the driver may never come back, and the agent has to end.
TEST(GpuWatch, ADriverThatDoesNotReturnIsLeftBehind) {
    const GpuScript script{"gpus 2\n"};
    Heard heard;
    const auto token = std::make_shared<int>(0);
    auto watch = std::make_unique<GpuWatch>(holding(heard, token), 10ms, FAKE_NVML_NEW);
    EXPECT_TRUE(heard.wait([](const auto& batches, const auto&) { return !batches.empty(); }));
    script.write("gpus 2\nhang\n");
    ASSERT_TRUE(until([&] { return script.hangs(); }));
    const int before = LooseThread::abandoned();
    const auto began = std::chrono::steady_clock::now();
    watch.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
    EXPECT_EQ(LooseThread::abandoned(), before + 1);
    const std::size_t told = heard.batches_.size();
    script.write("gpus 2\n");
    EXPECT_TRUE(until([&] { return token.use_count() == 1; })) << "it ends once it can";
    EXPECT_EQ(heard.batches_.size(), told) << "and says nothing any more";
}

}  // namespace
}  // namespace lockstep
