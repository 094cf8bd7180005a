// The pre-flight on one node: gathers the facts once, says CHECKED on every connection that asks
// for it, and answers PROBE. Nothing in it waits for a disk, a resolver or a driver: what may hang
// is an errand. Agent thread; must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/preflight/errands.hpp"
#include "job/agent/preflight/pair_tester.hpp"
#include "job/agent/preflight/peer_probe.hpp"
#include "job/agent/preflight/preflight_facts.hpp"
#include "job/async/subprocess.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Preflight {
  public:
    struct Options {
        std::filesystem::path root = "/";  // of /proc, /sys and /dev; another one only in tests
        std::filesystem::path attempt_directory;
        std::int32_t slot = 0;
        std::string ticket;
        std::string train_program;
        std::string gpu_test_program;
        std::string nccl_test_program;
        std::map<std::string, std::string> environment;
        GpuReader gpus = read_gpus;
        // Of all of it; the daemon waits limits::kFactsPatience.
        std::chrono::milliseconds budget{12'000};
        // A folder that is mounted at its first use, or whose server is asked by every node of the
        // job at this moment, takes seconds and is none that fails.
        std::chrono::milliseconds needed_patience{5'000};  // for a folder the job needs
        std::chrono::milliseconds gpu_patience{4'000};
        // For NVML: a driver that nothing keeps awake takes about a second for every GPU.
        std::chrono::milliseconds health_patience{8'000};
        std::chrono::milliseconds patience{2'000};  // for another path, the resolver, …
    };
    // What the daemon has told about the job, and what was measured with it.
    struct Start {
        JobSpec spec;
        std::string checkpoint_directory;
        std::string address;        // of this node, as the daemon sees it
        std::string ports_problem;  // see NodeFacts
        std::int32_t ports_needed = 0;
        std::int64_t clock_offset_ms = 0;
        std::int64_t clock_error_ms = 0;
    };
    using Say = std::function<void(wire::AgentMessage)>;

    Preflight(TaskGroup& tasks, Options options, Say say);

    // The daemon wants CHECKED: it is said as soon as the facts are there; again at once.
    void begin(const Start& start);
    void probe(const wire::Probe& probe);
    void pair_test(const wire::PairTest& test) { pairs_.run(test); }
    // It forks: threads that load libraries should wait (errands.hpp).
    bool looking() const { return looking_; }
    // Nobody will ask any more.
    void no_more_peers() { peers_.stop(); }
    void stop();

  private:
    Task<void> gather();
    void add_errands();
    void add_device_errands();
    void take_answers();
    void take_device_answers();
    Task<void> test_cpus();
    Task<void> test_gpus();
    void say_checked();

    TaskGroup& tasks_;
    Options options_;
    Say say_;
    PeerProbe peers_;
    Errands errands_;
    ProcessRunner runner_;
    PairTester pairs_;
    std::optional<Start> start_;
    NodeFacts facts_;
    std::vector<PathFact> paths_;            // that are looked at
    std::vector<std::size_t> path_errands_;  // by their index
    std::optional<std::size_t> hostname_;
    std::size_t versions_ = 0;
    std::size_t gpus_ = 0;
    std::optional<std::size_t> health_;
    std::optional<std::size_t> nics_;
    bool looking_ = false;
    bool done_ = false;
    bool stopped_ = false;
};

}  // namespace lockstep
