// Our all-reduce beside Gloo's own, of the same two processes in alternation:
//
//   bench_all_reduce RANK SIZE FOLDER BYTES…
//
// The ranks meet through files in FOLDER. Rank 0 prints a line of JSON for every number of bytes:
// {"bytes", "lockstep_us", "tcp_us", "gloo_us"}, medians over the rounds of an operation's time;
// tcp: ours as between two machines, without shared memory.
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/collective/gloo.hpp"
#include "tests/support/folder_key_store.hpp"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 15;
constexpr int kWarmUp = 3;

double microseconds_of(int times, const auto& operation) {
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) {
        operation();
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / times;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

int run(int rank, int size, const std::filesystem::path& folder,
        const std::vector<std::size_t>& sizes) {
    test::FolderKeyStore keys{folder};
    GlooOptions options;
    options.rank = rank;
    options.size = size;
    const Result<std::unique_ptr<Communicator>> ours = make_gloo(options, keys);
    if (!ours) {
        std::fprintf(stderr, "%s\n", ours.error().text().c_str());
        return 1;
    }
    options.prefix = "tcp";
    options.shared_memory = false;
    const Result<std::unique_ptr<Communicator>> apart = make_gloo(options, keys);
    if (!apart) {
        std::fprintf(stderr, "%s\n", apart.error().text().c_str());
        return 1;
    }
    gloo::rendezvous::FileStore store{folder.string()};
    gloo::transport::tcp::attr address{"127.0.0.1"};
    auto device = gloo::transport::tcp::CreateDevice(address);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->connectFullMesh(store, device);
    for (const std::size_t bytes : sizes) {
        const int times = bytes < (1U << 20U) ? 50 : 8;
        std::vector<float> values(bytes / sizeof(float), 1e-30F);
        const auto sum = [&](Communicator& ranks) {
            if (const Status done = ranks.all_reduce(buffer_of(std::span<float>{values})); !done) {
                std::fprintf(stderr, "%s\n", done.error().text().c_str());
                std::exit(1);
            }
        };
        const auto gloo = [&] {
            gloo::AllreduceOptions operation{context};
            operation.setOutput(values.data(), values.size());
            operation.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
            operation.setReduceFunction([](void* c, const void* a, const void* b, std::size_t n) {
                gloo::sum<float>(c, a, b, n);
            });
            gloo::allreduce(operation);
        };
        std::vector<double> mine;
        std::vector<double> tcp;
        std::vector<double> theirs;
        for (int round = 0; round < kWarmUp + kRounds; ++round) {
            const double a = microseconds_of(times, [&] { sum(**ours); });
            const double b = microseconds_of(times, [&] { sum(**apart); });
            const double c = microseconds_of(times, gloo);
            if (round >= kWarmUp) {
                mine.push_back(a);
                tcp.push_back(b);
                theirs.push_back(c);
            }
        }
        if (rank == 0) {
            std::printf("{\"bytes\":%zu,\"lockstep_us\":%.1f,\"tcp_us\":%.1f,\"gloo_us\":%.1f}\n",
                        bytes, median(mine), median(tcp), median(theirs));
            std::fflush(stdout);
        }
    }
    return (*ours)->barrier() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    std::vector<std::size_t> sizes;
    for (int i = 4; i < argc; ++i) {
        sizes.push_back(static_cast<std::size_t>(lockstep::to_int(argv[i]).value_or(0)));
    }
    if (sizes.empty()) {
        std::fprintf(stderr, "usage: bench_all_reduce RANK SIZE FOLDER BYTES…\n");
        return 2;
    }
    return lockstep::run(static_cast<int>(lockstep::to_int(argv[1]).value_or(0)),
                         static_cast<int>(lockstep::to_int(argv[2]).value_or(1)), argv[3], sizes);
}
