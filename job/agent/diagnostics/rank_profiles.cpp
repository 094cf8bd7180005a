// size: one question to processes, from who is asked to the files that are kept
#include "job/agent/diagnostics/rank_profiles.hpp"

#include "job/agent/diagnostics/rank_hooks.hpp"
#include "job/agent/ranks/inner_pids.hpp"
#include "job/agent/ranks/process_look.hpp"
#include "job/agent/ranks/rank_state.hpp"
#include "job/agent/ranks/signal_targets.hpp"
#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"
#include "job/model/profile.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

using ProfileClock = std::chrono::steady_clock;

// As those of the evidence: the daemon may be another Unix user.
constexpr unsigned kProfileFileMode = 0660;
constexpr unsigned kProfileFolderMode = 0770;
constexpr auto kProfileLook = std::chrono::milliseconds{50};
constexpr int kWaitLooks = 60;
constexpr std::size_t kProfilePiece = 1U << 20U;
constexpr std::string_view kNothingPosted =
    "NCCL's Inspector has posted nothing meanwhile: no operation of 8 KiB or more has ended";

// A process that is asked.
struct AskedProcess {
    pid_t pid = -1;
    std::int64_t number = 0;  // its own
    bool python = true;       // or lockstep-train
    std::size_t place = 1;    // among those of its rank
    std::string id{};
    int in_wait = 0;  // looks in a row at which it waited for another process
};

struct Asking {
    const ProfileQuestion& question;
    ProfileClock::time_point until;
    ProfileClock::time_point no_step_until;  // whoever makes no step has said so by then
    std::vector<wire::RankEvidence> out{};
    std::vector<std::vector<AskedProcess>> open{};  // of each rank

    std::filesystem::path path(const AskedProcess& one, std::string_view name) const {
        return question.sockets /
               ("profile." + std::to_string(one.number) + "." + std::string{name});
    }
};

void add_profile_gap(wire::RankEvidence& out, std::size_t place, std::string_view what,
                     std::string_view why) {
    if (out.missing.size() < limits::kEvidenceGaps) {
        out.missing.push_back(
            {profile_name(place, what), printable(why.substr(0, limits::kTextBytes))});
    }
}

void clear_profile(const Asking& asking, const AskedProcess& one) {
    std::error_code ignored;
    std::filesystem::remove(asking.path(one, "ask"), ignored);
    std::filesystem::remove(asking.path(one, "done"), ignored);
    for (const std::string_view name : kProfileNames) {
        std::filesystem::remove(asking.path(one, name), ignored);
    }
}

// time.monotonic() of Python is this clock.
double monotonic(ProfileClock::time_point at) {
    return std::chrono::duration<double>(at.time_since_epoch()).count();
}

// Of one who asked and was killed the question stays until its time is over.
bool somebody_asks(const std::filesystem::path& path) {
    const auto text = read_plain_file(path, limits::kProfileAnswerBytes);
    if (!text) {
        return false;
    }
    const auto json = parse_json(*text);
    const bool known =
        json && json->is_object() && json->contains("until") && (*json)["until"].is_number();
    if (known && monotonic(ProfileClock::now()) < (*json)["until"].get<double>()) {
        return true;
    }
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return false;
}

// "" = it has been asked.
std::string ask_process(const Asking& asking, AskedProcess& one) {
    const std::filesystem::path path = asking.path(one, "ask");
    if (somebody_asks(path)) {
        return "somebody else has asked for a profile of it, which is not done yet";
    }
    clear_profile(asking, one);
    one.id = random_secret();
    Json question = Json::object();
    question["id"] = one.id;
    question["seconds"] = asking.question.seconds;
    question["until"] = monotonic(asking.until);
    const std::string text = dump_json(question);
    const UniqueFd file{
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
    const bool written =
        file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!written || ::kill(one.pid, SIGURG) != 0) {
        const int problem = errno;
        clear_profile(asking, one);
        return problem == ESRCH ? "it has ended"
                                : errno_error("it cannot be asked", problem).message;
    }
    return "";
}

// Which of the node's ranks each process is of: the deepest that it is below.
std::map<pid_t, std::int32_t> owners(
    const std::map<std::int32_t, std::vector<ProcessLook>>& trees) {
    std::vector<std::pair<std::size_t, std::int32_t>> by_size;
    for (const auto& [rank, tree] : trees) {
        by_size.emplace_back(tree.size(), rank);
    }
    std::sort(by_size.rbegin(), by_size.rend());
    std::map<pid_t, std::int32_t> out;
    for (const auto& [size, rank] : by_size) {
        for (const ProcessLook& process : trees.at(rank)) {
            out[process.pid] = rank;
        }
    }
    return out;
}

// What answers for it, and whether that is a Python. Of one that waits for the disk, a driver or a
// child that vfork(2) has made only its descriptors were looked at: it answers once it runs again.
HooksFile hooks_of(const ProcessLook& process, bool& python) {
    const bool may_be = process.python || process.stuck;
    HooksFile hooks = may_be ? hooks_file(process.pid, kPythonHookFile) : HooksFile{};
    python = process.python || hooks.file;
    return python ? std::move(hooks) : hooks_file(process.pid, kTrainerHookFile);
}

// Why this process cannot be asked; "" = it can, and its number is set.
std::string unfit_for_profile(const Asking& asking, const ProcessLook& process,
                              const HooksFile& hooks, AskedProcess& one) {
    if (process.stopped) {
        return "the process is stopped";
    }
    struct stat theirs{};
    struct stat here{};
    const std::filesystem::path path =
        asking.question.sockets / (std::string{one.python ? kPythonHookFile : kTrainerHookFile} +
                                   std::to_string(hooks.number));
    if (!hooks.file || ::fstat(hooks.file.get(), &theirs) != 0 ||
        ::lstat(path.c_str(), &here) != 0 || theirs.st_dev != here.st_dev ||
        theirs.st_ino != here.st_ino || !catches_signal(process.pid, SIGURG)) {
        return "the hooks are not in this Python";
    }
    one.number = hooks.number;
    return "";
}

// A helper of multiprocessing, which does nothing of the script's.
bool is_helper(pid_t pid) {
    const auto command = read_file("/proc/" + std::to_string(pid) + "/cmdline", kProfilePiece);
    return command && command->find("multiprocessing.resource_tracker") != std::string::npos;
}

void ask_rank(Asking& asking, std::size_t index, const std::vector<ProcessLook>& tree,
              const std::map<pid_t, std::int32_t>& owner, std::size_t& asked) {
    wire::RankEvidence& out = asking.out[index];
    std::string why =
        tree.empty() ? "its process has ended" : "it runs neither Python nor lockstep-train";
    std::size_t place = 0;
    for (const ProcessLook& process : tree) {
        const auto own = owner.find(process.pid);
        if ((!process.stuck && is_helper(process.pid)) || process.state == "Z" ||
            process.state == "X" || (own != owner.end() && own->second != out.rank)) {
            continue;
        }
        AskedProcess one;
        one.pid = process.pid;
        const HooksFile hooks = hooks_of(process, one.python);
        if (!one.python && !hooks.file) {
            why = process.stuck && place == 0 ? "it waits for the disk or a driver" : why;
            continue;  // else a shell, say
        }
        if (std::string unfit_why = unfit_for_profile(asking, process, hooks, one);
            !unfit_why.empty()) {
            why = place == 0 ? std::move(unfit_why) : why;
            continue;
        }
        if (inner_pid(process.pid) != one.number) {
            continue;  // a fork, which has its parent's file
        }
        if (asked >= limits::kProfileProcesses) {
            add_profile_gap(out, place + 1, "all",
                            "only " + std::to_string(limits::kProfileProcesses) +
                                " processes of a node are profiled at a time");
            return;
        }
        one.place = ++place;
        ++asked;
        if (const std::string problem = ask_process(asking, one); !problem.empty()) {
            add_profile_gap(out, one.place, "all", problem);
        } else {
            asking.open[index].push_back(std::move(one));
        }
    }
    if (place == 0) {
        add_profile_gap(out, 1, "all", why);
    }
}

Result<std::filesystem::path> make_profile_folders(const ProfileQuestion& question,
                                                   std::int32_t rank) {
    std::filesystem::path at = question.folder;
    for (const std::string& name : profile_folders(question.generation, question.number, rank)) {
        at /= name;
        if (::mkdir(at.c_str(), kProfileFolderMode) != 0 && errno != EEXIST) {
            return fail(errno_error("mkdir " + at.string(), errno));
        }
    }
    return at;
}

// The size; a file is there whole or not at all.
Result<std::int64_t> copy_profile(const std::filesystem::path& from,
                                  const std::filesystem::path& to) {
    const UniqueFd source{::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    struct stat info{};
    if (!source || ::fstat(source.get(), &info) != 0) {
        return fail(errno_error("open " + from.filename().string(), errno));
    }
    if (!S_ISREG(info.st_mode) || info.st_size > static_cast<off_t>(limits::kProfileFileBytes)) {
        return fail(Errc::exhausted, "it is larger than is kept");
    }
    const std::filesystem::path draft = to.string() + ".new";
    std::error_code ignored;
    std::filesystem::remove(draft, ignored);
    const UniqueFd target{::open(
        draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kProfileFileMode)};
    std::string piece(kProfilePiece, '\0');
    std::int64_t size = 0;
    bool good = static_cast<bool>(target) && ::fchmod(target.get(), kProfileFileMode) == 0;
    while (good && size < info.st_size) {
        const ssize_t got = ::read(source.get(), piece.data(), piece.size());
        if (got == 0) {
            break;
        }
        std::size_t done = 0;
        while (got > 0 && done < static_cast<std::size_t>(got)) {
            const ssize_t put =
                ::write(target.get(), piece.data() + done, static_cast<std::size_t>(got) - done);
            if (put <= 0) {
                break;
            }
            done += static_cast<std::size_t>(put);
        }
        good = got > 0 && done == static_cast<std::size_t>(got);
        size += static_cast<std::int64_t>(done);
    }
    if (!good || ::rename(draft.c_str(), to.c_str()) != 0) {
        const int problem = errno;
        std::filesystem::remove(draft, ignored);
        return fail(errno_error("write " + to.filename().string(), problem));
    }
    return size;
}

void collect_profile(const Asking& asking, wire::RankEvidence& out, const AskedProcess& one,
                     const Json& done) {
    const auto folder = make_profile_folders(asking.question, out.rank);
    if (!folder) {
        add_profile_gap(out, one.place, "all", folder.error().message);
        return;
    }
    const Json& files = done.contains("files") ? done["files"] : Json();
    for (const std::string_view name : kProfileNames) {
        const bool told = std::any_of(files.begin(), files.end(), [&](const Json& file) {
            return file.is_string() && file.get_ref<const std::string&>() == name;
        });
        if (!told) {
            continue;
        }
        const std::string kept = profile_name(one.place, name);
        if (const auto size = copy_profile(asking.path(one, name), *folder / kept)) {
            out.files.push_back({kept, *size});
        } else {
            add_profile_gap(out, one.place, name, size.error().message);
        }
    }
    if (!done.contains("missing")) {
        return;
    }
    for (const Json& gap : done["missing"]) {
        if (gap.is_object() && gap.contains("what") && gap["what"].is_string() &&
            gap.contains("why") && gap["why"].is_string()) {
            add_profile_gap(out, one.place, gap["what"].get<std::string>(),
                            gap["why"].get<std::string>());
        }
    }
}

// In waitpid(2) or in read(2) of a pipe, which go on after a signal without a word to Python: it
// does not answer before they are over. For so many looks, it is not the moment between two of
// them.
bool waits_for_another(AskedProcess& one, const std::string& wchan) {
    const bool waits = wchan == "do_wait" || wchan.ends_with("pipe_read");
    one.in_wait = waits ? one.in_wait + 1 : 0;
    return one.in_wait >= kWaitLooks;
}

// Whether the process has answered, or never will.
bool profile_settled(const Asking& asking, wire::RankEvidence& out, AskedProcess& one) {
    const auto text = read_plain_file(asking.path(one, "done"), limits::kProfileAnswerBytes);
    const auto json = text ? parse_json(*text) : Result<Json>{fail(Errc::not_found, "")};
    if (json && json->is_object() && json->contains("id") && (*json)["id"] == Json(one.id)) {
        collect_profile(asking, out, one, *json);
        return true;
    }
    const wire::RankState state = look_at_rank(out.rank, one.pid);
    if (state.state == "X" || state.state == "Z") {
        add_profile_gap(out, one.place, "all", "it ended meanwhile");
        return true;
    }
    const bool waits = waits_for_another(one, state.wchan);
    if (waits && ProfileClock::now() >= asking.no_step_until) {
        add_profile_gap(out, one.place, "all", "it waits for another process");
        return true;
    }
    if (ProfileClock::now() >= asking.until + limits::kProfileLate) {
        add_profile_gap(
            out, one.place, "all",
            std::string{one.python ? "it did not come to run Python" : "it ended no step"} +
                " in time: lockstep evidence --now tells where it is");
        return true;
    }
    return false;
}

bool has_ended(const ProfileQuestion& question, std::int32_t rank) {
    const auto one = std::find_if(question.living.begin(), question.living.end(),
                                  [&](const wire::StartedRank& each) { return each.rank == rank; });
    if (one == question.living.end()) {
        return true;
    }
    const std::string state = look_at_rank(rank, one->pid).state;
    return state == "X" || state == "Z";
}

}  // namespace

ProfiledRanks with_collectives(const ProfileQuestion& question, ProfiledRanks ranks,
                               const ProfileTexts& texts) {
    for (wire::RankEvidence& one : ranks) {
        const auto posted = texts.find(one.rank);
        if (posted == texts.end()) {
            continue;
        }
        const auto& [text, before] = posted->second;
        if (text.empty()) {
            if (!has_ended(question, one.rank)) {
                add_profile_gap(one, 1, kProfileCollectives,
                                before ? kNothingPosted : kNoCollectivesEver);
            }
            continue;
        }
        const auto folder = make_profile_folders(question, one.rank);
        const Status written =
            folder ? replace_file(*folder / kProfileCollectives, text, kProfileFileMode)
                   : Status{fail(folder.error())};
        if (written) {
            one.files.push_back(
                {std::string{kProfileCollectives}, static_cast<std::int64_t>(text.size())});
        } else {
            add_profile_gap(one, 1, kProfileCollectives, written.error().message);
        }
    }
    return ranks;
}

ProfiledRanks profile_ranks(const ProfileQuestion& question) {
    const auto now = ProfileClock::now();
    const std::chrono::seconds recorded{question.seconds};
    Asking asking{question, now + 2 * recorded + limits::kProfileMore,
                  now + recorded + limits::kProfileNoStep};
    std::map<std::int32_t, std::vector<ProcessLook>> trees;
    const auto children = children_by_parent();
    for (const wire::StartedRank& rank : question.living) {
        trees[rank.rank] = look_at_tree(static_cast<pid_t>(rank.pid), children);
    }
    const auto owner = owners(trees);
    std::size_t asked = 0;
    asking.open.resize(question.wanted.size());
    for (std::size_t i = 0; i < question.wanted.size(); ++i) {
        asking.out.push_back({question.wanted[i], "", {}, {}});
        ask_rank(asking, i, trees[question.wanted[i]], owner, asked);
    }
    bool waits = true;
    while (waits && !question.stopped->load()) {
        waits = false;
        for (std::size_t i = 0; i < asking.open.size(); ++i) {
            std::erase_if(asking.open[i], [&](AskedProcess& one) {
                const bool done = profile_settled(asking, asking.out[i], one);
                if (done) {
                    clear_profile(asking, one);
                }
                return done;
            });
            waits = waits || !asking.open[i].empty();
        }
        if (waits) {
            std::this_thread::sleep_for(kProfileLook);
        }
    }
    for (const auto& open : asking.open) {
        for (const AskedProcess& one : open) {
            clear_profile(asking, one);
        }
    }
    return std::move(asking.out);
}

}  // namespace lockstep
