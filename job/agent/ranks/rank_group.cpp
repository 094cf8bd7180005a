// size: the life of a rank, child or task, in small functions
#include "job/agent/ranks/rank_group.hpp"

#include "job/async/sleep.hpp"
#include "job/base/clock.hpp"
#include "job/base/launch.hpp"
#include "job/base/log.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kOutputBytes = 64U << 10U;  // per turn and rank; then others have theirs
constexpr int kDrainTurns = 64;                   // of them, after a rank has ended

std::vector<char>& output_buffer() {
    static std::vector<char> buffer(kOutputBytes);
    return buffer;
}

}  // namespace

struct RankGroup::Rank {
    Rank(net::io_context& io, RankLog file) : log(std::move(file)), output(io), process(io) {}

    std::int32_t rank = 0;
    std::int32_t generation = 0;
    pid_t pid = -1;
    RankLog log;
    std::optional<OutputReader> reader;
    net::posix::stream_descriptor output;
    net::posix::stream_descriptor process;  // the pidfd; of a task the socket to it
    std::optional<task_wire::Reader> task;  // srun's: not a child of this process
    UniqueFd task_rank;                     // … and the pidfd of the rank that the task started
    bool orphan = false;                    // its task has gone without a word: `process` is that
    bool launcher = false;
    bool warm = false;          // it had waited to be this rank
    bool stopped = false;       // told to stop before it ended
    UnixMillis stopped_at = 0;  // when; 0: it was not
    CrashWatch crash;
    bool ended = false;
};

RankGroup::RankGroup(TaskGroup& tasks, Handlers handlers, Timing timing)
    : tasks_(tasks),
      handlers_(std::move(handlers)),
      timing_(timing),
      stop_timer_(tasks.io()),
      echo_timer_(tasks.io()) {}

void RankGroup::begin(std::int32_t generation) {
    generation_ = generation;
    ranks_.clear();
    running_ = 0;
    stopping_ = false;
    failed_ = false;
    own_failure_ = false;
    oom_kills_ = handlers_.oom_kills();
}

// The rank with its log, without a process.
Result<RankGroup::RankPointer> RankGroup::make_rank(RankPlan& plan) {
    RankLog::Caps caps;
    caps.tail = limits::kRankTailBytes;
    auto log = RankLog::open(plan.log, caps, generation_, logs_);
    if (!log) {
        return fail(log.error().in("rank log"));
    }
    log->mask(plan.mask);
    if (generation_ > 1 && log->size() > 0) {
        log->append("[lockstep: generation " + std::to_string(generation_) + " starts]\n");
    }
    auto rank = std::make_shared<Rank>(tasks_.io(), std::move(*log));
    rank->rank = plan.rank;
    rank->launcher = plan.launcher;
    rank->generation = generation_;
    if (plan.capture) {
        rank->reader.emplace(std::move(*plan.capture), plan.world_size, plan.one_world);
    }
    return rank;
}

Result<RankGroup::RankPointer> RankGroup::start_one(RankPlan plan) {
    auto rank = make_rank(plan);
    if (!rank) {
        return rank;
    }
    if (auto warm = handlers_.warm ? handlers_.warm(plan.rank, plan.process) : std::nullopt) {
        (*rank)->warm = true;
        (*rank)->pid = warm->process.pid;
        (*rank)->output.assign(warm->output.release());
        (*rank)->process.assign(warm->process.pidfd.release());
        return rank;
    }
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return fail(errno_error("pipe", errno));
    }
    UniqueFd read_end{ends[0]};
    const UniqueFd write_end{ends[1]};
    // Only our end is non-blocking: a rank that prints faster than we read must wait, not fail.
    ::fcntl(write_end.get(), F_SETFL, 0);
    plan.process.output = write_end.get();
    if (struct stat info{}; plan.launcher && ::fstat(write_end.get(), &info) == 0) {
        // By this its ranks know that they print into the pipe of all.
        plan.process.environment["LOCKSTEP_OUTPUT"] =
            std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
    }
    auto spawned = spawn_rank(plan.process);
    LOCKSTEP_TRY(spawned);
    (*rank)->pid = spawned->pid;
    (*rank)->output.assign(read_end.release());
    (*rank)->process.assign(spawned->pidfd.release());
    return rank;
}

Result<std::vector<wire::StartedRank>> RankGroup::start(std::int32_t generation,
                                                        std::vector<RankPlan> plans) {
    begin(generation);
    std::vector<wire::StartedRank> started;
    for (auto& plan : plans) {
        const std::int32_t number = plan.rank;
        auto rank = start_one(std::move(plan));
        if (!rank) {
            stop(std::chrono::milliseconds{0});
            return fail(rank.error().in("rank " + std::to_string(number)));
        }
        ++running_;
        ranks_.push_back(*rank);
        started.push_back({number, (*rank)->pid, (*rank)->warm});
        tasks_.spawn("rank output", read_output(*rank));
        tasks_.spawn("rank process", watch(*rank));
    }
    return started;
}

Status RankGroup::expect(std::int32_t generation, std::vector<RankPlan> plans) {
    begin(generation);
    for (auto& plan : plans) {
        auto rank = make_rank(plan);
        if (!rank) {
            stop(std::chrono::milliseconds{0});
            return fail(rank.error().in("rank " + std::to_string(plan.rank)));
        }
        ++running_;
        ranks_.push_back(std::move(*rank));
    }
    return {};
}

bool RankGroup::adopt(TaskGate::Started task) {
    const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&](const RankPointer& rank) {
        return rank->rank == task.hello.rank && rank->pid < 0 && !rank->ended;
    });
    if (found == ranks_.end() || stopping_ || task.hello.generation != generation_) {
        return false;  // it sees the socket close, and ends its rank
    }
    const RankPointer rank = *found;
    ::fcntl(task.output.get(), F_SETFL, O_NONBLOCK);
    rank->pid = static_cast<pid_t>(task.pid);
    rank->task = std::move(task.reader);
    rank->task_rank = open_pidfd(rank->pid);
    rank->output.assign(task.output.release());
    rank->process.assign(task.socket.release());
    tasks_.spawn("rank output", read_output(rank));
    on_exit(*rank);  // its end may have come together with its start
    if (!rank->ended) {
        tasks_.spawn("rank process", watch(rank));
    }
    return true;
}

std::size_t RankGroup::missing() const {
    return static_cast<std::size_t>(
        std::count_if(ranks_.begin(), ranks_.end(),
                      [](const RankPointer& rank) { return rank->pid < 0 && !rank->ended; }));
}

Task<void> RankGroup::watch(RankPointer rank) {
    while (!rank->ended) {
        ErrorCode ec;
        co_await rank->process.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
        if (ec) {
            co_return;
        }
        if (!rank->ended) {
            on_exit(*rank);
        }
    }
}

Task<void> RankGroup::read_output(RankPointer rank) {
    while (!rank->ended) {
        ErrorCode ec;
        co_await rank->output.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
        if (ec || rank->ended || !read_some(*rank)) {
            break;
        }
    }
}

// One turn; false at the end of the output.
bool RankGroup::read_some(Rank& rank) {
    auto& buffer = output_buffer();
    const auto got = ::read(rank.output.native_handle(), buffer.data(), buffer.size());
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    const std::string_view bytes{buffer.data(), static_cast<std::size_t>(got)};
    if (!bytes.empty()) {
        rank.log.append(bytes);
        rank.crash.feed(bytes, SystemClock{}.wall());
    }
    if (rank.launcher && !bytes.empty()) {
        handlers_.printed(bytes);
    }
    capture(rank, bytes);
    return !bytes.empty();
}

// `bytes`: empty once the output has ended.
void RankGroup::capture(Rank& rank, std::string_view bytes) {
    if (!rank.reader) {
        return;
    }
    auto reports =
        bytes.empty() ? rank.reader->end(wall_seconds()) : rank.reader->feed(bytes, wall_seconds());
    if (!reports.empty()) {
        handlers_.captured(rank.rank, std::move(reports));
    }
    if (auto warning = rank.reader->take_warning()) {
        handlers_.warned(rank.rank, std::move(*warning));
    }
}

std::optional<wire::Exited> RankGroup::end_of_child(Rank& rank) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return std::nullopt;
    }
    // What the leader left behind would hold GPUs and ports of the next generation. As long as the
    // leader is not reaped its number cannot be another group's.
    ::kill(-rank.pid, SIGKILL);
    ::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG);
    wire::Exited exited;
    exited.exit_code = info.si_code == CLD_EXITED ? info.si_status : -1;
    exited.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    return exited;
}

// The task was killed. Its rank gets SIGKILL with it, but later than its socket closes: until then
// it holds the GPUs and ports of the next generation. Nothing while it lives.
std::optional<wire::Exited> RankGroup::end_of_orphan(Rank& rank) {
    wire::Exited exited;
    exited.signal = SIGKILL;
    const auto lives = [](int fd) {
        pollfd ended{fd, POLLIN, 0};
        return fd >= 0 && ::poll(&ended, 1, 0) == 0;
    };
    if (rank.orphan) {
        return lives(rank.process.native_handle()) ? std::nullopt : std::optional{exited};
    }
    if (!lives(rank.task_rank.get())) {
        return exited;
    }
    ::kill(-rank.pid, SIGKILL);
    log::warn("a task has gone without a word, ending its rank", {{"rank", rank.rank}});
    rank.orphan = true;
    ErrorCode ec;
    rank.process.close(ec);
    rank.process.assign(rank.task_rank.release());
    note_failure(true);  // also if it does not end
    return std::nullopt;
}

// The task says how its rank ended; one that has gone without a word was killed.
std::optional<wire::Exited> RankGroup::end_of_task(Rank& rank) {
    if (rank.orphan) {
        return end_of_orphan(rank);
    }
    UniqueFd none;
    bool gone = false;
    for (;;) {
        const auto whole = rank.task->next();
        if (whole && *whole) {
            const auto end = task_wire::decode_exited(**whole);
            wire::Exited exited;
            exited.exit_code = end ? end->exit_code : -1;
            exited.signal = end ? end->signal : SIGKILL;
            return exited;
        }
        if (gone || !whole) {
            return end_of_orphan(rank);
        }
        const auto bytes = task_wire::receive(rank.process.native_handle(), none);
        if (bytes && bytes->empty()) {
            return std::nullopt;
        }
        gone = !bytes;
        if (bytes) {
            rank.task->feed(*bytes);
        }
    }
}

void RankGroup::on_exit(Rank& rank) {
    auto end = rank.task ? end_of_task(rank) : end_of_child(rank);
    if (!end) {
        return;
    }
    // Everything it wrote is in the pipe by now; a daemonized grandchild may keep the pipe open
    // and write for ever, so the end of the output is not waited for.
    pollfd readable{rank.output.native_handle(), POLLIN, 0};
    for (int i = 0; i < kDrainTurns && ::poll(&readable, 1, 0) > 0 && read_some(rank); ++i) {
    }
    capture(rank, {});
    wire::Exited exited = std::move(*end);
    exited.generation = rank.generation;
    exited.rank = rank.rank;
    exited.stopped = rank.stopped;
    exited.time = SystemClock{}.wall();
    if (exited.signal == SIGKILL && !rank.stopped) {
        const std::int64_t kills = handlers_.oom_kills();
        exited.oom = oom_kills_ >= 0 && kills > oom_kills_;
        oom_kills_ = kills;
    }
    finish(rank, std::move(exited));
}

RankGroup::LastWords RankGroup::last_words(const Rank& rank) const {
    LastWords out;
    out.pid = rank.pid;
    out.output = rank.log.tail();
    out.crash_at = rank.crash.at();
    out.stopped_at = rank.stopped_at;
    return out;
}

// Its peers are given the time to say what they saw. After echoes alone, the rank that they echo.
void RankGroup::note_failure(bool own) {
    if (stopping_ || running_ == 0) {
        return;
    }
    const bool sooner = own && !own_failure_;
    own_failure_ = own_failure_ || own;
    if (!std::exchange(failed_, true)) {
        tasks_.spawn("stop after failure", stop_after_failure(generation_));
    } else if (sooner) {
        echo_timer_.cancel();
    }
}

void RankGroup::finish(Rank& rank, wire::Exited exited) {
    rank.ended = true;
    ErrorCode ec;
    rank.output.close(ec);
    rank.process.close(ec);
    rank.log.end();
    if (std::string lost = rank.log.loss_warning(rank.rank); !lost.empty()) {
        // Before its end: of a job that has ended nothing more is heard.
        handlers_.warned(rank.rank, std::move(lost));
    }
    log::info("rank ended", {{"rank", rank.rank},
                             {"generation", rank.generation},
                             {"exit_code", exited.exit_code},
                             {"signal", exited.signal},
                             {"stopped", exited.stopped}});
    handlers_.ending(rank.rank);
    const bool bad = exited.exit_code != 0;
    if (bad) {
        const LastWords words = last_words(rank);
        exited.log_tail = words.output.substr(words.output.size() -
                                              std::min(words.output.size(), limits::kLogTailBytes));
        if (handlers_.judge) {
            handlers_.judge(exited, words);
        }
    }
    const bool own = exited.failure.empty();
    --running_;
    handlers_.exited(std::move(exited));
    if (bad) {
        note_failure(own);
    }
    if (running_ == 0) {
        stop_timer_.cancel();
        echo_timer_.cancel();
        handlers_.all_ended();
    }
}

Task<void> RankGroup::stop_after_failure(std::int32_t generation) {
    const auto began = std::chrono::steady_clock::now();
    if (!own_failure_) {
        co_await sleep_on(echo_timer_, timing_.culprit);
    }
    if (own_failure_ && generation == generation_ && running_ > 0) {
        const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::steady_clock::now() - began);
        co_await sleep_on(echo_timer_, std::min(timing_.echo, timing_.culprit - since));
    }
    if (generation == generation_ && running_ > 0 && !stopping_) {
        log::info("stopping the other ranks after a failure", {{"generation", generation}});
        stop(timing_.grace);
    }
}

void RankGroup::stop(std::chrono::milliseconds grace) {
    if (running_ == 0) {
        return;
    }
    const auto deadline = std::chrono::steady_clock::now() + grace;
    if (std::exchange(stopping_, true)) {
        if (deadline < kill_at_) {
            kill_at_ = deadline;
            stop_timer_.cancel();
        }
        return;
    }
    kill_at_ = deadline;
    if (missing() > 0) {
        tasks_.spawn("missing ranks", end_missing(generation_));
    }
    for (const auto& rank : ranks_) {
        if (!rank->stopped && !rank->ended && !rank->orphan) {
            rank->stopped = true;
            rank->stopped_at = SystemClock{}.wall();
        }
    }
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // one that was stopped hears nothing but SIGKILL, after all of the grace
    tasks_.spawn("stop ranks", enforce(generation_));
}

// In a turn of its own: whoever stops is not called back before it is done.
Task<void> RankGroup::end_missing(std::int32_t generation) {
    co_await net::post(tasks_.io(), net::use_awaitable);
    const auto ranks = ranks_;
    for (const auto& rank : ranks) {
        if (generation == generation_ && rank->pid < 0 && !rank->ended) {
            wire::Exited exited;
            exited.generation = rank->generation;
            exited.rank = rank->rank;
            exited.signal = SIGTERM;
            exited.stopped = true;
            exited.time = SystemClock{}.wall();
            finish(*rank, std::move(exited));
        }
    }
}

Task<void> RankGroup::enforce(std::int32_t generation) {
    const auto active = [this, generation] { return generation == generation_ && running_ > 0; };
    while (active() && std::chrono::steady_clock::now() < kill_at_) {
        ErrorCode ec;
        stop_timer_.expires_at(kill_at_);
        co_await stop_timer_.async_wait(into(ec));
    }
    if (!active()) {
        co_return;
    }
    log::warn("ranks did not end in time, killing them", {{"generation", generation}});
    signal_all(SIGKILL);
    const auto until = std::chrono::steady_clock::now() + timing_.after_kill;
    while (active() && std::chrono::steady_clock::now() < until) {
        ErrorCode ec;
        stop_timer_.expires_at(until);
        co_await stop_timer_.async_wait(into(ec));
    }
    if (active()) {
        give_up();
    }
}

std::vector<wire::StartedRank> RankGroup::living() const {
    std::vector<wire::StartedRank> out;
    for (const auto& rank : ranks_) {
        if (!rank->ended && rank->pid > 0) {
            out.push_back({rank->rank, rank->pid, rank->warm});
        }
    }
    return out;
}

void RankGroup::other_was_killed() {
    if (oom_kills_ >= 0 && handlers_.oom_kills() > oom_kills_) {
        ++oom_kills_;
    }
}

void RankGroup::append_log(std::int32_t number, std::string_view bytes) {
    for (const auto& rank : ranks_) {
        if (rank->rank == number && !rank->ended) {
            rank->log.append(bytes);
        }
    }
}

void RankGroup::signal_all(int number) {
    for (const auto& rank : ranks_) {
        if (!rank->ended && rank->pid > 0) {
            ::kill(-rank->pid, number);
        }
    }
}

// A process in an uninterruptible wait (a dead file server, a GPU that fell off the bus) survives
// SIGKILL. The group must end all the same.
void RankGroup::give_up() {
    const auto ranks = ranks_;
    for (const auto& rank : ranks) {
        if (rank->ended) {
            continue;
        }
        const std::string why = "process " + std::to_string(rank->pid) + " of rank " +
                                std::to_string(rank->rank) + " does not end after SIGKILL";
        log::error("a rank cannot be killed", {{"rank", rank->rank}, {"pid", rank->pid}});
        handlers_.unkillable(rank->rank, why);
        wire::Exited exited;
        exited.generation = rank->generation;
        exited.rank = rank->rank;
        exited.signal = SIGKILL;
        exited.stopped = true;
        exited.time = SystemClock{}.wall();
        finish(*rank, std::move(exited));
    }
}

}  // namespace lockstep
