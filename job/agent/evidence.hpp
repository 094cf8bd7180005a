// Looks at the ranks of a hang before anything is ended: what their processes do in the kernel,
// their stacks, what NCCL and torch know. Writes it into the attempt's folder
// (job/model/evidence.hpp) and says what was had and what was not. Bounded in time and size by
// limits::kEvidence…; never touches a rank beyond attaching a debugger. Agent thread only, except
// that /proc and the files are read and written on a thread of its own: a file system that hangs
// must not stop the beats. Must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/flight_dump.hpp"
#include "job/agent/process_look.hpp"
#include "job/async/on_thread.hpp"
#include "job/async/subprocess.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class EvidenceTaker {
  public:
    // `path`: where debuggers are looked for, in PATH's form, after the ranks' own.
    EvidenceTaker(TaskGroup& tasks, std::filesystem::path attempt_directory, std::string path);
    ~EvidenceTaker();

    using Done = std::function<void(wire::EvidenceSaved)>;
    // Looks at the ranks, the first ones first. `done` is called once, when all is written or
    // limits::kEvidenceTime is over; not if stop() comes before. One at a time: false, and nothing
    // is done, while another is under way.
    bool take(std::int32_t generation, std::vector<wire::StartedRank> ranks, Done done);
    // The ranks are to end: debuggers are killed, so that they hold nobody.
    void stop();

  private:
    struct Part {
        wire::RankEvidence evidence;
        std::vector<ProcessLook> tree;
    };
    struct Taking {
        std::int32_t generation = 0;
        std::vector<wire::StartedRank> ranks;
        std::vector<Part> parts;  // in their order
        std::size_t next = 0;     // whose stacks come next
        std::size_t open = 0;     // coroutines at work
        bool over = false;        // what comes now is too late
        std::chrono::steady_clock::time_point deadline;
        Done done;
    };
    using TakingPointer = std::shared_ptr<Taking>;

    Task<void> run(TakingPointer taking);
    Task<void> stacks(TakingPointer taking);
    Task<void> ras(TakingPointer taking);
    Task<void> flight(TakingPointer taking, std::size_t index);
    Task<void> save(TakingPointer taking, std::size_t index, std::string_view name,
                    std::string text);
    void finished_one(Taking& taking);
    void give(Taking& taking);

    TaskGroup& tasks_;
    std::filesystem::path directory_;
    std::string path_;
    ProcessRunner runner_;
    net::steady_timer all_done_;
    std::shared_ptr<tcp::socket> ras_;         // the question under way
    TakingPointer taking_;                     // null: none
    std::unique_ptr<net::thread_pool> files_;  // started with the first use
};

}  // namespace lockstep
