// The load of bench_history against Prometheus' Pushgateway: one client per node, each of which
// pushes its ranks' newest values once a second as a group of its own and waits for the answer, as
// the client libraries do. Prints "name value unit" lines for pushgateway.py.
//
//   bench_push PORT NODES RANKS METRICS SECONDS SCRAPED
//
// A push that is due while the one before is not answered is missed, not caught up with.
#include "job/async/asio.hpp"
#include "tests/bench/telemetry/generator.hpp"
#include "tests/bench/telemetry/load_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace lockstep;
using bench::ms_between;
using bench::percentile;
using bench::run_until;
using bench::say;
using bench::Steady;

struct Load {
    std::uint16_t port = 0;
    std::uint32_t nodes = 0;
    std::uint32_t ranks = 0;
    std::size_t metrics = 0;
    std::uint64_t seconds = 0;
    std::uint64_t scraped = 0;
    Steady::time_point begin;
    std::uint32_t connected = 0;
    std::uint32_t ended = 0;
    struct Part {
        std::uint64_t accepted = 0;
        std::uint64_t refused = 0;
        Steady::time_point last;  // answer
        std::vector<double> ms;   // since the push was due
    };
    std::array<Part, 2> parts;
    std::string first_refusal;

    Steady::time_point at(double second) const { return begin + bench::seconds_of(second); }
    Part& part_of(Steady::time_point time) {
        return parts[time < at(static_cast<double>(seconds)) ? 0 : 1];
    }
};

// The text format; a number as short as it reads back.
std::string text_of(const Load& load, std::uint32_t node, std::uint64_t step) {
    std::string out;
    out.reserve(load.metrics * (64 + load.ranks * 48));
    std::array<char, 32> room{};
    for (std::size_t k = 0; k < load.metrics; ++k) {
        out += "# TYPE ";
        out += bench::kMetricNames[k];
        out += " gauge\n";
        for (std::uint32_t local = 0; local < load.ranks; ++local) {
            const std::uint32_t rank = node * load.ranks + local;
            out += bench::kMetricNames[k];
            out += "{rank=\"" + std::to_string(rank) + "\"} ";
            const auto end = std::to_chars(room.data(), room.data() + room.size(),
                                           bench::load_value(rank, k, step));
            out.append(room.data(), end.ptr);
            out += '\n';
        }
    }
    return out;
}

class Pusher {
  public:
    Pusher(net::io_context& io, Load& load, std::uint32_t number)
        : load_(load), number_(number), socket_(io), timer_(io) {}

    Task<void> connect() {
        const tcp::endpoint to{net::ip::address_v4::loopback(), load_.port};
        ErrorCode ec;
        co_await socket_.async_connect(to, into(ec));
        if (ec) {
            std::fprintf(stderr, "pusher %u: %s\n", number_, ec.message().c_str());
            std::exit(1);
        }
        socket_.set_option(tcp::no_delay{true});
        ++load_.connected;
    }

    Task<void> push() {
        for (std::uint64_t second = 0; second < load_.seconds + load_.scraped; ++second) {
            const auto due =
                load_.at(static_cast<double>(second) + static_cast<double>(number_) / load_.nodes);
            if (Steady::now() > due + std::chrono::seconds{1}) {
                continue;
            }
            timer_.expires_at(due);
            ErrorCode ec;
            co_await timer_.async_wait(into(ec));
            const int status = co_await exchange(second);
            const auto now = Steady::now();
            Load::Part& part = load_.part_of(now);  // when it was answered
            part.last = now;
            if (status == 200 || status == 202) {
                ++part.accepted;
                part.ms.push_back(ms_between(due, now));
            } else {
                ++part.refused;
            }
            if (status == 0) {
                break;
            }
        }
        ++load_.ended;
    }

  private:
    // The status; 0 if the connection broke.
    Task<int> exchange(std::uint64_t second) {
        const std::string body = text_of(load_, number_, second);
        const std::string request =
            "PUT /metrics/job/bench/instance/node" + std::to_string(number_) +
            " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(load_.port) +
            "\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: " +
            std::to_string(body.size()) + "\r\n\r\n" + body;
        for (std::size_t sent = 0; sent < request.size();) {
            const auto rest = net::buffer(request.data() + sent, request.size() - sent);
            ErrorCode ec;
            const std::size_t more = co_await socket_.async_write_some(rest, into(ec));
            if (ec) {
                co_return 0;
            }
            sent += more;
        }
        std::string in;
        for (;;) {
            const auto head = in.find("\r\n\r\n");
            if (head != std::string::npos && in.size() >= head + 4 + length_of(in)) {
                const int status = std::atoi(in.c_str() + std::string_view{"HTTP/1.1 "}.size());
                if (status != 200 && status != 202 && load_.first_refusal.empty()) {
                    load_.first_refusal = in;
                }
                co_return status;
            }
            std::array<char, 4096> room{};
            const auto view = net::buffer(room);
            ErrorCode ec;
            const std::size_t got = co_await socket_.async_read_some(view, into(ec));
            if (ec) {
                co_return 0;
            }
            in.append(room.data(), got);
        }
    }
    static std::size_t length_of(const std::string& in) {
        constexpr std::string_view kName{"\r\nContent-Length: "};
        const auto at = in.find(kName);
        return at == std::string::npos ? 0
                                       : std::strtoul(in.c_str() + at + kName.size(), nullptr, 10);
    }

    Load& load_;
    std::uint32_t number_;
    tcp::socket socket_;
    net::steady_timer timer_;
};

void report(const Load& load) {
    const std::array<std::string, 2> names{"", "scraped_"};
    const std::array<std::uint64_t, 2> seconds{load.seconds, load.scraped};
    auto begin = load.begin;
    for (std::size_t i = 0; i < 2; ++i) {
        const Load::Part& part = load.parts[i];
        const double wall =
            std::max(static_cast<double>(seconds[i]), ms_between(begin, part.last) / 1000);
        begin += std::chrono::seconds{seconds[i]};
        const double samples = static_cast<double>(load.ranks) * static_cast<double>(load.metrics);
        const double due = static_cast<double>(load.nodes) * static_cast<double>(seconds[i]);
        say(names[i] + "rate", static_cast<double>(part.accepted) * samples / std::max(wall, 0.001),
            "samples/s");
        say(names[i] + "due", due, "pushes");
        say(names[i] + "accepted", static_cast<double>(part.accepted), "pushes");
        say(names[i] + "refused", static_cast<double>(part.refused), "pushes");
        say(names[i] + "push_p50", percentile(part.ms, 0.5), "ms");
        say(names[i] + "push_p99", percentile(part.ms, 0.99), "ms");
    }
    if (!load.first_refusal.empty()) {
        std::fprintf(stderr, "%s\n", load.first_refusal.c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "bench_push PORT NODES RANKS METRICS SECONDS SCRAPED\n");
        return 2;
    }
    Load load;
    load.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    load.nodes = static_cast<std::uint32_t>(std::atoi(argv[2]));
    load.ranks = static_cast<std::uint32_t>(std::atoi(argv[3]));
    load.metrics =
        std::min<std::size_t>(std::strtoul(argv[4], nullptr, 10), bench::kMetricNames.size());
    load.seconds = std::strtoul(argv[5], nullptr, 10);
    load.scraped = std::strtoul(argv[6], nullptr, 10);
    bench::raise_descriptors();
    net::io_context io{1};
    const auto more = net::make_work_guard(io);  // between connecting and pushing there is none
    std::vector<std::unique_ptr<Pusher>> pushers;
    for (std::uint32_t i = 0; i < load.nodes; ++i) {
        pushers.push_back(std::make_unique<Pusher>(io, load, i));
        net::co_spawn(io, pushers.back()->connect(), net::detached);
    }
    run_until(
        io, [&] { return load.connected == load.nodes; }, Steady::now() + std::chrono::seconds{30});
    load.begin = Steady::now();
    say("begin", 0, "-");
    for (const auto& pusher : pushers) {
        net::co_spawn(io, pusher->push(), net::detached);
    }
    const auto scraped = load.at(static_cast<double>(load.seconds));
    run_until(io, [] { return false; }, scraped);
    say("scraped", 0, "-");
    // A second more for those that are under way.
    run_until(
        io, [&] { return load.ended == load.nodes; },
        scraped + std::chrono::seconds{load.scraped + 1});
    say("end", 0, "-");
    report(load);
    say("done", 0, "-");
    std::fgetc(stdin);
    std::_Exit(0);  // answers that may take minutes are not waited for
}
