#include "job/agent/evidence.hpp"

#include "job/agent/nccl_ras.hpp"
#include "job/agent/stack_tools.hpp"
#include "job/async/sleep.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/evidence.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep {
namespace {

// The daemon may be another Unix user: then the folder's access control list says who reads it, and
// the mode's group bits bound that.
constexpr unsigned kFileMode = 0660;
constexpr unsigned kFolderMode = 0770;
constexpr auto kDumpPoll = std::chrono::milliseconds{50};

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

void write_file(const std::filesystem::path& folder, std::string_view name, std::string_view text,
                wire::RankEvidence& out, std::size_t most = limits::kEvidenceFileBytes) {
    text = text.substr(0, most);
    if (const Status written = replace_file(folder / name, text, kFileMode); !written) {
        add_gap(out, name, written.error().message);
        return;
    }
    out.files.push_back({std::string{name}, static_cast<std::int64_t>(text.size())});
}

// The kernel's part: at once, and it needs nobody's help.
void look_at_rank_now(const std::filesystem::path& directory, std::int32_t generation,
                      const std::multimap<pid_t, pid_t>& children, pid_t pid,
                      wire::RankEvidence& evidence, std::vector<ProcessLook>& tree) {
    tree = look_at_tree(pid, children);
    std::string state;
    std::string kernel;
    for (const ProcessLook& process : tree) {
        state += process.text;
        kernel += process.kernel;
    }
    if (tree.empty()) {
        add_gap(evidence, "state", "its process has ended");
        return;
    }
    const auto folder = make_folder(directory, generation, evidence.rank);
    if (!folder) {
        add_gap(evidence, "state", folder.error().message);
        return;
    }
    for (const std::string_view name : kEvidenceNames) {  // of an earlier look
        std::error_code ignored;
        std::filesystem::remove(*folder / name, ignored);
    }
    write_file(*folder, kStateText, state, evidence);
    if (kernel.empty()) {
        add_gap(evidence, "kernel", "only root may read kernel stacks");
    } else {
        write_file(*folder, kKernelText, kernel, evidence);
    }
}

}  // namespace

EvidenceTaker::EvidenceTaker(TaskGroup& tasks, std::filesystem::path attempt_directory,
                             std::string path)
    : tasks_(tasks),
      directory_(std::move(attempt_directory)),
      path_(std::move(path)),
      runner_(tasks.io()),
      all_done_(tasks.io()) {}

EvidenceTaker::~EvidenceTaker() = default;

bool EvidenceTaker::take(std::int32_t generation, std::vector<wire::StartedRank> ranks, Done done) {
    if (taking_) {
        return false;
    }
    taking_ = std::make_shared<Taking>();
    taking_->generation = generation;
    taking_->ranks = std::move(ranks);
    taking_->deadline = std::chrono::steady_clock::now() + limits::kEvidenceTime;
    taking_->done = std::move(done);
    if (!files_) {
        files_ = std::make_unique<net::thread_pool>(1);
    }
    tasks_.spawn("evidence", run(taking_));
    return true;
}

void EvidenceTaker::stop() {
    if (taking_) {
        taking_->over = true;
        taking_->done = nullptr;
    }
    runner_.kill_all();
    if (ras_) {
        ErrorCode ignored;
        ras_->close(ignored);
    }
    all_done_.cancel();
}

Task<void> EvidenceTaker::run(TakingPointer taking) {
    const std::function<std::vector<Part>()> look =
        [directory = directory_, generation = taking->generation, ranks = taking->ranks] {
            std::vector<Part> parts(ranks.size());
            const auto children = children_by_parent();
            for (std::size_t i = 0; i < ranks.size(); ++i) {
                parts[i].evidence.rank = ranks[i].rank;
                look_at_rank_now(directory, generation, children, static_cast<pid_t>(ranks[i].pid),
                                 parts[i].evidence, parts[i].tree);
            }
            return parts;
        };
    taking->parts = co_await on_thread<std::vector<Part>>(*files_, look);
    const std::size_t workers = std::min(limits::kEvidenceParallel, taking->parts.size());
    taking->open = workers + 1 + taking->parts.size();
    all_done_.expires_at(taking->deadline);
    for (std::size_t i = 0; i < workers; ++i) {
        tasks_.spawn("stacks", stacks(taking));
    }
    tasks_.spawn("ras", ras(taking));
    for (std::size_t i = 0; i < taking->parts.size(); ++i) {
        tasks_.spawn("flight recorder", flight(taking, i));
    }
    if (taking->open > 0 && !taking->over) {
        ErrorCode ec;
        co_await all_done_.async_wait(into(ec));
    }
    give(*taking);
}

void EvidenceTaker::give(Taking& taking) {
    const bool late = taking.open > 0;
    taking.over = true;
    taking_.reset();
    if (late) {
        runner_.kill_all();
    }
    const Done done = std::exchange(taking.done, nullptr);
    if (!done) {
        return;
    }
    wire::EvidenceSaved saved;
    saved.generation = taking.generation;
    for (Part& part : taking.parts) {
        if (late && part.evidence.frame.empty() && part.evidence.files.size() < 3) {
            add_gap(part.evidence, "all", "the time for it was over");
        }
        saved.ranks.push_back(part.evidence);
    }
    done(std::move(saved));
}

void EvidenceTaker::finished_one(Taking& taking) {
    if (--taking.open == 0) {
        all_done_.cancel();
    }
}

Task<void> EvidenceTaker::save(TakingPointer taking, std::size_t index, std::string_view name,
                               std::string text) {
    const std::size_t most =
        name == kFlightDumpName ? limits::kFlightDumpBytes : limits::kEvidenceFileBytes;
    const std::function<wire::RankEvidence()> write =
        [directory = directory_, generation = taking->generation,
         rank = taking->parts[index].evidence.rank, name, most, text = std::move(text)] {
            wire::RankEvidence out;
            if (const auto folder = make_folder(directory, generation, rank)) {
                write_file(*folder, name, text, out, most);
            } else {
                add_gap(out, name, folder.error().message);
            }
            return out;
        };
    const auto written = co_await on_thread<wire::RankEvidence>(*files_, write);
    wire::RankEvidence& evidence = taking->parts[index].evidence;
    evidence.files.insert(evidence.files.end(), written.files.begin(), written.files.end());
    for (const wire::EvidenceGap& gap : written.missing) {
        add_gap(evidence, gap.what, gap.why);
    }
}

// One of several at work: each takes the next rank.
Task<void> EvidenceTaker::stacks(TakingPointer taking) {
    while (!taking->over && taking->next < taking->parts.size()) {
        const std::size_t index = taking->next++;
        auto found = co_await take_stacks(runner_, taking->parts[index].tree, path_);
        wire::RankEvidence& evidence = taking->parts[index].evidence;
        evidence.frame = std::move(found.frame);
        for (const wire::EvidenceGap& gap : found.missing) {
            add_gap(evidence, gap.what, gap.why);
        }
        if (!found.python.empty()) {
            co_await save(taking, index, kPythonText, std::move(found.python));
        }
        if (!found.native.empty()) {
            co_await save(taking, index, kNativeText, std::move(found.native));
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
        auto text = co_await ask_ras(where, deadline, ras_);
        if (text && !text->empty()) {
            co_await save(taking, index, kRasText, std::move(*text));
        } else {
            add_gap(taking->parts[index].evidence, "ras",
                    text ? "NCCL said nothing" : text.error().message);
        }
    }
    finished_one(*taking);
}

Task<void> EvidenceTaker::flight(TakingPointer taking, std::size_t index) {
    Part& part = taking->parts[index];
    auto recorder = flight_recorder(part.tree, part.evidence.rank);
    const Status asked = recorder ? ask_for_dump(*recorder) : Status{};
    if (!asked) {
        add_gap(part.evidence, kFlightDumpName, asked.error().message);
        recorder.reset();
    }
    net::steady_timer timer{tasks_.io()};
    const auto until = std::chrono::steady_clock::now() + limits::kFlightDump;
    while (recorder && !taking->over) {
        auto dump = read_dump(*recorder);
        if (dump && *dump) {
            co_await save(taking, index, kFlightDumpName, std::move(**dump));
            break;
        }
        if (!dump || std::chrono::steady_clock::now() >= until) {
            add_gap(part.evidence, kFlightDumpName,
                    dump ? "torch wrote no dump in time" : dump.error().message);
            break;
        }
        co_await sleep_on(timer, kDumpPoll);
    }
    finished_one(*taking);
}

}  // namespace lockstep
