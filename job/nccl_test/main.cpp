// lockstep-nccl-test: one node's part of the pre-flight's test of NCCL between two nodes
// (preflight.nccl_test). Agents start it; the task, a PairTask
// (job/model/preflight/pair_outcome.hpp), comes by standard input, for its token is nobody else's
// to read. Loads libnccl.so.2 and libcuda.so.1 as programs do that were linked with them
// (LD_LIBRARY_PATH).
//
// Output: lines of JSON (job/model/preflight/nccl_test.hpp). Exit status: 0 = all GPUs of both
// nodes have summed, 1 = they have not, or wrongly, 2 = no task.
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/nccl_test/nccl_pair.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace lockstep {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitNoTask = 2;

// Standard output is for these lines alone: NCCL prints there as well.
class Lines {
  public:
    Lines() : fd_(::dup(STDOUT_FILENO)) { ::dup2(STDERR_FILENO, STDOUT_FILENO); }
    void say(const Json& line) {
        const std::lock_guard lock{mutex_};
        const std::string text = dump_json(line) + "\n";
        static_cast<void>(!::write(fd_, text.data(), text.size()));
    }

  private:
    int fd_;
    std::mutex mutex_;
};

// The end is said once: by the test, or by its watchdog.
class End {
  public:
    explicit End(Lines& lines) : lines_(lines) {}
    // Does not return.
    [[noreturn]] void say(const NcclPairEnd& end) {
        const std::lock_guard lock{mutex_};  // never given back
        if (!end.error.empty()) {
            lines_.say({{"error", end.error},
                        {"blames", to_string(end.fact.blames)},
                        {"unloadable", end.fact.unloadable}});
            std::_Exit(kExitFailed);
        }
        lines_.say({{"ranks", end.fact.ranks},
                    {"nodes", end.fact.nodes},
                    {"bytes", end.fact.bytes},
                    {"bus_bytes_per_second", end.bus_bytes_per_second},
                    {"latency_seconds", end.latency_seconds},
                    {"wrong", end.fact.wrong}});
        // What is under way in NCCL or a driver is not waited for.
        std::_Exit(end.fact.wrong == 0 ? 0 : kExitFailed);
    }

  private:
    Lines& lines_;
    std::mutex mutex_;
};

int test_nccl() {
    Lines lines;
    End end{lines};
    std::string text(limits::kTextBytes * 32, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), stdin));
    const Result<Json> json = parse_json(text);
    const Result<PairTask> task = json ? parse_pair_task(*json) : fail(json.error());
    if (!task) {
        std::fprintf(stderr, "lockstep-nccl-test: standard input is no task: %s\n",
                     task.error().message.c_str());
        return kExitNoTask;
    }
    end.say(run_nccl_pair(
        *task, limits::kNcclTest, [&lines](const Json& line) { lines.say(line); },
        [&end](const NcclPairEnd& known) { end.say(known); }));
}

}  // namespace
}  // namespace lockstep

int main() {
    return lockstep::test_nccl();
}
