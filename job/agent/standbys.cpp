#include "job/agent/standbys.hpp"

#include "job/agent/standby_orders.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <fcntl.h>
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

// Scripts that report no step: by then they have started.
constexpr auto kStartPatience = std::chrono::seconds{60};
constexpr int kFirstHanded = 10;                   // see SpawnRequest::handed
constexpr std::size_t kStandbyWords = 16U << 10U;  // of what one that failed has printed
constexpr std::size_t kStandbyLine = 500;

UniqueFd out_of_the_way(UniqueFd fd) {
    return UniqueFd{fd ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstHanded) : -1};
}

// The last line that is in the pipe.
std::string last_words_in(int output) {
    std::string text(kStandbyWords, '\0');
    std::string all;
    for (ssize_t got = 1; got > 0 && all.size() < 4 * kStandbyWords;) {
        got = ::read(output, text.data(), text.size());
        all.append(text, 0, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }
    const std::string_view lines = trim(all);
    const std::string_view line = lines.substr(lines.rfind('\n') + 1);
    return printable(line.substr(0, kStandbyLine));
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
    UniqueFd orders;                        // a file in memory that it has, too
    bool ready = false;
    bool over = false;  // it is a rank now, or is being ended
};

Standbys::Standbys(TaskGroup& tasks, std::string hooks, Warn warn)
    : tasks_(tasks), hooks_(std::move(hooks)), warn_(std::move(warn)) {}

Standbys::~Standbys() = default;

void Standbys::begin(std::vector<std::string> modules, std::vector<Rank> ranks) {
    end();
    modules_ = std::move(modules);
    for (Rank& rank : ranks) {
        places_.emplace_back().rank = std::move(rank);
    }
    began_ = std::chrono::steady_clock::now();
}

void Standbys::stepped(std::int32_t local_rank) {
    const auto index = static_cast<std::size_t>(local_rank);
    if (local_rank >= 0 && index < places_.size()) {
        places_[index].stepped = true;
    }
}

// One at a time: what they import costs as much time as a start does.
bool Standbys::is_due() const {
    const bool started =
        std::chrono::steady_clock::now() - began_ > kStartPatience ||
        std::all_of(places_.begin(), places_.end(), [](const Place& one) { return one.stepped; });
    return started && std::none_of(places_.begin(), places_.end(), [](const Place& one) {
               return one.standby && !one.standby->ready;
           });
}

void Standbys::look() {
    if (!is_due()) {
        return;
    }
    const auto next = std::find_if(places_.begin(), places_.end(),
                                   [](const Place& one) { return !one.standby && !one.given_up; });
    if (next != places_.end()) {
        start(static_cast<std::int32_t>(next - places_.begin()));
    }
}

void Standbys::give_up(std::int32_t local_rank, const std::string& why) {
    places_[static_cast<std::size_t>(local_rank)].given_up = true;
    warn_(local_rank, "has no warm standby, so a restart starts it cold: " + why);
}

void Standbys::start(std::int32_t local_rank) {
    Place& place = places_[static_cast<std::size_t>(local_rank)];
    if (const auto good = script_arguments(place.rank.process.argv); !good) {
        give_up(local_rank, good.error().message);
        return;
    }
    struct stat info {};
    if (::stat((hooks_ + "/stacks." + std::to_string(place.rank.pid)).c_str(), &info) != 0) {
        give_up(local_rank, "its Python does not load Lockstep's hooks");
        return;
    }
    auto one = spawn(place);
    if (!one) {
        give_up(local_rank, one.error().message);
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
    const UniqueFd printing{printed[1]};
    ::fcntl(one->output.get(), F_SETFL, O_NONBLOCK);
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
    request.output = printing.get();
    request.handed = {its.get(), one->orders.get()};
    std::string names;
    for (const std::string& name : modules_) {
        names += (names.empty() ? "" : ",") + name;
    }
    request.environment["LOCKSTEP_STANDBY"] = names;
    auto spawned = spawn_rank(request);
    if (!spawned) {
        return fail(spawned.error());
    }
    one->pid = spawned->pid;
    one->process.assign(spawned->pidfd.release());
    one->control.assign(own.release());
    return one;
}

Task<void> Standbys::hear(OnePointer one) {
    ErrorCode ec;
    co_await one->control.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    char word = 0;
    if (!ec && !one->over && ::read(one->control.native_handle(), &word, 1) == 1) {
        one->ready = true;
        log::info("a standby is ready", {{"local_rank", one->local_rank}, {"pid", one->pid}});
    }
}

Task<void> Standbys::watch(OnePointer one) {
    ErrorCode ec;
    co_await one->process.async_wait(net::posix::stream_descriptor::wait_read, into(ec));
    if (ec) {
        co_return;  // it is a rank now, or the agent goes
    }
    ::kill(-one->pid, SIGKILL);  // what it has started; not reaped, so the number is its own
    ::waitpid(one->pid, nullptr, WNOHANG);
    one->process.close(ec);
    dying_.erase(std::remove(dying_.begin(), dying_.end(), one), dying_.end());
    if (!one->over) {
        on_death(*one);
    }
}

void Standbys::on_death(One& one) {
    one.over = true;
    const std::string words = last_words_in(one.output.get());
    Place& place = places_[static_cast<std::size_t>(one.local_rank)];
    ErrorCode ec;
    one.control.close(ec);
    give_up(one.local_rank, (one.ready ? "it has ended" : "it ended before it was ready") +
                                (words.empty() ? std::string{} : ": " + words));
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
    const auto index = static_cast<std::size_t>(local_rank);
    if (local_rank < 0 || index >= places_.size() || !places_[index].standby) {
        return std::nullopt;
    }
    OnePointer& standby = places_[index].standby;
    const auto orders = standby_orders(standby->request, request);
    if (!orders) {
        warn_(local_rank, "was started cold, its standby was no use: " + orders.error().message);
    }
    const bool usable =
        orders && standby->ready &&
        ::pwrite(standby->orders.get(), orders->data(), orders->size(), 0) ==
            static_cast<ssize_t>(orders->size()) &&
        ::send(standby->control.native_handle(), "g", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    if (!usable) {
        log::info("a standby is not used", {{"local_rank", local_rank}, {"ready", standby->ready}});
        drop(standby);
        return std::nullopt;
    }
    standby->over = true;
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
