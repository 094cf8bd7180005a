// A rank that joins the others by NCCL through its agent, does every operation once, then STEPS
// all-reduces, compares all results and reports each step. The libraries are the real ones unless
// others are named (the double of tests/support/nccl_double).
//   nccl_rank [--nccl PATH] [--cuda PATH] [--steps N] [--floats N] [--die RANK STEP] [--double
//   WORDS] [--bandwidth BYTES]
// --double: what goes wrong in the double (LOCKSTEP_NCCL_DOUBLE, which no job may set).
// --die: rank RANK ends itself with SIGKILL before step STEP of the first generation; step 0: as
// soon as it has the ids, while the others initialise.
#include "job/base/text.hpp"
#include "job/rank/rank_context.hpp"
#include "job/rank/report.hpp"
#include "job/trainer/client_key_store.hpp"
#include "job/trainer/nccl_meeting.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Values in the GPU's memory; of the double's, that is the host's.
class OnGpu {
  public:
    OnGpu(const CudaDriver& driver, const std::vector<float>& values)
        : driver_(driver), count_(values.size()) {
        driver.api.mem_alloc(&at_, values.size() * sizeof(float));
        driver.api.memcpy_to_gpu(at_, values.data(), values.size() * sizeof(float));
    }
    ~OnGpu() { driver_.api.mem_free(at_); }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;
    Buffer buffer() const {
        return {reinterpret_cast<void*>(at_), count_, Dtype::f32, Device::cuda};
    }
    std::vector<float> read() const {
        std::vector<float> out(count_);
        driver_.api.memcpy_from_gpu(out.data(), at_, count_ * sizeof(float));
        return out;
    }

  private:
    const CudaDriver& driver_;
    cuda::Pointer at_ = 0;
    std::size_t count_;
};

bool same(const char* what, const std::vector<float>& got, const std::vector<float>& want) {
    if (got != want) {
        std::printf("%s is wrong: %g, not %g\n", what, static_cast<double>(got[0]),
                    static_cast<double>(want[0]));
    }
    return got == want;
}
bool went(const char* what, const Status& status) {
    if (!status) {
        std::printf("%s: %s\n", what, status.error().text().c_str());
    }
    return status.has_value();
}

double seconds_since_epoch() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// NCCL makes its connections in the first operation: only then have the ranks met.
bool first_sum(Communicator& all, const CudaDriver& driver, double began, double joined) {
    const OnGpu one{driver, {1.0F}};
    if (!went("all-reduce", all.all_reduce(one.buffer())) || !went("barrier", all.barrier()) ||
        !same("first all-reduce", one.read(), {static_cast<float>(all.size())})) {
        return false;
    }
    std::printf("moments: began %.6f joined %.6f summed %.6f\n", began, joined,
                seconds_since_epoch());
    return true;
}

// Many in a row between two barriers, as nccl-tests measures; the median of some such rows.
bool measure_bandwidth(Communicator& all, const CudaDriver& driver, std::size_t bytes) {
    constexpr int kRows = 7;
    constexpr int kInARow = 20;
    const OnGpu zeros{driver, std::vector<float>(bytes / sizeof(float))};
    std::vector<double> seconds;
    for (int row = 0; row <= kRows; ++row) {
        if (!went("barrier", all.barrier())) {
            return false;
        }
        const auto began = Clock::now();
        for (int i = 0; i < kInARow; ++i) {
            if (!went("all-reduce", all.all_reduce(zeros.buffer()))) {
                return false;
            }
        }
        if (!went("barrier", all.barrier())) {
            return false;
        }
        if (row > 0) {  // the first makes connections
            seconds.push_back(since(began) / kInARow);
        }
    }
    std::sort(seconds.begin(), seconds.end());
    std::printf("all-reduce of %zu bytes: %.9f s\n", bytes, seconds[kRows / 2]);
    return true;
}

// Every operation once.
bool each_operation(Communicator& all, const CudaDriver& driver) {
    const auto size = static_cast<std::size_t>(all.size());
    const auto rank = static_cast<float>(all.rank());
    std::vector<float> numbers(size);
    for (std::size_t i = 0; i < size; ++i) {
        numbers[i] = static_cast<float>(i);
    }
    const float sum = static_cast<float>(size * (size - 1)) / 2.0F;
    const OnGpu mine{driver, {rank}};
    const OnGpu every{driver, std::vector<float>(size)};
    const OnGpu shares{driver, numbers};
    const OnGpu share{driver, {0.0F}};
    const OnGpu root{driver, {rank}};
    const OnGpu one{driver, {rank}};
    const OnGpu mean{driver, {rank}};
    const OnGpu passed{driver, {rank}};
    bool good = went("all-gather", all.all_gather(mine.buffer(), every.buffer())) &&
                went("reduce-scatter", all.reduce_scatter(shares.buffer(), share.buffer())) &&
                went("broadcast", all.broadcast(root.buffer(), all.size() - 1)) &&
                went("reduce", all.reduce(one.buffer(), 0, ReduceOp::max)) &&
                went("average", all.all_reduce(mean.buffer(), ReduceOp::average));
    if (good && all.size() > 1 && all.rank() == 0) {
        good = went("send", all.send(passed.buffer(), all.size() - 1));
    } else if (good && all.size() > 1 && all.rank() == all.size() - 1) {
        good = went("recv", all.recv(passed.buffer(), 0));
    }
    good = good && went("barrier", all.barrier());
    const float last = static_cast<float>(size) - 1.0F;
    return good && same("all-gather", every.read(), numbers) &&
           same("reduce-scatter", share.read(), {static_cast<float>(size) * rank}) &&
           same("broadcast", root.read(), {last}) &&
           same("reduce", one.read(), {all.rank() == 0 ? last : rank}) &&
           same("average", mean.read(), {sum / static_cast<float>(size)}) &&
           same("send", passed.read(), {all.rank() == all.size() - 1 ? 0.0F : rank});
}

// Well, and elsewhere, until the others have found that out.
int stay_away(Communicator& all) {
    while (!all.async_error()) {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    std::puts(all.async_error()->text().c_str());
    return 1;
}

std::map<std::string, std::string> read_flags(int argc, char** argv) {
    std::map<std::string, std::string> flags{{"--nccl", kNcclLibrary}, {"--cuda", kCudaDriver},
                                             {"--steps", "10"},        {"--floats", "1024"},
                                             {"--die", "-1"},          {"--at", "0"},
                                             {"--skip", "-1"},         {"--silence", "600000"},
                                             {"--double", ""},         {"--bandwidth", "0"}};
    for (int i = 1; i + 1 < argc; i += 2) {
        flags[argv[i]] = argv[i + 1];
        if (std::string{argv[i]} == "--die" && i + 2 < argc) {
            flags["--at"] = argv[++i + 1];
        }
    }
    if (!flags["--double"].empty()) {
        ::setenv("LOCKSTEP_NCCL_DOUBLE", flags["--double"].c_str(), 1);
    }
    return flags;
}

}  // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    auto flags = read_flags(argc, argv);
    const auto number = [&](const char* flag) { return to_int(flags[flag]).value_or(0); };
    const auto context = read_rank_context();
    if (!context || !context->managed()) {
        std::puts("nccl_rank runs as a rank of a job");
        return 2;
    }
    auto client = RankClient::connect(context->socket);
    auto driver = load_cuda(flags["--cuda"]);
    if (!client || !driver) {
        std::puts((client ? driver.error() : client.error()).text().c_str());
        return 1;
    }
    int gpus = 1;
    driver->api.device_get_count(&gpus);
    ClientKeyStore keys{**client};
    NcclOptions options;
    options.rank = context->rank;
    options.size = context->world_size;
    options.gpu = gpus > 0 ? context->local_rank % gpus : 0;
    options.nccl_library = flags["--nccl"];
    options.cuda_driver = flags["--cuda"];
    options.silence = std::chrono::milliseconds{number("--silence")};
    const bool dies = context->generation == 1 && context->rank == number("--die");
    const auto began = Clock::now();
    const double began_at = seconds_since_epoch();
    if (dies && number("--at") == 0) {
        // What connect_nccl does, as far as this rank comes.
        static_cast<void>(
            make_nccl(options, keys, [](const auto& make) -> Result<std::vector<NcclUniqueId>> {
                static_cast<void>(make());
                ::raise(SIGKILL);
                return fail(Errc::cancelled, "dead");
            }));
    }
    auto all = connect_nccl(options, **client, keys);
    if (!all) {
        std::puts(all.error().text().c_str());
        return 1;
    }
    const double joined_at = seconds_since_epoch();
    const auto library = load_nccl(flags["--nccl"]);
    // What it says of itself, so that no line of the double is taken for one of NCCL.
    const char* says = library->api.get_last_error(nullptr);
    const bool is_double = std::string_view{says == nullptr ? "" : says}.ends_with("NCCL double");
    std::printf("rank %d of %d joined in %.3f s: %sNCCL %s from %s, GPU %d of %d\n", context->rank,
                context->world_size, since(began), is_double ? "the DOUBLE of " : "",
                library->version_text().c_str(), flags["--nccl"].c_str(), options.gpu, gpus);
    const auto bytes = static_cast<std::size_t>(number("--bandwidth"));
    if (!first_sum(**all, *driver, began_at, joined_at) || !each_operation(**all, *driver) ||
        (bytes > 0 && !measure_bandwidth(**all, *driver, bytes))) {
        return 1;
    }
    Report report;
    const auto count = static_cast<std::size_t>(number("--floats"));
    for (std::int64_t step = 1; step <= number("--steps"); ++step) {
        if (dies && step == number("--at")) {
            ::raise(SIGKILL);
        }
        if (context->rank == number("--skip") && step == 5) {
            return stay_away(**all);
        }
        const auto rank = static_cast<float>(context->rank);
        const OnGpu values{*driver, std::vector<float>(count, rank + static_cast<float>(step))};
        const auto began_step = Clock::now();
        if (!went("all-reduce", (*all)->all_reduce(values.buffer())) ||
            !went("barrier", (*all)->barrier())) {
            return 1;
        }
        const double took = since(began_step);
        const auto size = static_cast<float>(context->world_size);
        const float want = size * static_cast<float>(step) + size * (size - 1) / 2;
        if (!same("all-reduce", values.read(), std::vector<float>(count, want))) {
            return 1;
        }
        report.begin(step, 0);
        report.metric("loss", 1.0 / static_cast<double>(step));
        report.metric("step_seconds", took);
        (*client)->send_now(report.finish());
    }
    std::puts("every result was right");
    return 0;
}
