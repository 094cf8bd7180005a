// Looks at the ranks of a hang before anything is ended: what their processes do in the kernel,
// their stacks, what NCCL and torch know. Writes it into the attempt's folder
// (job/model/evidence.hpp) and says what was had and what was not. Bounded in time and size by
// limits::kEvidence…; never touches a rank beyond attaching a debugger. Agent thread only, except
// that /proc, the attempt's folder and the job's own folders are each read and written on a thread
// of their own: what hangs there stops neither the beats nor the other two, and nobody waits for
// it longer than the look may take. Must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/diagnostics/flight_dump.hpp"
#include "job/agent/diagnostics/nccl_ras.hpp"
#include "job/agent/diagnostics/stack_tools.hpp"
#include "job/agent/ranks/process_look.hpp"
#include "job/async/side_thread.hpp"
#include "job/async/subprocess.hpp"
#include "job/async/task_group.hpp"
#include "job/model/wire/wire.hpp"

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
    // Puts the bytes into the file, which may take for ever; on a thread.
    using WriteFile = std::function<Status(const std::filesystem::path&, std::string_view bytes)>;

    // `path`: where debuggers are looked for, in PATH's form, after the ranks' own. `write`: empty
    // = as it should be; tests give one that hangs.
    EvidenceTaker(TaskGroup& tasks, std::filesystem::path attempt_directory, std::string path,
                  WriteFile write = {});
    ~EvidenceTaker();

    // What NCCL's diagnostics found, for the job's user.
    void on_found(std::function<void(std::string)> found) { found_ = std::move(found); }

    // What is counted and measured of a rank in NCCL, for people; "" = nothing.
    void on_measured(std::function<std::string(std::int32_t rank)> measured) {
        measured_ = std::move(measured);
    }

    using Done = std::function<void(wire::EvidenceSaved)>;
    // Looks at the ranks, the first ones first. `done` is called once, when all is written or
    // limits::kEvidenceTime is over, with what there is by then; not if stop() comes before. One at
    // a time: false, and nothing is done, while another is under way.
    // `gentle`: without debuggers, and what else would hold up ranks that go on.
    bool take(std::int32_t generation, std::vector<wire::StartedRank> ranks, Done done,
              bool gentle = false);
    // The ranks are to end: debuggers are killed, so that they hold nobody, and none is started.
    void stop();

  private:
    struct Part {
        wire::RankEvidence evidence;
        std::vector<ProcessLook> tree;
        bool python = false;               // its Python stacks are there
        std::vector<std::string> writing;  // names of files on their way
    };
    // All that one look has under way: an older one that is still ending must not touch it.
    struct Taking {
        explicit Taking(net::io_context& io) : runner(io), all_done(io) {}
        std::int32_t generation = 0;
        std::vector<wire::StartedRank> ranks;
        std::vector<Part> parts;  // in their order
        StackToolMap tools;
        std::size_t next = 0;  // whose stacks come next
        std::size_t open = 0;  // coroutines at work
        bool gentle = false;
        bool over = false;  // what comes now is too late
        std::chrono::steady_clock::time_point deadline;
        ProcessRunner runner;
        net::steady_timer all_done;
        std::shared_ptr<tcp::socket> ras;  // the question under way
        Done done;
    };
    using TakingPointer = std::shared_ptr<Taking>;

    void begin(const TakingPointer& taking, std::string_view name, Task<void> task);
    Task<void> run(TakingPointer taking);
    Task<void> look(TakingPointer taking);
    Task<void> python(TakingPointer taking);
    Task<void> find_tools(TakingPointer taking);
    Task<void> stacks(TakingPointer taking);
    Task<void> ras(TakingPointer taking);
    Task<std::string> diagnostics(TakingPointer taking, RasAddress where);
    Task<void> flight(TakingPointer taking, std::size_t index);
    void write(const TakingPointer& taking, std::size_t index, std::string_view name,
               std::string text);
    Task<void> save(TakingPointer taking, std::size_t index, std::string name, std::string text);
    Task<void> clear(TakingPointer taking);
    static void end_all(Taking& taking);
    static void finished_one(Taking& taking);
    void give(Taking& taking);

    TaskGroup& tasks_;
    std::filesystem::path directory_;
    std::string path_;
    WriteFile write_;
    std::function<void(std::string)> found_ = [](const std::string&) {};
    std::function<std::string(std::int32_t)> measured_ = [](std::int32_t) { return ""; };
    TakingPointer taking_;  // null: none
    SideThread proc_;
    SideThread files_;   // of the attempt's folder
    SideThread tools_;   // of the job's own: its PATH
    SideThread theirs_;  // torch's dumps; one rank's file system must not cost another's
};

}  // namespace lockstep
