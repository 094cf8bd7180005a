// Thousands of agents of one job, simulated: each a real TCP connection with a real WebSocket to a
// real lockstepd. They say what an agent says and run no rank. Prints "name value unit" lines for
// tests/bench/run, which starts the daemon and the job.
//
//   bench_agents PORT TICKET NODES SPARES RANKS DAEMON_PID JOB TOKEN BEAT_SECONDS [unpaced]
//
// One process holds all of them (12,288 of the 20,000 descriptors it may have) and is not the
// daemon's: what they cost is not counted as its. Sources are 127.0.0.2 to 65, bound without a
// port: from one address the kernel's search for a free port would be most of what is measured.
#include "tests/bench/agents/crowd.hpp"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace {

using lockstep::bench::Clock;
using lockstep::bench::Crowd;
using lockstep::bench::ms_since;
using lockstep::bench::Options;
using std::chrono::milliseconds;

// Processor time of all of the daemon's threads, in ms.
double daemon_cpu(int pid) {
    double sum = 0;
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator{tasks}) {
        std::ifstream file{task.path() / "schedstat"};
        double nanoseconds = 0;
        file >> nanoseconds;
        sum += nanoseconds * 1e-6;
    }
    return sum;
}

double daemon_mib(int pid, const char* key) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/status"};
    std::string line;
    while (std::getline(file, line)) {
        if (line.starts_with(key)) {
            return std::strtod(line.c_str() + std::strlen(key), nullptr) / 1024;
        }
    }
    return 0;
}

void print(const char* name, double value, const char* unit) {
    std::printf("%s %.3f %s\n", name, value, unit);
    std::fflush(stdout);
}

int measure(const Options& options) {
    Crowd crowd{options};
    const auto cpu = [&] { return daemon_cpu(options.daemon); };
    double before = cpu();
    const auto began = Clock::now();
    if (!crowd.cold()) {
        std::fprintf(stderr, "not every agent got START\n");
        return 1;
    }
    print("cold", ms_since(began), "ms");
    print("cold_cpu", cpu() - before, "ms");
    print("cold_refused", crowd.refused(), "connections");
    print("cold_received", static_cast<double>(crowd.bytes_received()) / 1024 / options.nodes,
          "KiB/agent");
    crowd.settle(milliseconds{1500});
    for (const bool ranks_end : {false, true}) {
        const std::string name = ranks_end ? "next_with_ends" : "next";
        before = cpu();
        const double took = crowd.next_generation(
            [&] { crowd.post("/v1/jobs/" + options.job + "/restart"); }, ranks_end);
        if (took < 0) {
            std::fprintf(stderr, "no next generation\n");
            return 1;
        }
        print(name.c_str(), took, "ms");
        print((name + "_asked").c_str(), crowd.until_abort(), "ms");
        print((name + "_cpu").c_str(), cpu() - before, "ms");
        crowd.settle(milliseconds{1500});
    }
    if (options.beat_seconds > 0) {
        before = cpu();
        crowd.beat(std::chrono::seconds{options.beat_seconds});
        print("beat_core", (cpu() - before) / 10 / options.beat_seconds, "%");
    }
    before = cpu();
    if (crowd.next_generation([&] { crowd.fault(1); }, false) < 0) {
        std::fprintf(stderr, "no generation after a rank's end\n");
        return 1;
    }
    print("rank_detected", crowd.until_abort(), "ms");
    if (options.spares >= 2) {
        crowd.beat(std::chrono::seconds{2});
        const std::string bye = R"({"type":"bye","event":1000,"reason":"a bench"})";
        if (crowd.next_generation([&] { crowd.leave(2, bye); }, false) < 0) {
            std::fprintf(stderr, "no generation after BYE\n");
            return 1;
        }
        print("bye_detected", crowd.until_abort(), "ms");
        crowd.beat(std::chrono::seconds{2});
        if (crowd.next_generation([&] { crowd.freeze(3); }, false) < 0) {
            std::fprintf(stderr, "no generation after an agent fell silent\n");
            return 1;
        }
        print("silent_detected", crowd.until_abort(), "ms");
    }
    print("rss", daemon_mib(options.daemon, "VmRSS:"), "MiB");
    print("rss_most", daemon_mib(options.daemon, "VmHWM:"), "MiB");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 10) {
        std::fprintf(stderr, "usage: see the top of bench_agents.cpp\n");
        return 2;
    }
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    Options options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    options.ticket = argv[2];
    options.nodes = std::atoi(argv[3]);
    options.spares = std::atoi(argv[4]);
    options.ranks = std::atoi(argv[5]);
    options.daemon = std::atoi(argv[6]);
    options.job = argv[7];
    options.token = argv[8];
    options.beat_seconds = std::atoi(argv[9]);
    options.paced = argc < 11 || std::string_view{argv[10]} != "unpaced";
    return measure(options);
}
