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

const char* word_of(NcclBlame blame) {
    switch (blame) {
        case NcclBlame::self:
            return "self";
        case NcclBlame::partner:
            return "partner";
        case NcclBlame::unknown:
            break;
    }
    return "unknown";
}

int test_nccl() {
    Lines lines;
    std::string text(limits::kTextBytes * 32, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), stdin));
    const Result<Json> json = parse_json(text);
    const Result<PairTask> task = json ? parse_pair_task(*json) : fail(json.error());
    if (!task) {
        std::fprintf(stderr, "lockstep-nccl-test: standard input is no task: %s\n",
                     task.error().message.c_str());
        return kExitNoTask;
    }
    const NcclPairEnd end =
        run_nccl_pair(*task, limits::kNcclTest, [&lines](const Json& line) { lines.say(line); });
    if (!end.error.empty()) {
        lines.say({{"error", end.error},
                   {"blames", word_of(end.fact.blames)},
                   {"unloadable", end.fact.unloadable}});
        return kExitFailed;
    }
    lines.say({{"ranks", end.fact.ranks},
               {"nodes", end.fact.nodes},
               {"bytes", end.fact.bytes},
               {"bus_bytes_per_second", end.bus_bytes_per_second},
               {"latency_seconds", end.latency_seconds},
               {"wrong", end.fact.wrong}});
    return end.fact.wrong == 0 ? 0 : kExitFailed;
}

}  // namespace
}  // namespace lockstep

int main() {
    // What is under way in NCCL or a driver is not waited for.
    std::_Exit(lockstep::test_nccl());
}
