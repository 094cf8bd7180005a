// Telemetry of a large job over real sockets: simulated agents of one job call in at a real
// lockstepd, start a generation and send a batch a second each, as job/agent does. Prints
// "name value unit" lines for tests/bench/run, which starts the daemon and the job.
//
//   bench_history URL TICKET NODES RANKS METRICS SECONDS DAEMON_PID
#include "job/async/sleep.hpp"
#include "job/async/ws_client.hpp"
#include "job/model/batch.hpp"
#include "job/model/wire.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace lockstep;
using Steady = std::chrono::steady_clock;

// Processor time of all of the daemon's threads, seconds.
double daemon_cpu(const std::string& pid) {
    double sum = 0;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/" + pid + "/task"}) {
        std::ifstream file{task.path() / "schedstat"};
        double nanoseconds = 0;
        file >> nanoseconds;
        sum += nanoseconds * 1e-9;
    }
    return sum;
}

struct Load {
    std::uint32_t nodes = 0;
    std::uint32_t ranks = 0;  // of a node
    std::uint32_t metrics = 0;
    int seconds = 0;
    std::vector<std::string> names{"loss",      "step_seconds",      "busy_seconds",
                                   "samples",   "comm_wait_seconds", "data_wait_seconds",
                                   "grad_norm", "learning_rate",     "tokens"};
    std::uint32_t started = 0;
    Steady::time_point begin;
    std::uint64_t sent = 0;
    std::uint64_t acked = 0;
    std::vector<double> ack_ms;
    int broken = 0;
};

class Agent {
  public:
    Agent(net::io_context& io, Load& load, std::uint32_t number)
        : load_(load), number_(number), client_(io), timer_(io), random_(number) {}

    Task<void> run(Endpoint endpoint, std::string ticket) {
        const Status open = co_await client_.connect(std::move(endpoint), "/v1/agent",
                                                     std::move(ticket), std::chrono::seconds{60});
        if (!open) {
            std::fprintf(stderr, "agent %u: %s\n", number_, open.error().message.c_str());
            ++load_.broken;
            co_return;
        }
        wire::Hello hello;
        hello.node_rank = static_cast<std::int32_t>(number_);
        hello.node = "node" + std::to_string(number_);
        hello.pid = 4242;
        hello.incarnation = "i" + std::to_string(number_);
        hello.allocation = "1";
        hello.version = "bench";
        wire::AgentMessage first = hello;
        co_await say(first);
        for (;;) {
            const auto got = co_await client_.read();
            if (!got) {
                ++load_.broken;
                co_return;
            }
            const auto message = wire::decode_daemon(got->bytes);
            if (message) {
                co_await answer(*message);
            }
        }
    }

    // One batch a second, every agent at its own moment of it.
    Task<void> report() {
        for (int second = 0; second < load_.seconds; ++second) {
            const double at = second + static_cast<double>(number_) / load_.nodes;
            timer_.expires_at(load_.begin + std::chrono::duration_cast<Steady::duration>(
                                                std::chrono::duration<double>{at}));
            ErrorCode ec;
            co_await timer_.async_wait(into(ec));
            WsMessage message;
            message.binary = true;
            message.bytes = batch(second);
            sent_at_.push_back(Steady::now());
            const Status done = co_await client_.write(std::move(message));
            load_.sent += done ? std::uint64_t{load_.ranks} * load_.metrics : 0;
        }
    }
    void close() { client_.close(); }

  private:
    Task<void> say(const wire::AgentMessage& message) {
        WsMessage out;
        out.bytes = wire::encode(message);
        co_await client_.write(std::move(out));
    }

    Task<void> answer(const wire::DaemonMessage& message) {
        if (std::holds_alternative<wire::Welcome>(message)) {
            wire::Join join;
            join.address = "127.0.0.1";
            join.port = 29'500;
            join.cores = 8;
            wire::AgentMessage joining = join;
            co_await say(joining);
        } else if (const auto* world = std::get_if<wire::World>(&message)) {
            generation_ = world->generation;
            wire::AgentMessage ready = wire::Ready{generation_};
            co_await say(ready);
        } else if (std::holds_alternative<wire::Start>(message)) {
            wire::Started started;
            started.generation = generation_;
            for (std::uint32_t i = 0; i < load_.ranks; ++i) {
                started.ranks.push_back(
                    {static_cast<std::int32_t>(number_ * load_.ranks + i), 1000});
            }
            wire::AgentMessage has_started = started;
            co_await say(has_started);
            ++load_.started;
        } else if (const auto* ack = std::get_if<wire::Ack>(&message)) {
            const auto batches = static_cast<std::uint64_t>(ack->batch);
            for (; acked_ < batches && acked_ < sent_at_.size(); ++acked_) {
                load_.ack_ms.push_back(
                    std::chrono::duration<double, std::milli>(Steady::now() - sent_at_[acked_])
                        .count());
                load_.acked += std::uint64_t{load_.ranks} * load_.metrics;
            }
        }
    }

    // Values as training makes them: f32 noise around a slow curve, counters that stand still.
    std::string batch(int second) {
        Batch out;
        out.seq = static_cast<std::uint64_t>(second) + 1;
        out.generation = static_cast<std::uint32_t>(generation_);
        out.node_rank = number_;
        const double now =
            std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
                .count();
        std::normal_distribution<float> noise{0, 0.02F};
        for (std::uint32_t i = 0; i < load_.ranks; ++i) {
            out.add_row(number_ * load_.ranks + i, second, now);
            for (std::uint32_t k = 0; k < load_.metrics; ++k) {
                const bool still = k == 3 || k == 7 || k == 8;
                const float value =
                    still ? 64.0F : 1.0F / static_cast<float>(k + 1) + noise(random_);
                out.set(load_.names[k], static_cast<double>(value));
            }
        }
        return encode_batch(out);
    }

    Load& load_;
    std::uint32_t number_;
    WsClient client_;
    net::steady_timer timer_;
    std::mt19937 random_;
    std::int32_t generation_ = 0;
    std::vector<Steady::time_point> sent_at_;
    std::size_t acked_ = 0;
};

bool run_until(net::io_context& io, const std::function<bool()>& done, std::chrono::seconds time) {
    const auto end = Steady::now() + time;
    while (!done() && Steady::now() < end) {
        io.run_one_for(std::chrono::milliseconds{100});
    }
    return done();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 8) {
        std::fprintf(stderr, "bench_history URL TICKET NODES RANKS METRICS SECONDS DAEMON_PID\n");
        return 2;
    }
    Load load;
    load.nodes = static_cast<std::uint32_t>(std::atoi(argv[3]));
    load.ranks = static_cast<std::uint32_t>(std::atoi(argv[4]));
    load.metrics = static_cast<std::uint32_t>(std::atoi(argv[5]));
    load.seconds = std::atoi(argv[6]);
    while (load.names.size() < load.metrics) {
        load.names.push_back("user_" + std::to_string(load.names.size()));
    }
    net::io_context io{1};
    const auto endpoint = parse_endpoint(argv[1]);
    std::vector<std::unique_ptr<Agent>> agents;
    for (std::uint32_t i = 0; i < load.nodes; ++i) {
        agents.push_back(std::make_unique<Agent>(io, load, i));
        net::co_spawn(io, agents.back()->run(*endpoint, argv[2]), net::detached);
        if (i % 64 == 63) {
            run_until(
                io, [&] { return false; }, std::chrono::seconds{0});
            io.run_for(std::chrono::milliseconds{20});
        }
    }
    if (!run_until(
            io, [&] { return load.started == load.nodes; }, std::chrono::seconds{60})) {
        std::fprintf(stderr, "%u of %u agents started\n", load.started, load.nodes);
        return 1;
    }
    const double cpu = daemon_cpu(argv[7]);
    load.begin = Steady::now();
    for (const auto& agent : agents) {
        net::co_spawn(io, agent->report(), net::detached);
    }
    const std::uint64_t all = std::uint64_t{load.nodes} * load.ranks * load.metrics *
                              static_cast<std::uint64_t>(load.seconds);
    run_until(
        io, [&] { return load.acked == all; }, std::chrono::seconds{load.seconds + 10});
    const double wall = std::chrono::duration<double>(Steady::now() - load.begin).count();
    const double used = daemon_cpu(argv[7]) - cpu;
    std::sort(load.ack_ms.begin(), load.ack_ms.end());
    const double p99 = load.ack_ms.empty() ? 0 : load.ack_ms[load.ack_ms.size() * 99 / 100];
    std::printf("rate %.0f samples/s\n", static_cast<double>(load.acked) / wall);
    std::printf("sent %llu samples\n", static_cast<unsigned long long>(load.sent));
    std::printf("acknowledged %llu samples\n", static_cast<unsigned long long>(load.acked));
    std::printf("cores %.3f cores\n", used / wall);
    std::printf("ack_p99 %.1f ms\n", p99);
    std::printf("broken %d connections\n", load.broken);
    std::fflush(stdout);
    // The agents stay, so that the job does: tests/bench/run asks its questions, then ends this.
    std::printf("done 1 -\n");
    std::fflush(stdout);
    run_until(
        io, [] { return false; }, std::chrono::seconds{300});
    return 0;
}
