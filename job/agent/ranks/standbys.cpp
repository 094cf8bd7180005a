#include "job/agent/ranks/standbys.hpp"

#include "job/agent/ranks/standby_orders.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace lockstep {
namespace {

constexpr int kFirstHanded = 10;  // see SpawnRequest::handed
constexpr std::size_t kStandbyLine = 500;
constexpr std::chrono::seconds kEnding{1};  // from a descriptor's end to the process's, at most

UniqueFd out_of_the_way(UniqueFd fd) {
    return UniqueFd{fd ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstHanded) : -1};
}

bool is_signalled(int fd, short event) {
    pollfd one{fd, event, 0};
    return ::poll(&one, 1, 0) > 0 && (one.revents & event) != 0;
}

std::string how_it_ended(const siginfo_t& info) {
    return (info.si_code == CLD_EXITED ? "it has ended with exit code "
                                       : "it was ended by signal ") +
           std::to_string(info.si_status);
}

}  // namespace

struct Standbys::One {
    explicit One(net::io_context& io) : control(io), process(io) {}

    std::int32_t local_rank = 0;
    SpawnRequest request;
    pid_t pid = -1;
    net::posix::stream_descriptor control;  // a byte from it: it waits; a byte to it: it goes on
    net::posix::stream_descriptor process;  // the pidfd
    UniqueFd output;                        // what it prints
    UniqueFd printing;                      // the other end, which says whether it is full
    UniqueFd orders;                        // a file in memory that it has, too
    std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
    // When its end of `control` went, which it keeps until it is a rank or ends.
    std::optional<std::chrono::steady_clock::time_point> let_go{};
    bool ready = false;
    bool over = false;   // it is a rank now, or is being ended
    bool taken = false;  // it is a rank now: whoever has that reaps it
};

Standbys::Standbys(TaskGroup& tasks, std::string hooks, Handlers handlers, Timing timing)
    : tasks_(tasks), hooks_(std::move(hooks)), handlers_(std::move(handlers)), timing_(timing) {}

Standbys::~Standbys() = default;

void Standbys::begin(std::vector<std::string> modules, std::vector<Rank> ranks,
                     std::shared_ptr<const SecretMask> mask) {
    end();
    modules_ = std::move(modules);
    mask_ = std::move(mask);
    for (Rank& rank : ranks) {
        places_.emplace_back().rank = std::move(rank);
    }
    began_ = std::chrono::steady_clock::now();
}

Standbys::Place* Standbys::place_of(std::int32_t local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    return local_rank >= 0 && index < places_.size() ? &places_[index] : nullptr;
}

void Standbys::stepped(std::int32_t local_rank) {
    if (Place* place = place_of(local_rank); place != nullptr && !place->stepped) {
        place->stepped = true;
        look_for_hooks(*place);
    }
}

void Standbys::ended(std::int32_t local_rank) {
    if (Place* place = place_of(local_rank)) {
        place->ended = true;
    }
}

// The file goes with the rank's process, so it is not only looked for when it matters.
void Standbys::look_for_hooks(Place& place) const {
    struct stat info{};
    place.hooked =
        place.hooked ||
        ::stat((hooks_ + "/stacks." + std::to_string(place.rank.pid)).c_str(), &info) == 0;
}

// One that does not get ready keeps all that are due after it from their start.
void Standbys::look_at_import(Place& place) {
    if (!place.standby || place.standby->ready) {
        return;
    }
    const One& one = *place.standby;
    std::string why;
    if (one.let_go && std::chrono::steady_clock::now() - *one.let_go > kEnding) {
        why = "it has become another program by exec()";
    } else if (!is_signalled(one.printing.get(), POLLOUT)) {
        why = "what is printed while its modules are imported fills the pipe of its output (" +
              std::to_string(::fcntl(one.output.get(), F_GETPIPE_SZ)) + " bytes)";
    } else if (std::chrono::steady_clock::now() - one.started > timing_.ready) {
        why = "its modules were not imported within " +
              std::to_string(
                  std::chrono::duration_cast<std::chrono::seconds>(timing_.ready).count()) +
              " s";
    } else {
        return;
    }
    give_up(one.local_rank, why + last_words(one));
    drop(place.standby);
}

// One at a time: what they import costs as much time as a start does.
bool Standbys::is_due() const {
    const bool started = std::chrono::steady_clock::now() - began_ > timing_.start ||
                         std::all_of(places_.begin(), places_.end(),
                                     [](const Place& one) { return one.stepped || one.ended; });
    return started && std::none_of(places_.begin(), places_.end(), [](const Place& one) {
               return one.standby && !one.standby->ready;
           });
}

void Standbys::look() {
    for (Place& place : places_) {
        if (!place.ended && !place.given_up) {
            look_for_hooks(place);
        }
        look_at_import(place);
    }
    if (!is_due()) {
        return;
    }
    const auto next = std::find_if(places_.begin(), places_.end(), [](const Place& one) {
        return !one.standby && !one.given_up && !one.ended;
    });
    if (next != places_.end()) {
        start(static_cast<std::int32_t>(next - places_.begin()));
    }
}

void Standbys::give_up(std::int32_t local_rank, const std::string& why) {
    places_[static_cast<std::size_t>(local_rank)].given_up = true;
    log::info("a rank has no standby", {{"local_rank", local_rank}, {"why", why}});
    handlers_.warn(local_rank, "a rank has no warm standby, so a restart starts it cold: " + why);
}

// ": " and the last line that it has printed, if it has. It is masked before anything is cut off: a
// part of a secret would not be recognized.
std::string Standbys::last_words(const One& one) const {
    std::string all;
    std::array<char, 4096> piece{};
    for (ssize_t got = 1; got > 0 && all.size() < limits::kStandbyOutputBytes;) {
        got = ::read(one.output.get(), piece.data(), piece.size());
        all.append(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }
    const std::string masked = mask_ ? mask_->masked(all) : all;
    const std::string_view lines = trim(masked);
    const std::string_view line = lines.substr(lines.rfind('\n') + 1);
    const std::string words = printable(line.substr(0, kStandbyLine));
    return words.empty() ? "" : ": " + words;
}

void Standbys::start(std::int32_t local_rank) {
    Place& place = places_[static_cast<std::size_t>(local_rank)];
    if (const auto good = script_arguments(place.rank.process.argv); !good) {
        give_up(local_rank, good.error().message);
        return;
    }
    if (!place.hooked) {
        give_up(local_rank, "its Python does not load Lockstep's hooks");
        return;
    }
    // A package may be taken away, or replaced, while a job runs: without the hooks it would not
    // wait.
    const auto path = place.rank.process.environment.find("PYTHONPATH");
    const std::string folder = path == place.rank.process.environment.end()
                                   ? ""
                                   : path->second.substr(0, path->second.find(':'));
    for (const char* file : {"sitecustomize.py", "_lockstep_hooks.py", "_lockstep_standby.py"}) {
        if (::access((folder + "/" + file).c_str(), R_OK) != 0) {
            give_up(local_rank, "Lockstep's hooks are not there any more: " + folder + "/" + file);
            return;
        }
    }
    auto one = spawn(place);
    if (!one) {
        give_up(local_rank, "it could not be started: " + one.error().message);
        return;
    }
    place.standby = std::move(*one);
    place.standby->local_rank = local_rank;
    tasks_.spawn("standby", hear(place.standby));
    tasks_.spawn("standby process", watch(place.standby));
    log::info("a standby imports", {{"local_rank", local_rank}, {"pid", place.standby->pid}});
}

Result<Standbys::OnePointer> Standbys::spawn(const Place& place) {
    std::array<int, 2> printed{-1, -1};
    std::array<int, 2> control{-1, -1};
    if (::pipe2(printed.data(), O_CLOEXEC) != 0) {
        return fail(errno_error("pipe", errno));
    }
    auto one = std::make_shared<One>(tasks_.io());
    one->output = UniqueFd{printed[0]};
    one->printing = UniqueFd{printed[1]};
    ::fcntl(one->output.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(one->output.get(), F_SETPIPE_SZ,
            static_cast<int>(limits::kStandbyOutputBytes));  // if the user may have so much
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control.data()) != 0) {
        return fail(errno_error("socketpair", errno));
    }
    UniqueFd own{control[0]};
    const UniqueFd its = out_of_the_way(UniqueFd{control[1]});
    one->orders = out_of_the_way(UniqueFd{::memfd_create("lockstep-standby", MFD_CLOEXEC)});
    if (!its || !one->orders) {
        return fail(errno_error("memfd_create", errno));
    }
    one->request = place.rank.process;
    SpawnRequest request = one->request;
    request.output = one->printing.get();
    request.handed = {its.get(), one->orders.get()};
    std::string names;
    for (const std::string& name : modules_) {
        names += (names.empty() ? "" : ",") + name;
    }
    request.environment["LOCKSTEP_STANDBY"] = names;
    auto spawned = spawn_rank(request);
    LOCKSTEP_TRY(spawned);
    one->pid = spawned->pid;
    one->process.assign(spawned->pidfd.release());
    one->control.assign(own.release());
    return one;
}

Task<void> Standbys::hear(OnePointer one) {
    ErrorCode ec;
    co_await one->control.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    if (ec || one->over) {
        co_return;
    }
    char word = 0;
    if (::read(one->control.native_handle(), &word, 1) != 1) {
        one->let_go = std::chrono::steady_clock::now();
    } else {
        one->ready = true;
        log::info("a standby is ready", {{"local_rank", one->local_rank}, {"pid", one->pid}});
    }
}

Task<void> Standbys::watch(OnePointer one) {
    ErrorCode ec;
    co_await one->process.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    if (ec || one->taken) {
        co_return;  // it is a rank now, or the agent goes
    }
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(one->pid), &info, WEXITED | WNOHANG | WNOWAIT);
    ::kill(-one->pid, SIGKILL);  // what it has started; not reaped, so the number is its own
    ::waitpid(one->pid, nullptr, WNOHANG);
    one->process.close(ec);
    dying_.erase(std::remove(dying_.begin(), dying_.end(), one), dying_.end());
    if (!one->over) {
        on_death(*one, info.si_code == CLD_KILLED && info.si_status == SIGKILL, how_it_ended(info));
    }
}

void Standbys::on_death(One& one, bool killed, const std::string& how) {
    one.over = true;
    Place& place = places_[static_cast<std::size_t>(one.local_rank)];
    ErrorCode ec;
    one.control.close(ec);
    if (killed) {
        handlers_.killed();
    }
    give_up(one.local_rank, how + (one.ready ? "" : " before it was ready") + last_words(one));
    place.standby.reset();
}

void Standbys::drop(OnePointer& standby) {
    if (!standby || standby->over) {
        standby.reset();
        return;
    }
    standby->over = true;
    ::kill(-standby->pid, SIGKILL);
    ErrorCode ec;
    standby->control.close(ec);
    dying_.push_back(std::exchange(standby, nullptr));
}

std::optional<WarmProcess> Standbys::take(std::int32_t local_rank, const SpawnRequest& request) {
    Place* place = place_of(local_rank);
    if (place == nullptr || !place->standby) {
        return std::nullopt;
    }
    OnePointer& standby = place->standby;
    const auto orders = standby_orders(standby->request, request);
    if (!orders) {
        handlers_.warn(local_rank, "a rank was started cold, its warm standby was no use: " +
                                       orders.error().message);
    }
    const bool usable =
        orders && standby->ready && !is_signalled(standby->process.native_handle(), POLLIN) &&
        ::pwrite(standby->orders.get(), orders->data(), orders->size(), 0) ==
            static_cast<ssize_t>(orders->size()) &&
        ::send(standby->control.native_handle(), "g", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    if (!usable) {
        log::info("a standby is not used", {{"local_rank", local_rank}, {"ready", standby->ready}});
        drop(standby);
        return std::nullopt;
    }
    standby->over = true;
    standby->taken = true;
    standby->printing.reset();  // the end of the output is that of the rank
    WarmProcess out;
    out.process.pid = standby->pid;
    out.process.pidfd = UniqueFd{standby->process.release()};
    out.output = std::move(standby->output);
    ErrorCode ec;
    standby->control.close(ec);
    standby.reset();
    return out;
}

void Standbys::end() {
    for (Place& place : places_) {
        drop(place.standby);
    }
    places_.clear();
}

void Standbys::close() {
    end();
    for (const OnePointer& one : dying_) {
        ErrorCode ec;
        one->process.close(ec);
    }
    dying_.clear();
}

}  // namespace lockstep
