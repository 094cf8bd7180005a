// size: the telemetry half of an agent, and the two loads it can produce
// Telemetry of a job over real sockets: simulated agents call in at a real lockstepd, start a
// generation and send batches, as job/agent does. Prints "name value unit" lines for history.py,
// which starts the daemon and the job.
//
//   bench_history steady URL TICKET NODES RANKS METRICS SECONDS SCRAPED GPU_NODES
//     a batch a second from every node, each at its own moment of it; after SECONDS comes the line
//     "scraped", and for SCRAPED more the first GPU_NODES nodes report eight GPUs each as well
//   bench_history fill URL TICKET NODES RANKS STEPS
//     the losses of STEPS steps of every rank, as fast as they are acknowledged; one is kSpike
//
// Then the agents stay and only beat, so that the job goes on; a line on standard input ends the
// ranks well, its end ends the program. One process: 1,250 connections are far from the bound of
// 20,000 descriptors, and what they cost is not counted as the daemon's.
#include "job/async/sleep.hpp"
#include "job/async/ws_client.hpp"
#include "job/base/limits.hpp"
#include "job/model/wire/batch.hpp"
#include "job/model/wire/gpu_batch.hpp"
#include "job/model/wire/wire.hpp"
#include "tests/bench/telemetry/generator.hpp"
#include "tests/bench/telemetry/load_values.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
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

constexpr double kSpike = 1000;
constexpr std::uint64_t kWindow = 4;      // of a filling node: batches not acknowledged yet
constexpr double kSecondsOfAStep = 0.05;  // of a run that is filled in
constexpr std::size_t kValuesToCompare = 200;

double unix_now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

struct Load {
    std::uint32_t nodes = 0;
    std::uint32_t ranks = 0;  // of a node
    std::uint32_t metrics = 1;
    std::uint64_t seconds = 0;
    std::uint64_t scraped = 0;
    std::uint32_t gpu_nodes = 0;
    std::uint64_t steps = 0;  // of a fill

    Steady::time_point begin;
    std::uint32_t started = 0;
    std::uint32_t broken = 0;
    std::uint32_t filled = 0;  // nodes that have sent all of it, acknowledged
    bool finish = false;       // the ranks are to end well
    struct Part {              // of a steady load: alone, and while scraped
        std::uint64_t sent = 0;
        std::uint64_t acked = 0;
        Steady::time_point last_ack;
        std::vector<double> ack_ms;  // since the batch was due, whoever was late
    };
    std::array<Part, 2> parts;
    std::vector<double> late_ms;  // how long after it was due a batch was sent

    std::size_t part_of(std::uint64_t second) const { return second < seconds ? 0 : 1; }
    std::uint64_t batch_values() const { return std::uint64_t{ranks} * metrics; }
};

class Agent {
  public:
    Agent(net::io_context& io, Load& load, std::uint32_t number)
        : load_(load), number_(number), client_(io), timer_(io), acked_timer_(io) {
        acked_timer_.expires_at(Steady::time_point::max());
    }

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
                load_.broken += over_ ? 0 : 1;
                over_ = true;
                acked_timer_.cancel();  // no more of them come
                co_return;
            }
            const auto message = wire::decode_daemon(got->bytes);
            if (message) {
                co_await answer(*message);
            }
        }
    }

    Task<void> steady() {
        for (std::uint64_t second = 0; second < load_.seconds + load_.scraped; ++second) {
            const double at = static_cast<double>(second) +
                              static_cast<double>(number_) / static_cast<double>(load_.nodes);
            const auto due = load_.begin + bench::seconds_of(at);
            timer_.expires_at(due);
            ErrorCode ec;
            co_await timer_.async_wait(into(ec));
            due_.push_back(due);
            load_.late_ms.push_back(ms_between(due, Steady::now()));
            std::string bytes = batch(second, 1, unix_now());
            const bool sent = co_await send(bytes);
            if (sent) {
                load_.parts[load_.part_of(second)].sent += load_.batch_values();
            }
            if (load_.part_of(second) == 1 && number_ < load_.gpu_nodes) {
                std::string look = gpus(second);
                co_await send(look);
            }
        }
        co_await stay();
    }

    Task<void> fill() {
        const std::uint64_t steps_of_batch = limits::kBatchRows / load_.ranks;
        const double first = unix_now() - static_cast<double>(load_.steps) * kSecondsOfAStep;
        for (std::uint64_t step = 0; step < load_.steps; step += steps_of_batch) {
            const std::uint64_t count = std::min(steps_of_batch, load_.steps - step);
            due_.push_back(Steady::now());
            std::string bytes =
                batch(step, count, first + static_cast<double>(step) * kSecondsOfAStep);
            co_await send(bytes);
            while (due_.size() - acked_ >= kWindow && !over_) {
                ErrorCode ec;
                co_await acked_timer_.async_wait(into(ec));
            }
        }
        while (acked_ < due_.size() && !over_) {
            ErrorCode ec;
            co_await acked_timer_.async_wait(into(ec));
        }
        ++load_.filled;
        co_await stay();
    }

  private:
    Task<void> say(const wire::AgentMessage& message) {
        WsMessage out;
        out.bytes = wire::encode(message);
        co_await client_.write(std::move(out));
    }
    Task<bool> send(std::string& bytes) {
        WsMessage out;
        out.binary = true;
        out.bytes = std::move(bytes);
        const Status done = co_await client_.write(std::move(out));
        co_return done.has_value();
    }

    // Nothing to report: beats, until the job is over.
    Task<void> stay() {
        while (!over_) {
            if (load_.finish) {
                co_await end_ranks();
                co_return;
            }
            wire::Beat beat;
            beat.time = static_cast<UnixMillis>(unix_now() * 1000);
            beat.generation = generation_;
            wire::AgentMessage out = beat;
            co_await say(out);
            co_await sleep_on(timer_, std::chrono::seconds{1});
        }
    }
    Task<void> end_ranks() {
        std::uint64_t event = 0;
        for (std::uint32_t i = 0; i < load_.ranks; ++i) {
            wire::Exited exited;
            exited.event = ++event;
            exited.generation = generation_;
            exited.rank = static_cast<std::int32_t>(number_ * load_.ranks + i);
            exited.exit_code = 0;
            exited.time = static_cast<UnixMillis>(unix_now() * 1000);
            wire::AgentMessage out = exited;
            co_await say(out);
        }
        wire::Done done;
        done.event = ++event;
        done.generation = generation_;
        wire::AgentMessage out = done;
        co_await say(out);
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
            on_ack(ack->batch);
        } else if (const auto* abort = std::get_if<wire::Abort>(&message)) {
            std::fprintf(stderr, "agent %u: ABORT: %s\n", number_, abort->reason.c_str());
            ++load_.broken;
        } else if (std::holds_alternative<wire::Stop>(message)) {
            over_ = true;
            client_.close();
        }
    }

    void on_ack(std::uint64_t batches) {
        const auto now = Steady::now();
        for (; acked_ < batches && acked_ < due_.size(); ++acked_) {
            Load::Part& part = load_.parts[load_.part_of(acked_)];
            part.ack_ms.push_back(ms_between(due_[acked_], now));
            part.acked += load_.batch_values();
            part.last_ack = now;
        }
        acked_timer_.cancel();
        acked_timer_.expires_at(Steady::time_point::max());
    }

    // Of the newest in due_.
    std::string batch(std::uint64_t step, std::uint64_t count, double time) const {
        Batch out;
        out.seq = due_.size();
        out.generation = static_cast<std::uint32_t>(generation_);
        out.node_rank = number_;
        for (std::uint64_t i = 0; i < count; ++i) {
            for (std::uint32_t local = 0; local < load_.ranks; ++local) {
                const std::uint32_t rank = number_ * load_.ranks + local;
                out.add_row(rank, static_cast<std::int64_t>(step + i),
                            time + static_cast<double>(i) * kSecondsOfAStep);
                for (std::size_t k = 0; k < load_.metrics; ++k) {
                    const bool spike = load_.steps > 0 && step + i == load_.steps / 3;
                    out.set(bench::kMetricNames[k],
                            spike ? kSpike : bench::load_value(rank, k, step + i));
                }
            }
        }
        return encode_batch(out);
    }
    std::string gpus(std::uint64_t second) const {
        GpuBatch out;
        out.node_rank = number_;
        out.time = unix_now();
        for (std::uint32_t gpu = 0; gpu < 8; ++gpu) {
            GpuSample one;
            one.gpu = gpu;
            one.uuid = "GPU-" + std::to_string(number_) + "-" + std::to_string(gpu);
            one.model = "NVIDIA H100 80GB HBM3";
            one.driver = "550.54.15";
            one.pci_bus_id = "00000000:0" + std::to_string(gpu) + ":00.0";
            for (std::size_t i = 0; i < kGpuMetrics; ++i) {
                one.values[i] = 0.5 * static_cast<double>(i + 1) *
                                (1 + 0.1 * bench::noise(number_ * 8 + gpu,
                                                        static_cast<std::uint32_t>(i), second));
            }
            out.gpus.push_back(std::move(one));
        }
        return encode_gpu_batch(out);
    }

    Load& load_;
    std::uint32_t number_;
    WsClient client_;
    net::steady_timer timer_;
    net::steady_timer acked_timer_;
    std::int32_t generation_ = 0;
    bool over_ = false;
    std::vector<Steady::time_point> due_;  // by batch, the first is 1
    std::size_t acked_ = 0;
};

void report_steady(const Load& load) {
    const std::array<std::string, 2> names{"", "scraped_"};
    const std::array<std::uint64_t, 2> seconds{load.seconds, load.scraped};
    auto begin = load.begin;
    for (std::size_t i = 0; i < 2; ++i) {
        const Load::Part& part = load.parts[i];
        // The last batch of a part is due almost at its end: what came later took longer.
        const double wall =
            std::max(static_cast<double>(seconds[i]), ms_between(begin, part.last_ack) / 1000);
        say(names[i] + "rate", static_cast<double>(part.acked) / wall, "samples/s");
        say(names[i] + "sent", static_cast<double>(part.sent), "samples");
        say(names[i] + "acknowledged", static_cast<double>(part.acked), "samples");
        say(names[i] + "ack_p50", percentile(part.ack_ms, 0.5), "ms");
        say(names[i] + "ack_p99", percentile(part.ack_ms, 0.99), "ms");
        begin += std::chrono::seconds{seconds[i]};
    }
    say("late_p99", percentile(load.late_ms, 0.99), "ms");
    say("late_most", percentile(load.late_ms, 1), "ms");
    say("broken", load.broken, "connections");
    for (std::size_t i = 0; i < load.metrics; ++i) {
        say("metric/" + std::string{bench::kMetricNames[i]}, 0, "-");
    }
    std::mt19937 random{20'260'101};
    for (std::size_t i = 0; i < kValuesToCompare; ++i) {
        const auto rank = static_cast<std::uint32_t>(random() % (load.nodes * load.ranks));
        const std::size_t metric = random() % load.metrics;
        const std::uint64_t step = random() % (load.seconds + load.scraped);
        say("value/" + std::to_string(rank) + "/" + std::string{bench::kMetricNames[metric]} + "/" +
                std::to_string(step),
            bench::load_value(rank, metric, step), "-");
    }
}

void measure_steady(net::io_context& io, const Load& load) {
    const auto all_acked = [&] {
        const std::uint64_t all = load.nodes * load.batch_values() * (load.seconds + load.scraped);
        return load.parts[0].acked + load.parts[1].acked == all || load.broken == load.nodes;
    };
    const auto end = load.begin + std::chrono::seconds{load.seconds};
    run_until(
        io, [&] { return Steady::now() >= end; },
        Steady::now() + std::chrono::seconds{load.seconds + 60});
    say("scraped", 0, "-");
    run_until(io, all_acked, Steady::now() + std::chrono::seconds{load.scraped + 30});
    say("end", 0, "-");
    report_steady(load);
}

// A line: the ranks end. The end of input: so does this program.
Task<void> listen(net::io_context& io, Load& load) {
    net::posix::stream_descriptor in{io, ::dup(STDIN_FILENO)};
    std::array<char, 64> room{};
    for (;;) {
        ErrorCode ec;
        const auto view = net::buffer(room);
        co_await in.async_read_some(view, into(ec));
        if (ec) {
            std::exit(0);
        }
        load.finish = true;
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const bool fill = words.size() == 6 && words[0] == "fill";
    if (!fill && (words.size() != 9 || words[0] != "steady")) {
        std::fprintf(stderr, "usage: see the top of bench_history.cpp\n");
        return 2;
    }
    const auto number = [&](std::size_t i) { return std::stoul(words[i]); };
    Load load;
    load.nodes = static_cast<std::uint32_t>(number(3));
    load.ranks = static_cast<std::uint32_t>(number(4));
    if (fill) {
        load.steps = number(5);
    } else {
        load.metrics = static_cast<std::uint32_t>(
            std::min<std::size_t>(number(5), bench::kMetricNames.size()));
        load.seconds = number(6);
        load.scraped = number(7);
        load.gpu_nodes = static_cast<std::uint32_t>(number(8));
    }
    bench::raise_descriptors();

    net::io_context io{1};
    const auto endpoint = parse_endpoint(words[1]);
    if (!endpoint) {
        std::fprintf(stderr, "%s\n", endpoint.error().message.c_str());
        return 2;
    }
    net::co_spawn(io, listen(io, load), net::detached);
    std::vector<std::unique_ptr<Agent>> agents;
    for (std::uint32_t i = 0; i < load.nodes; ++i) {
        agents.push_back(std::make_unique<Agent>(io, load, i));
        net::co_spawn(io, agents.back()->run(*endpoint, words[2]), net::detached);
        if (i % 64 == 63) {
            io.run_for(std::chrono::milliseconds{20});
        }
    }
    if (!run_until(
            io, [&] { return load.started == load.nodes; },
            Steady::now() + std::chrono::seconds{60})) {
        std::fprintf(stderr, "%u of %u agents started\n", load.started, load.nodes);
        return 1;
    }
    load.begin = Steady::now();
    say("begin", 0, "-");
    for (const auto& agent : agents) {
        net::co_spawn(io, fill ? agent->fill() : agent->steady(), net::detached);
    }
    if (fill) {
        run_until(
            io, [&] { return load.filled == load.nodes; },
            Steady::now() + std::chrono::seconds{300});
        say("took", ms_between(load.begin, Steady::now()) / 1000, "s");
        say("broken", load.broken, "connections");
    } else {
        measure_steady(io, load);
    }
    say("done", 0, "-");
    run_until(io, [] { return false; }, Steady::now() + std::chrono::hours{1});
    return 0;
}
