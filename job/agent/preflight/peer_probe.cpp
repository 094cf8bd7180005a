#include "job/agent/preflight/peer_probe.hpp"

#include "job/base/digest.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace lockstep {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Socket = std::shared_ptr<tcp::socket>;
constexpr std::string_view kAsk = "lockstep-probe ";
constexpr std::string_view kTell = "lockstep-peer ";
constexpr std::size_t kNonce = 16;
constexpr std::size_t kProbeLineBytes = 128;

std::string answer_to(const std::string& secret, std::string_view nonce, std::int32_t slot) {
    return sha256_hex(secret + ":" + std::string{nonce} + ":" + std::to_string(slot));
}

// Up to the end of the line or as much as a line may have. The caller's timer closes the socket.
Task<std::string> read_line(Socket socket) {
    std::array<char, kProbeLineBytes> bytes{};
    std::string line;
    while (line.size() < kProbeLineBytes && line.find('\n') == std::string::npos) {
        ErrorCode ec;
        const std::size_t count = co_await socket->async_read_some(
            net::buffer(bytes.data(), kProbeLineBytes - line.size()), into(ec));
        if (ec) {
            break;
        }
        line.append(bytes.data(), count);
    }
    co_return line;
}

Task<bool> write_line(Socket socket, std::string line) {
    for (std::size_t sent = 0; sent < line.size();) {
        ErrorCode ec;
        sent += co_await socket->async_write_some(
            net::buffer(line.data() + sent, line.size() - sent), into(ec));
        if (ec) {
            co_return false;
        }
    }
    co_return true;
}

}  // namespace

struct PeerProbe::Round {
    explicit Round(net::io_context& io) : grace(io) {}
    struct Try {
        ProbePeer peer;
        std::string address;
        bool first = false;                // of the peer's addresses
        std::optional<std::string> error;  // "" = it answered; nothing: not known yet
    };
    std::vector<Try> tries;
    Done done;  // empty once it was called
    net::steady_timer grace;
    bool grace_over = false;
    std::set<Socket> sockets;

    bool enough() const {
        const auto known = [](const Try& one) { return one.error.has_value(); };
        const auto good = [](const Try& one) {
            return !one.first || (one.error && one.error->empty());
        };
        return std::all_of(tries.begin(), tries.end(), known) ||
               (grace_over && std::all_of(tries.begin(), tries.end(), good));
    }
    void look() {
        if (!done || !enough()) {
            return;
        }
        std::vector<ProbeResult> results;
        for (const Try& one : tries) {
            results.push_back(
                {-1, one.peer.slot, one.address, one.error.value_or(std::string{kProbeNoAnswer})});
        }
        const Done told = std::exchange(done, nullptr);
        end();
        told(std::move(results));
    }
    void end() {
        done = nullptr;
        grace.cancel();
        for (const Socket& socket : sockets) {
            ErrorCode ignored;
            socket->close(ignored);
        }
        sockets.clear();
    }
};

struct PeerProbe::Shared : std::enable_shared_from_this<PeerProbe::Shared> {
    Shared(TaskGroup& its_tasks, std::int32_t its_slot, std::string its_secret, Timing its_timing)
        : tasks(its_tasks), slot(its_slot), secret(std::move(its_secret)), timing(its_timing) {}

    TaskGroup& tasks;
    std::int32_t slot;
    std::string secret;
    Timing timing;
    std::optional<tcp::acceptor> acceptor;
    std::set<Socket> visitors;
    std::set<std::shared_ptr<Round>> rounds;

    // Each keeps this object.
    Task<void> accept(std::shared_ptr<Shared> self);
    Task<void> answer(std::shared_ptr<Shared> self, Socket socket);
    Task<void> attempt(std::shared_ptr<Shared> self, std::shared_ptr<Round> round,
                       std::size_t index);
    Task<std::string> ask(std::shared_ptr<Round> round, std::size_t index, Socket socket);
    void stop();
};

namespace {

// Closes the socket when the time is over; the timer must be cancelled after the last use.
void close_at(net::steady_timer& timer, SteadyClock::time_point end, const Socket& socket) {
    timer.expires_at(end);
    timer.async_wait([socket](const ErrorCode& cancelled) {
        if (!cancelled) {
            ErrorCode ignored;
            socket->close(ignored);
        }
    });
}

}  // namespace

Task<void> PeerProbe::Shared::accept(std::shared_ptr<Shared> self) {
    while (acceptor) {
        auto socket = std::make_shared<tcp::socket>(tasks.io());
        ErrorCode ec;
        co_await acceptor->async_accept(*socket, into(ec));
        if (!acceptor || ec == net::error::operation_aborted) {
            break;
        }
        if (ec) {
            net::steady_timer pause{tasks.io(), std::chrono::milliseconds{100}};
            co_await pause.async_wait(into(ec));
            continue;
        }
        if (visitors.size() < limits::kProbeVisitors) {
            visitors.insert(socket);
            tasks.spawn("probe visitor", answer(self, socket));
        }
    }
}

Task<void> PeerProbe::Shared::answer([[maybe_unused]] std::shared_ptr<Shared> self, Socket socket) {
    net::steady_timer timer{tasks.io()};
    close_at(timer, SteadyClock::now() + limits::kProbeVisit, socket);
    const std::string line = co_await read_line(socket);
    if (line.starts_with(kAsk) && line.size() == kAsk.size() + kNonce + 1 && line.back() == '\n') {
        const std::string told =
            std::string{kTell} + answer_to(secret, line.substr(kAsk.size(), kNonce), slot) + "\n";
        co_await write_line(socket, told);
    }
    timer.cancel();
    visitors.erase(socket);
    ErrorCode ignored;
    socket->close(ignored);
}

// "" or why it did not answer.
Task<std::string> PeerProbe::Shared::ask(std::shared_ptr<Round> round, std::size_t index,
                                         Socket socket) {
    const Round::Try& one = round->tries[index];
    ErrorCode ec;
    const auto address = net::ip::make_address(one.address, ec);
    if (ec) {
        co_return "not an IP address";
    }
    const tcp::endpoint where{address, static_cast<std::uint16_t>(one.peer.port)};
    co_await socket->async_connect(where, into(ec));
    if (ec) {
        co_return ec == net::error::operation_aborted ? std::string{kProbeNoAnswer}
        : ec == net::error::timed_out                 ? std::string{kProbeTimedOut}
                                                      : ec.message();
    }
    const std::string nonce = random_secret().substr(0, kNonce);
    const std::string asked = std::string{kAsk} + nonce + "\n";
    const bool sent = co_await write_line(socket, asked);
    const std::string line = co_await read_line(socket);
    if (!sent || line.empty()) {
        co_return std::string{kProbeNoAnswer};
    }
    if (line != std::string{kTell} + answer_to(secret, nonce, one.peer.slot) + "\n") {
        co_return "another program or another node answers there";
    }
    co_return "";
}

Task<void> PeerProbe::Shared::attempt([[maybe_unused]] std::shared_ptr<Shared> self,
                                      std::shared_ptr<Round> round, std::size_t index) {
    auto socket = std::make_shared<tcp::socket>(tasks.io());
    round->sockets.insert(socket);
    net::steady_timer timer{tasks.io()};
    close_at(timer, SteadyClock::now() + timing.patience, socket);
    std::string error = co_await ask(round, index, socket);
    timer.cancel();
    ErrorCode ignored;
    socket->close(ignored);
    round->sockets.erase(socket);
    round->tries[index].error = std::move(error);
    round->look();
    if (!round->done) {
        rounds.erase(round);
    }
}

void PeerProbe::Shared::stop() {
    ErrorCode ignored;
    if (acceptor) {
        acceptor->close(ignored);
        acceptor.reset();
    }
    for (const Socket& socket : visitors) {
        socket->close(ignored);
    }
    for (const auto& round : rounds) {
        round->end();
    }
    rounds.clear();
}

PeerProbe::PeerProbe(TaskGroup& tasks, std::int32_t slot, std::string secret, Timing timing)
    : shared_(std::make_shared<Shared>(tasks, slot, std::move(secret), timing)) {}

std::int32_t PeerProbe::listen(const std::string& address) {
    ErrorCode ec;
    if (!shared_->acceptor) {
        const bool six = address.find(':') != std::string::npos;
        const tcp::endpoint any{six ? tcp::v6() : tcp::v4(), 0};
        tcp::acceptor acceptor{shared_->tasks.io()};
        acceptor.open(any.protocol(), ec);
        if (!ec) {
            acceptor.bind(any, ec);
        }
        if (!ec) {
            acceptor.listen(static_cast<int>(limits::kProbeVisitors), ec);
        }
        if (ec) {
            log::warn("peers cannot try to connect to this node", {{"why", ec.message()}});
            return 0;
        }
        shared_->acceptor.emplace(std::move(acceptor));
        shared_->tasks.spawn("probe listener", shared_->accept(shared_));
    }
    return shared_->acceptor->local_endpoint(ec).port();
}

void PeerProbe::probe(std::vector<ProbePeer> peers, Done done) {
    auto round = std::make_shared<Round>(shared_->tasks.io());
    round->done = std::move(done);
    for (const ProbePeer& peer : peers) {
        for (std::size_t i = 0; i < peer.addresses.size(); ++i) {
            round->tries.push_back({peer, peer.addresses[i], i == 0, std::nullopt});
        }
    }
    shared_->rounds.insert(round);
    round->grace.expires_after(shared_->timing.grace);
    round->grace.async_wait([round](const ErrorCode& cancelled) {
        if (!cancelled) {
            round->grace_over = true;
            round->look();
        }
    });
    for (std::size_t i = 0; i < round->tries.size(); ++i) {
        shared_->tasks.spawn("probe", shared_->attempt(shared_, round, i));
    }
    round->look();  // of no peer at all
    if (!round->done) {
        shared_->rounds.erase(round);
    }
}

void PeerProbe::stop() {
    shared_->stop();
}

}  // namespace lockstep
