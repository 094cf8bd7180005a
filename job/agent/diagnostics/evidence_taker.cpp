// size: the parts of one look, which share what it has under way
#include "job/agent/diagnostics/evidence_taker.hpp"

#include "job/agent/diagnostics/python_stacks.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/evidence.hpp"
#include "job/model/python_stack.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

namespace lockstep {
namespace {

// The daemon may be another Unix user: then the folder's access control list says who reads it, and
// the mode's group bits bound that.
constexpr unsigned kEvidenceMode = 0660;
constexpr unsigned kFolderMode = 0770;
constexpr auto kDumpPoll = std::chrono::milliseconds{50};
constexpr auto kDumpRead = std::chrono::seconds{2};
// The folders of a PATH are looked through in milliseconds, or one of them hangs.
constexpr auto kToolSearch = std::chrono::seconds{3};
// NCCL's diagnostics take milliseconds, or a driver hangs; what came before is still to be written.
constexpr auto kDiagnosticsTime = std::chrono::seconds{3};
constexpr auto kWriteTime = std::chrono::seconds{1};
constexpr const char* kSystemPath = "/usr/local/bin:/usr/bin:/bin";
constexpr const char* kNoFiles = "the file system did not answer in time";

using Trees = std::vector<std::vector<ProcessLook>>;

Result<std::filesystem::path> make_folder(std::filesystem::path at, std::int32_t generation,
                                          std::int32_t rank) {
    for (const std::string& name : evidence_folders(generation, rank)) {
        at /= name;
        if (::mkdir(at.c_str(), kFolderMode) != 0 && errno != EEXIST) {
            return fail(errno_error("mkdir " + at.string(), errno));
        }
    }
    return at;
}

void add_gap(wire::RankEvidence& out, std::string_view what, const std::string& why) {
    if (out.missing.size() < limits::kEvidenceGaps) {
        out.missing.push_back(
            {std::string{what}, printable(std::string_view{why}.substr(0, limits::kTextBytes))});
    }
}

// The kernel's part: at once, and it needs nobody's help.
Trees look_at_ranks(const std::vector<wire::StartedRank>& ranks) {
    Trees out;
    const auto children = children_by_parent();
    for (const wire::StartedRank& rank : ranks) {
        out.push_back(look_at_tree(static_cast<pid_t>(rank.pid), children));
    }
    return out;
}

struct Asked {
    FlightRecorder recorder;
    Status status;
};
struct Dump {
    FlightRecorder recorder;
    Result<std::optional<std::string>> bytes;
};

}  // namespace

EvidenceTaker::EvidenceTaker(TaskGroup& tasks, std::filesystem::path attempt_directory,
                             std::string path, WriteFile write)
    : tasks_(tasks),
      directory_(std::move(attempt_directory)),
      path_(std::move(path)),
      write_(write ? std::move(write)
                   : [](const std::filesystem::path& at,
                        std::string_view bytes) { return replace_file(at, bytes, kEvidenceMode); }),
      proc_(tasks.io()),
      files_(tasks.io()),
      tools_(tasks.io()),
      theirs_(tasks.io(), limits::kEvidenceParallel) {}

EvidenceTaker::~EvidenceTaker() = default;

bool EvidenceTaker::take(std::int32_t generation, std::vector<wire::StartedRank> ranks, Done done,
                         bool gentle) {
    if (taking_) {
        return false;
    }
    taking_ = std::make_shared<Taking>(tasks_.io());
    taking_->generation = generation;
    taking_->ranks = std::move(ranks);
    taking_->gentle = gentle;
    taking_->parts.resize(taking_->ranks.size());
    for (std::size_t i = 0; i < taking_->ranks.size(); ++i) {
        taking_->parts[i].evidence.rank = taking_->ranks[i].rank;
    }
    taking_->deadline = std::chrono::steady_clock::now() + limits::kEvidenceTime;
    // Before anything that may hang.
    taking_->all_done.expires_at(taking_->deadline);
    taking_->done = std::move(done);
    tasks_.spawn("evidence", run(taking_));
    return true;
}

void EvidenceTaker::stop() {
    if (const TakingPointer taking = std::exchange(taking_, nullptr)) {
        taking->over = true;
        taking->done = nullptr;
        taking->deadline = {};  // of what has been begun, but has not run yet
        end_all(*taking);
    }
    proc_.let_go();
    files_.let_go();
    tools_.let_go();
    theirs_.let_go();
}

// `task` ends with finished_one().
void EvidenceTaker::begin(const TakingPointer& taking, std::string_view name, Task<void> task) {
    ++taking->open;
    tasks_.spawn(name, std::move(task));
}

void EvidenceTaker::finished_one(Taking& taking) {
    if (--taking.open == 0) {
        taking.all_done.cancel();
    }
}

void EvidenceTaker::end_all(Taking& taking) {
    taking.runner.kill_all();
    if (taking.ras) {
        ErrorCode ignored;
        taking.ras->close(ignored);
    }
    taking.all_done.cancel();
}

Task<void> EvidenceTaker::run(TakingPointer taking) {
    begin(taking, "evidence of the kernel", look(taking));
    if (taking->open > 0 && !taking->over) {
        ErrorCode ec;
        co_await taking->all_done.async_wait(into(ec));
    }
    give(*taking);
}

void EvidenceTaker::give(Taking& taking) {
    const bool late = taking.open > 0;
    taking.over = true;
    if (taking_.get() == &taking) {
        taking_.reset();
    }
    if (late) {
        end_all(taking);
    }
    const Done done = std::exchange(taking.done, nullptr);
    if (!done) {
        return;
    }
    wire::EvidenceSaved saved;
    saved.generation = taking.generation;
    for (Part& part : taking.parts) {
        for (const std::string& name : part.writing) {
            add_gap(part.evidence, name, kNoFiles);
        }
        if (late && part.evidence.frame.empty() && part.evidence.files.size() < 3) {
            add_gap(part.evidence, "all", "the time for it was over");
        }
        saved.ranks.push_back(part.evidence);
    }
    done(std::move(saved));
}

Task<void> EvidenceTaker::look(TakingPointer taking) {
    const std::function<Trees()> work = [ranks = taking->ranks] { return look_at_ranks(ranks); };
    auto trees = co_await proc_.run<Trees>(work, taking->deadline);
    if (!trees) {
        for (Part& part : taking->parts) {
            add_gap(part.evidence, "state", "/proc did not answer in time");
        }
    }
    if (!trees || taking->over) {
        finished_one(*taking);
        co_return;
    }
    for (std::size_t i = 0; i < taking->parts.size(); ++i) {
        taking->parts[i].tree = std::move((*trees)[i]);
    }
    begin(taking, "evidence of before", clear(taking));
    begin(taking, "python stacks", python(taking));
    for (std::size_t i = 0; i < taking->parts.size(); ++i) {
        Part& part = taking->parts[i];
        if (part.tree.empty()) {
            add_gap(part.evidence, "state", "its process has ended");
            continue;
        }
        std::string state;
        std::string kernel;
        for (const ProcessLook& process : part.tree) {
            state += process.text;
            kernel += process.kernel;
        }
        write(taking, i, kStateText, std::move(state));
        if (std::string measured = measured_(part.evidence.rank); !measured.empty()) {
            write(taking, i, kNcclText, std::move(measured));
        }
        if (kernel.empty()) {
            add_gap(part.evidence, "kernel", "only root may read kernel stacks");
        } else {
            write(taking, i, kKernelText, std::move(kernel));
        }
        if (!taking->gentle) {
            begin(taking, "flight recorder", flight(taking, i));
        }
    }
    if (!taking->gentle) {
        begin(taking, "ras", ras(taking));
    }
    finished_one(*taking);
}

// Files of an earlier look. Its own come after it, on the same thread.
Task<void> EvidenceTaker::clear(TakingPointer taking) {
    std::vector<std::int32_t> ranks;
    for (const Part& part : taking->parts) {
        if (!part.tree.empty()) {
            ranks.push_back(part.evidence.rank);
        }
    }
    const std::function<bool()> work = [directory = directory_, generation = taking->generation,
                                        ranks] {
        for (const std::int32_t rank : ranks) {
            const auto folder = make_folder(directory, generation, rank);
            for (const std::string_view name : kEvidenceNames) {
                std::error_code ignored;
                if (folder) {
                    std::filesystem::remove(*folder / name, ignored);
                }
            }
        }
        return true;
    };
    co_await files_.run<bool>(work, taking->deadline);
    finished_one(*taking);
}

// What the ranks' Pythons say by themselves, then the debuggers: a process that one has stopped
// answers nobody.
Task<void> EvidenceTaker::python(TakingPointer taking) {
    auto trees = std::make_shared<Trees>();
    for (const Part& part : taking->parts) {
        trees->push_back(part.tree);
    }
    const std::function<std::vector<PythonStacks>()> ask = [trees] {
        return ask_python_stacks(*trees, limits::kPythonStacks);
    };
    auto found = co_await proc_.run<std::vector<PythonStacks>>(ask, taking->deadline);
    for (std::size_t i = 0; found && !taking->over && i < found->size(); ++i) {
        Part& part = taking->parts[i];
        PythonStacks& one = (*found)[i];
        if (one.text.empty()) {
            if (!one.missing.empty()) {
                add_gap(part.evidence, "python", one.missing);
            }
            continue;
        }
        part.python = true;
        part.evidence.stack = std::move(one.stack);
        part.evidence.frame = python_frame(part.evidence.stack);
        write(taking, i, kPythonText, std::move(one.text));
    }
    if (!taking->gentle && !taking->over) {
        begin(taking, "debuggers", find_tools(taking));
    }
    finished_one(*taking);
}

// Where the debuggers are, then the stacks.
Task<void> EvidenceTaker::find_tools(TakingPointer taking) {
    std::set<std::string> own{""};
    for (const Part& part : taking->parts) {
        for (const ProcessLook& process : part.tree) {
            own.insert(tool_path(process));
        }
    }
    const std::function<StackToolMap()> search = [own, path = path_] {
        return find_stack_tools(own, path);
    };
    const auto until = std::min(taking->deadline, std::chrono::steady_clock::now() + kToolSearch);
    auto found = co_await tools_.run<StackToolMap>(search, until);
    if (!found && !taking->over) {
        // Somebody's folder hangs, which may be the reason for all this; the machine's own do not.
        const std::function<StackToolMap()> system = [] {
            return find_stack_tools({""}, kSystemPath);
        };
        found = co_await proc_.run<StackToolMap>(system, taking->deadline);
    }
    if (found) {
        taking->tools = std::move(*found);
    }
    const std::size_t workers = std::min(limits::kEvidenceDebuggers, taking->parts.size());
    for (std::size_t i = 0; i < workers && !taking->over; ++i) {
        begin(taking, "stacks", stacks(taking));
    }
    finished_one(*taking);
}

void EvidenceTaker::write(const TakingPointer& taking, std::size_t index, std::string_view name,
                          std::string text) {
    taking->parts[index].writing.emplace_back(name);
    begin(taking, "evidence file", save(taking, index, std::string{name}, std::move(text)));
}

Task<void> EvidenceTaker::save(TakingPointer taking, std::size_t index, std::string name,
                               std::string text) {
    const std::size_t most =
        name == kFlightDumpName ? limits::kFlightDumpBytes : limits::kEvidenceFileBytes;
    text.resize(std::min(text.size(), most));
    const auto bytes = std::make_shared<const std::string>(std::move(text));
    const std::function<Status()> work = [directory = directory_, generation = taking->generation,
                                          rank = taking->parts[index].evidence.rank, name, bytes,
                                          put = write_]() -> Status {
        const auto folder = make_folder(directory, generation, rank);
        return folder ? put(*folder / name, *bytes) : fail(folder.error());
    };
    const auto written = co_await files_.run<Status>(work, taking->deadline);
    Part& part = taking->parts[index];
    if (written) {
        std::erase(part.writing, name);
        if (*written) {
            part.evidence.files.push_back({name, static_cast<std::int64_t>(bytes->size())});
        } else {
            add_gap(part.evidence, name, written->error().message);
        }
    }
    finished_one(*taking);
}

// One of several at work: each takes the next rank.
Task<void> EvidenceTaker::stacks(TakingPointer taking) {
    while (!taking->over && taking->next < taking->parts.size()) {
        const std::size_t index = taking->next++;
        auto found = co_await take_stacks(taking->runner, taking->parts[index].tree, taking->tools,
                                          path_, taking->over, taking->parts[index].python);
        wire::RankEvidence& evidence = taking->parts[index].evidence;
        evidence.frame = evidence.frame.empty() ? std::move(found.frame) : evidence.frame;
        for (const wire::EvidenceGap& gap : found.missing) {
            add_gap(evidence, gap.what, gap.why);
        }
        if (!found.python.empty()) {
            write(taking, index, kPythonText, std::move(found.python));
        }
        if (!found.native.empty()) {
            write(taking, index, kNativeText, std::move(found.native));
        }
    }
    finished_one(*taking);
}

// One process answers for all of its job on all nodes: each address is asked once.
Task<void> EvidenceTaker::ras(TakingPointer taking) {
    std::vector<RasAddress> asked;
    for (std::size_t index = 0; index < taking->parts.size() && !taking->over; ++index) {
        const auto address = ras_address(taking->parts[index].tree);
        if (!address || std::find(asked.begin(), asked.end(), *address) != asked.end()) {
            continue;
        }
        asked.push_back(*address);
        const auto deadline =
            std::min(taking->deadline, std::chrono::steady_clock::now() + limits::kEvidenceTool);
        const RasAddress where = *address;
        auto text = co_await ask_ras(where, deadline, taking->ras);
        if (text && !text->empty()) {
            *text += co_await diagnostics(taking, where);
            write(taking, index, kRasText, std::move(*text));
        } else {
            add_gap(taking->parts[index].evidence, "ras",
                    text ? "NCCL said nothing" : text.error().message);
        }
    }
    finished_one(*taking);
}

// What NCCL finds wrong with GPUs, drivers, links and its variables; "" = it says nothing, or not
// in time. After its status: where a driver hangs it may be the last thing that NCCL says.
Task<std::string> EvidenceTaker::diagnostics(TakingPointer taking, RasAddress where) {
    const auto until = std::min(taking->deadline - kWriteTime,
                                std::chrono::steady_clock::now() + kDiagnosticsTime);
    if (taking->over || until <= std::chrono::steady_clock::now()) {
        co_return std::string{};
    }
    const auto text = co_await ask_ras_diagnostics(where, until, taking->ras);
    if (!text || text->empty() || taking->over) {
        co_return std::string{};
    }
    std::string found;
    for (const std::string& one : diagnostics_found(*text)) {
        found += (found.empty() ? "NCCL's diagnostics: " : "; ") + one;
    }
    if (!found.empty()) {
        found_(std::move(found));
    }
    co_return "\n" + *text;
}

// Torch's files lie where the job has put them, so even a look at them is the thread's.
Task<void> EvidenceTaker::flight(TakingPointer taking, std::size_t index) {
    Part& part = taking->parts[index];
    auto recorder = flight_recorder(part.tree, part.evidence.rank);
    const auto until =
        std::min(taking->deadline, std::chrono::steady_clock::now() + limits::kFlightDump);
    if (recorder) {
        const std::function<Asked()> ask = [one = *recorder] {
            Asked out{one, {}};
            out.status = ask_for_dump(out.recorder);
            return out;
        };
        auto asked = co_await theirs_.run<Asked>(ask, until);
        const Status good = asked ? asked->status : fail(Errc::timed_out, kNoFiles);
        if (good) {
            recorder = std::move(asked->recorder);
        } else {
            add_gap(part.evidence, kFlightDumpName, good.error().message);
            recorder.reset();
        }
    }
    net::steady_timer timer{tasks_.io()};
    while (recorder && !taking->over) {
        const std::function<Dump()> read = [one = *recorder] {
            Dump out{one, std::optional<std::string>{}};
            out.bytes = read_dump(out.recorder);
            return out;
        };
        // Nothing then is a file system that hangs, not a dump that takes its time.
        const auto patience = std::min(taking->deadline, until + kDumpRead);
        auto dump = co_await theirs_.run<Dump>(read, patience);
        if (dump && dump->bytes && *dump->bytes) {
            write(taking, index, kFlightDumpName, std::move(**dump->bytes));
            break;
        }
        if (!dump || !dump->bytes || std::chrono::steady_clock::now() >= until) {
            add_gap(part.evidence, kFlightDumpName,
                    !dump          ? kNoFiles
                    : !dump->bytes ? dump->bytes.error().message
                                   : "torch wrote no dump in time");
            break;
        }
        recorder = std::move(dump->recorder);
        co_await sleep_on(timer, kDumpPoll);
    }
    finished_one(*taking);
}

}  // namespace lockstep
