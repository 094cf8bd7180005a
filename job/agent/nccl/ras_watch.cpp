#include "job/agent/nccl/ras_watch.hpp"

#include "job/async/sleep.hpp"
#include "job/base/clock.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

// NCCL is loaded within minutes, or by a job that does something else first.
constexpr auto kYoung = std::chrono::minutes{2};
constexpr int kSlowly = 5;
// A look into /proc, which may hang.
constexpr auto kProcPatience = std::chrono::seconds{5};
// So many questions without an answer: another process may know the address.
constexpr int kFailures = 5;
// So many questions later processes in namespaces of their own are looked at again, should RAS know
// one that was not there.
constexpr int kLooksBetween = 10;
constexpr double kMib = 1024.0 * 1024.0;

using RanksByPid = std::map<std::int64_t, std::uint32_t>;

RanksByPid by_pid(const std::vector<wire::StartedRank>& ranks) {
    RanksByPid out;
    for (const wire::StartedRank& rank : ranks) {
        out[rank.pid] = static_cast<std::uint32_t>(rank.rank);
    }
    return out;
}

// Of the first of these ranks that lives and has NCCL loaded; the others of a job are alike, and a
// look reads several files of each of their threads.
std::optional<RasAddress> find_address(const std::vector<wire::StartedRank>& ranks,
                                       const std::multimap<pid_t, pid_t>& children) {
    constexpr int kLooks = 2;
    int looks = 0;
    for (const wire::StartedRank& rank : ranks) {
        auto tree = look_at_tree(static_cast<pid_t>(rank.pid), children);
        if (tree.empty()) {
            continue;
        }
        if (++looks > kLooks) {
            break;
        }
        std::erase_if(tree, [](const ProcessLook& one) { return !one.nccl; });
        if (auto address = ras_address(tree)) {
            return address;
        }
    }
    return std::nullopt;
}

struct Found {
    std::optional<RasAddress> address{};
    InnerPids inner{};
};
Found find_ras(const std::vector<wire::StartedRank>& ranks) {
    const auto children = children_by_parent();
    Found out;
    out.address = find_address(ranks, children);
    if (out.address) {
        out.inner = inner_pids(by_pid(ranks), children);
    }
    return out;
}

bool same(const std::vector<wire::StartedRank>& a, const std::vector<wire::StartedRank>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const auto& one, const auto& other) {
                          return one.rank == other.rank && one.pid == other.pid;
                      });
}

}  // namespace

std::optional<std::int32_t> RasWatch::Processes::rank_of(std::int64_t pid) {
    std::optional<std::uint32_t> rank;
    if (pid <= 0) {
        return std::nullopt;  // RAS has lost it
    }
    if (!inner.nested) {
        rank = pid > 1 ? outer.rank_of(pid) : std::nullopt;
    } else if (const auto found = inner.ranks.find(pid); found != inner.ranks.end()) {
        rank = found->second;
    } else if (inner.ambiguous.contains(pid)) {
        doubtful = true;
    } else {
        unknown = true;
    }
    return rank ? std::optional{static_cast<std::int32_t>(*rank)} : std::nullopt;
}

RasWatch::Watching::Watching(net::io_context& io, DesyncWatch::Job job,
                             const std::vector<wire::StartedRank>& started,
                             std::chrono::milliseconds least)
    : ranks(started),
      processes(std::make_shared<Processes>(Processes{RankProcesses{by_pid(started)}})),
      watch(
          job, [all = processes](std::int64_t pid) { return all->rank_of(pid); }, least),
      timer(io) {}

RasWatch::RasWatch(TaskGroup& tasks, Handlers handlers, Timing timing)
    : tasks_(tasks), handlers_(std::move(handlers)), timing_(timing), proc_(tasks.io()) {}

void RasWatch::follow(const wire::World& world, const std::vector<wire::StartedRank>& ranks) {
    if (world.first_rank != 0 || ranks.empty()) {
        stop();
        return;
    }
    if (watching_ && watching_->generation == world.generation && same(watching_->ranks, ranks)) {
        return;
    }
    stop();
    const DesyncWatch::Job job{world.world_size, world.first_rank, world.local_ranks};
    watching_ = std::make_shared<Watching>(tasks_.io(), job, ranks, timing_.least);
    watching_->generation = world.generation;
    tasks_.spawn("NCCL's RAS", run(watching_));
}

void RasWatch::stop() {
    if (const WatchingPointer watching = std::exchange(watching_, nullptr)) {
        watching->over = true;
        watching->timer.cancel();
        if (watching->socket) {
            ErrorCode ignored;
            watching->socket->close(ignored);
        }
        proc_.let_go();
    }
}

Task<void> RasWatch::run(WatchingPointer watching) {
    while (!watching->over) {
        watching->pause = timing_.poll;
        const bool again = watching->processes->unknown && watching->looks >= kLooksBetween;
        if (!watching->address || again) {
            co_await find(watching);
        }
        if (watching->address && !watching->over) {
            co_await ask(watching);
        }
        if (!watching->over) {
            co_await sleep_on(watching->timer, watching->pause);
        }
    }
}

Task<void> RasWatch::find(WatchingPointer watching) {
    const std::function<Found()> work = [ranks = watching->ranks] { return find_ras(ranks); };
    const auto until = std::chrono::steady_clock::now() + kProcPatience;
    auto found = co_await proc_.run<Found>(work, until);
    watching->address = found ? found->address : std::nullopt;
    watching->processes->inner = found ? std::move(found->inner) : InnerPids{};
    watching->processes->unknown = false;
    watching->failures = 0;
    watching->looks = 0;
    if (!watching->address && std::chrono::steady_clock::now() - watching->began > kYoung) {
        watching->pause = timing_.poll * kSlowly;
    }
}

Task<void> RasWatch::ask(WatchingPointer watching) {
    const auto until = std::chrono::steady_clock::now() + timing_.patience;
    const RasAddress where = *watching->address;
    const auto answer = co_await ask_ras_status(where, until, watching->socket);
    if (watching->over) {
        co_return;
    }
    if (!answer) {
        failed(*watching, answer.error());
        co_return;
    }
    watching->failures = 0;
    ++watching->looks;
    const auto size = static_cast<double>(answer->size()) / kMib;
    watching->pause +=
        std::chrono::duration_cast<std::chrono::milliseconds>(limits::kRasPollPerMib * size);
    take(*watching, *answer);
}

// What comes back is waited for; what cannot is not asked again.
void RasWatch::failed(Watching& watching, RasSilence why) {
    const std::string where = watching.address->host + ":" + std::to_string(watching.address->port);
    const std::string lost = ": a rank that others wait for in NCCL is not named before they hang";
    switch (why) {
        case RasSilence::nobody:
            break;  // before the first communicator, and after the last
        case RasSilence::silent:
            if (watching.failures + 1 >= kFailures) {
                warn_once("NCCL's RAS at " + where + " does not answer" + lost);
            }
            break;
        case RasSilence::foreign:
            warn_once("what listens at " + where + " is not NCCL's RAS (NCCL_RAS_ADDR)" + lost);
            watching.over = true;
            break;
        case RasSilence::no_json:
            warn_once("this NCCL's RAS cannot say how far each rank is, from 2.28.7 on it does" +
                      lost);
            watching.over = true;
            break;
        case RasSilence::endless:
            warn_once("NCCL's RAS says more than " +
                      std::to_string(limits::kRasAnswerBytes >> 20U) + " MiB at a time" + lost);
            watching.over = true;
            break;
    }
    if (++watching.failures >= kFailures) {
        watching.address.reset();
    }
}

void RasWatch::take(Watching& watching, const std::string& text) {
    const auto status = parse_ras_status(text);
    if (!status) {
        warn_once("what NCCL's RAS says is not understood (" + status.error().message +
                  "): a rank that others wait for in NCCL is not named before they hang");
        watching.pause = timing_.poll * kSlowly;
        return;
    }
    watching.answered = std::chrono::steady_clock::now();
    DesyncWatch::Seen seen = watching.watch.take(*status, watching.answered);
    tell(watching, seen);
    watching.account = std::move(seen.account);
    if (watching.processes->doubtful) {
        warn_once(
            "ranks of this node are in process namespaces of their own, where several have the "
            "same number: a rank that others wait for in NCCL is not named before they hang");
    }
}

void RasWatch::tell(Watching& watching, const DesyncWatch::Seen& seen) {
    const double now = wall_seconds();
    for (const DesyncWatch::Row& row : seen.rows) {
        RankReport report;
        report.time = now;
        report.metrics.emplace_back("nccl_collectives", static_cast<double>(row.launched));
        report.metrics.emplace_back("nccl_lag", static_cast<double>(row.lag));
        handlers_.seen(row.rank, report);
    }
    wire::Desync desync;
    desync.generation = watching.generation;
    if (seen.waited_for) {
        desync.rank = seen.waited_for->rank;
        desync.message = seen.waited_for->message;
        desync.waited_ms =
            std::chrono::duration_cast<std::chrono::milliseconds>(seen.waited_for->waited).count();
    }
    // A lockstepd of before does not know the message, and none wants to hear every two seconds
    // that all is well.
    const std::int32_t rank = desync.rank;
    if ((rank >= 0 || watching.told != rank) && handlers_.waited_for(std::move(desync))) {
        watching.told = rank;
    }
}

std::string RasWatch::words() const {
    return watching_ && watching_->account
               ? lag_words(*watching_->account,
                           std::chrono::steady_clock::now() - watching_->answered)
               : "";
}

// Once for the job: every generation would say it again.
void RasWatch::warn_once(std::string message) {
    if (warned_.insert(message).second) {
        log::warn(message);
        handlers_.warn(std::move(message));
    }
}

}  // namespace lockstep
