// size: a WebSocket client small enough for 12,288 copies in one process, and its phases
// Thousands of agents of one job, simulated: each a real TCP connection with a real WebSocket to a
// real lockstepd. They say what an agent says and run no rank. Prints "name value unit" lines for
// tests/bench/run, which starts the daemon and the job.
//
//   bench_agents PORT TICKET NODES SPARES RANKS DAEMON_PID JOB TOKEN BEAT_SECONDS [unpaced]
//
// One process holds all of them (12,288 of the 20,000 descriptors it may have) and is not the
// daemon's: what they cost is not counted as its. Sources are 127.0.0.2 to 65, bound without a
// port: from one address the kernel's search for a free port would be most of what is measured.
#include "job/agent/agent_session.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double ms_since(Clock::time_point then) {
    return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

// Processor time of all of the daemon's threads, in ms.
double daemon_cpu(int pid) {
    double sum = 0;
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator{tasks}) {
        std::ifstream file{task.path() / "schedstat"};
        double nanoseconds = 0;
        file >> nanoseconds;
        sum += nanoseconds * 1e-6;
    }
    return sum;
}

double daemon_mib(int pid, const char* key) {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/status"};
    std::string line;
    while (std::getline(file, line)) {
        if (line.starts_with(key)) {
            return std::strtod(line.c_str() + std::strlen(key), nullptr) / 1024;
        }
    }
    return 0;
}

struct Options {
    std::uint16_t port = 0;
    std::string ticket;
    int nodes = 0;
    int spares = 0;
    int ranks = 0;  // of a node
    int daemon = 0;
    std::string job;
    std::string token;
    int beat_seconds = 0;
    bool paced = true;
};

struct Agent {
    int number = 0;
    Clock::time_point dialed;
    int fd = -1;
    bool upgraded = false;
    bool gone = false;    // left on purpose
    bool silent = false;  // frozen: connected, says nothing
    int first_rank = 0;
    int generation = 0;  // the newest whose START came
    int aborted = 0;     // the newest whose ABORT came
    std::uint64_t event = 0;
    std::string in;
    std::string out;
};

std::int64_t number_in(std::string_view text, std::string_view key) {
    const auto at = text.find(key);
    return at == std::string_view::npos
               ? 0
               : std::strtoll(std::string{text.substr(at + key.size(), 20)}.c_str(), nullptr, 10);
}

class Crowd {
  public:
    explicit Crowd(Options options)
        : options_(std::move(options)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
        agents_.resize(static_cast<std::size_t>(options_.nodes + options_.spares));
        for (std::size_t i = 0; i < agents_.size(); ++i) {
            agents_[i].number = static_cast<int>(i);
        }
    }

    // Everybody calls in; true once every node has START.
    bool cold() {
        const auto began = Clock::now();
        std::size_t next = 0;
        return run_until(
            [this] { return started_ == options_.nodes; }, std::chrono::seconds{60},
            [&] {
                redial(next);
                while (next < agents_.size() &&
                       (!options_.paced ||
                        Clock::now() - began >= lockstep::first_connect_delay(
                                                    static_cast<std::int32_t>(next),
                                                    static_cast<std::int32_t>(agents_.size())))) {
                    dial(agents_[next++]);
                    if (next % 64 == 0) {
                        break;  // and listen in between
                    }
                }
                return next < agents_.size();
            });
    }

    // Every agent has its ABORT and the START of the next generation. `go` is what ends this one.
    // What is measured begins with the first ABORT that comes; in ms.
    double next_generation(const std::function<void()>& go, bool ranks_end,
                           std::chrono::seconds patience = std::chrono::seconds{60}) {
        started_ = 0;
        ranks_end_ = ranks_end;
        first_abort_.reset();
        asked_ = Clock::now();
        go();
        const auto began = Clock::now();
        std::size_t sent = 0;
        if (!run_until([this] { return started_ >= options_.nodes; }, patience,
                       [&] {
                           send_beats(began, sent);
                           return false;
                       })) {
            return -1;
        }
        return ms_since(*first_abort_);
    }
    double until_abort() const {
        return std::chrono::duration<double, std::milli>(*first_abort_ - asked_).count();
    }

    // 1 Hz for everybody, each at its own moment of the second; in ms of the daemon's time.
    void beat(std::chrono::seconds time) {
        const auto began = Clock::now();
        std::size_t sent = 0;
        run_until([&] { return Clock::now() - began >= time; }, time + std::chrono::seconds{1},
                  [&] {
                      send_beats(began, sent);
                      return true;
                  });
    }

    void settle(milliseconds time) {
        const auto began = Clock::now();
        run_until([&] { return Clock::now() - began >= time; }, std::chrono::seconds{60});
    }

    void post(const std::string& path) {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in to = loopback(1, options_.port);
        const std::string text = "POST " + path +
                                 " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(options_.port) +
                                 "\r\nAuthorization: Bearer " + options_.token +
                                 "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 ||
            ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
            std::perror("POST");
            std::exit(1);
        }
        ::shutdown(fd, SHUT_WR);
        posts_.push_back(fd);  // the answer is not waited for
    }

    void leave(std::size_t index, const std::string& farewell) {
        Agent& agent = agents_[index];
        if (!farewell.empty()) {
            say(agent, farewell);
        }
        agent.gone = true;
        ::close(agent.fd);
        agent.fd = -1;
    }
    // By its kernel: the process is gone, nobody says anything.
    void freeze(std::size_t index) { agents_[index].silent = true; }

    void fault(std::size_t index) {
        Agent& agent = agents_[index];
        say(agent, exited(agent, agent.first_rank, 1, false));
    }

    std::uint64_t bytes_received() const { return received_; }
    int refused() const { return refused_; }

  private:
    static sockaddr_in loopback(int last, std::uint16_t port) {
        sockaddr_in out{};
        out.sin_family = AF_INET;
        out.sin_port = htons(port);
        out.sin_addr.s_addr = htonl(0x7F000000U + static_cast<std::uint32_t>(last));
        return out;
    }

    void dial(Agent& agent) {
        agent.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        const int on = 1;
        ::setsockopt(agent.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
        ::setsockopt(agent.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        sockaddr_in from = loopback(2 + agent.number % 64, 0);
        sockaddr_in to = loopback(1, options_.port);
        if (agent.fd < 0 ||
            ::bind(agent.fd, reinterpret_cast<sockaddr*>(&from), sizeof(from)) != 0 ||
            (::connect(agent.fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 &&
             errno != EINPROGRESS)) {
            std::perror("connect");
            std::exit(1);
        }
        agent.upgraded = false;
        agent.dialed = Clock::now();
        agent.in.clear();
        agent.out = "GET /v1/agent HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(options_.port) +
                    "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: bG9ja3N0ZXAtYmVuY2ghIQ==\r\nAuthorization: Bearer " +
                    options_.ticket + "\r\n\r\n";
        epoll_event event{};
        event.events = EPOLLIN | EPOLLOUT | EPOLLET;
        event.data.u32 = static_cast<std::uint32_t>(agent.number);
        ::epoll_ctl(epoll_, EPOLL_CTL_ADD, agent.fd, &event);
    }

    // A text frame under the mask 0, which leaves the bytes as they are.
    static void frame(std::string& out, std::string_view text) {
        out += '\x81';
        if (text.size() < 126) {
            out += static_cast<char>(0x80U | text.size());
        } else {
            out += '\xfe';
            out += static_cast<char>(text.size() >> 8U);
            out += static_cast<char>(text.size() & 0xFFU);
        }
        out.append(4, '\0');
        out += text;
    }
    void say(Agent& agent, std::string_view text) {
        frame(agent.out, text);
        flush(agent);
    }
    void flush(Agent& agent) {
        while (!agent.out.empty()) {
            const ssize_t sent = ::send(agent.fd, agent.out.data(), agent.out.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return;  // EPOLLOUT comes, or EPOLLIN with the end
            }
            agent.out.erase(0, static_cast<std::size_t>(sent));
        }
    }

    // As an agent does (Session::Timing): what has not been answered in 5 s is dialed again. When
    // the queue of connections overflows the kernel drops some that their clients take for open.
    void redial(std::size_t dialed) {
        const auto now = Clock::now();
        if (now - redialed_ < milliseconds{100}) {
            return;
        }
        redialed_ = now;
        for (std::size_t i = 0; i < dialed; ++i) {
            Agent& agent = agents_[i];
            if (!agent.upgraded && now - agent.dialed >= std::chrono::seconds{5}) {
                ::close(agent.fd);
                ++refused_;
                dial(agent);
            }
        }
    }

    void on_event(Agent& agent, std::uint32_t events) {
        if (agent.fd < 0) {
            return;
        }
        if ((events & EPOLLOUT) != 0) {
            flush(agent);
        }
        char room[65'536];
        for (;;) {
            const ssize_t got = ::recv(agent.fd, room, sizeof(room), 0);
            if (got < 0 && errno == EAGAIN) {
                break;
            }
            if (got <= 0) {
                ::close(agent.fd);
                agent.fd = -1;
                if (!agent.upgraded) {
                    ++refused_;
                    dial(agent);  // as an agent does, only at once
                } else if (!agent.gone) {
                    std::fprintf(stderr, "agent %d was cut off\n", agent.number);
                    std::exit(1);
                }
                return;
            }
            received_ += static_cast<std::uint64_t>(got);
            agent.in.append(room, static_cast<std::size_t>(got));
            if (static_cast<std::size_t>(got) < sizeof(room)) {
                break;
            }
        }
        parse(agent);
    }

    void parse(Agent& agent) {
        std::string_view left{agent.in};
        if (!agent.upgraded) {
            const auto end = left.find("\r\n\r\n");
            if (end == std::string_view::npos) {
                return;
            }
            if (!left.starts_with("HTTP/1.1 101")) {
                agent.in.clear();  // too many at once: the end of the connection follows
                return;
            }
            agent.upgraded = true;
            left.remove_prefix(end + 4);
            say(agent, R"({"type":"hello","protocol":1,"node_rank":)" +
                           std::to_string(agent.number) + R"(,"node":"node)" +
                           std::to_string(agent.number) + R"(","pid":4242,"incarnation":"i)" +
                           std::to_string(agent.number) +
                           R"(","allocation":"1","version":"bench","generation":0,)"
                           R"("ranks_running":false})");
        }
        for (;;) {
            std::size_t head = 2;
            if (left.size() < head) {
                break;
            }
            const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(left[i]); };
            std::uint64_t size = byte(1);
            if (size >= 126) {
                const std::size_t more = size == 126 ? 2 : 8;
                head += more;
                if (left.size() < head) {
                    break;
                }
                size = 0;
                for (std::size_t i = 0; i < more; ++i) {
                    size = size << 8U | byte(2 + i);
                }
            }
            if (left.size() < head + size) {
                break;
            }
            const unsigned kind = byte(0) & 0x0FU;
            if (kind == 1) {
                on_text(agent, left.substr(head, size));
            } else if (kind == 9 && size < 126) {  // ping
                agent.out.append({'\x8a', static_cast<char>(0x80U | size), 0, 0, 0, 0});
                agent.out += left.substr(head, size);
                flush(agent);
            }
            left.remove_prefix(head + size);
            if (agent.fd < 0) {
                return;
            }
        }
        agent.in.erase(0, agent.in.size() - left.size());
    }

    static bool is(std::string_view text, std::string_view type) {
        return text.find(type) != std::string_view::npos;
    }
    void on_text(Agent& agent, std::string_view text) {
        if (is(text, R"("type":"ack")") || agent.silent) {
            return;
        }
        const std::string generation = std::to_string(number_in(text, R"("generation":)"));
        if (is(text, R"("type":"welcome")")) {
            join(agent, 0);
        } else if (is(text, R"("type":"world")")) {
            agent.first_rank = static_cast<int>(number_in(text, R"("first_rank":)"));
            say(agent, R"({"type":"ready","generation":)" + generation + "}");
        } else if (is(text, R"("type":"start")")) {
            start(agent, generation);
        } else if (is(text, R"("type":"abort")")) {
            abort(agent, generation);
        } else if (is(text, R"("type":"fenced")")) {
            std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
            agent.gone = true;
        }
    }
    void send_beats(Clock::time_point began, std::size_t& sent) {
        const double due = ms_since(began) * 1e-3 * static_cast<double>(agents_.size());
        for (; static_cast<double>(sent) < due; ++sent) {
            Agent& agent = agents_[sent % agents_.size()];
            if (agent.fd >= 0 && !agent.silent) {
                say(agent, R"({"type":"beat","time":1700000000000,"generation":)" +
                               std::to_string(agent.generation) + R"(,"dropped_rows":0})");
            }
        }
    }
    void join(Agent& agent, int left) {
        say(agent, R"({"type":"join","address":"127.0.0.1","port":29500,"cores":8,"gpus":8,)"
                   R"("memory_mb":1000,"generation":)" +
                       std::to_string(left) + "}");
    }
    void start(Agent& agent, const std::string& generation) {
        agent.generation = std::atoi(generation.c_str());
        ++started_;
        std::string text = R"({"type":"started","generation":)" + generation + R"(,"ranks":[)";
        for (int rank = 0; rank < options_.ranks; ++rank) {
            text += (rank == 0 ? "{\"rank\":" : ",{\"rank\":") +
                    std::to_string(agent.first_rank + rank) + ",\"pid\":1000}";
        }
        say(agent, text + "]}");
    }
    std::string exited(Agent& agent, int rank, int code, bool stopped) {
        return R"({"type":"exited","event":)" + std::to_string(++agent.event) +
               R"(,"generation":)" + std::to_string(agent.generation) + R"(,"rank":)" +
               std::to_string(rank) + R"(,"exit_code":)" + std::to_string(code) + R"(,"signal":)" +
               (code < 0 ? "15" : "0") + R"(,"stopped":)" + (stopped ? "true" : "false") +
               R"(,"oom":false,"time":1700000000000,"log_tail":""})";
    }
    void abort(Agent& agent, const std::string& generation) {
        if (agent.aborted == std::atoi(generation.c_str())) {
            return;
        }
        agent.aborted = std::atoi(generation.c_str());
        if (!first_abort_) {
            first_abort_ = Clock::now();
        }
        if (ranks_end_) {
            for (int rank = 0; rank < options_.ranks; ++rank) {
                frame(agent.out, exited(agent, agent.first_rank + rank, -1, true));
            }
            frame(agent.out, R"({"type":"done","event":)" + std::to_string(++agent.event) +
                                 R"(,"generation":)" + generation + "}");
        }
        join(agent, agent.aborted);
    }

    // `step`: true = it wants to be called again at once.
    template <class Until>
    bool run_until(
        const Until& until, std::chrono::seconds patience,
        const std::function<bool()>& step = [] { return false; }) {
        const auto end = Clock::now() + patience;
        std::vector<epoll_event> events(512);
        while (!until()) {
            if (Clock::now() > end) {
                return false;
            }
            const bool again = step();
            const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()),
                                           again ? 1 : 20);
            for (int i = 0; i < count; ++i) {
                const auto& event = events[static_cast<std::size_t>(i)];
                on_event(agents_[event.data.u32], event.events);
            }
        }
        return true;
    }

    Options options_;
    int epoll_;
    std::vector<Agent> agents_;
    int started_ = 0;
    int refused_ = 0;
    bool ranks_end_ = false;
    std::uint64_t received_ = 0;
    Clock::time_point asked_;
    Clock::time_point redialed_;
    std::optional<Clock::time_point> first_abort_;
    std::vector<int> posts_;
};

void print(const char* name, double value, const char* unit) {
    std::printf("%s %.3f %s\n", name, value, unit);
    std::fflush(stdout);
}

int measure(const Options& options) {
    Crowd crowd{options};
    const auto cpu = [&] { return daemon_cpu(options.daemon); };
    double before = cpu();
    const auto began = Clock::now();
    if (!crowd.cold()) {
        std::fprintf(stderr, "not every agent got START\n");
        return 1;
    }
    print("cold", ms_since(began), "ms");
    print("cold_cpu", cpu() - before, "ms");
    print("cold_refused", crowd.refused(), "connections");
    print("cold_received", static_cast<double>(crowd.bytes_received()) / 1024 / options.nodes,
          "KiB/agent");
    crowd.settle(milliseconds{1500});
    for (const bool ranks_end : {false, true}) {
        const std::string name = ranks_end ? "next_with_ends" : "next";
        before = cpu();
        const double took = crowd.next_generation(
            [&] { crowd.post("/v1/jobs/" + options.job + "/restart"); }, ranks_end);
        if (took < 0) {
            std::fprintf(stderr, "no next generation\n");
            return 1;
        }
        print(name.c_str(), took, "ms");
        print((name + "_asked").c_str(), crowd.until_abort(), "ms");
        print((name + "_cpu").c_str(), cpu() - before, "ms");
        crowd.settle(milliseconds{1500});
    }
    if (options.beat_seconds > 0) {
        before = cpu();
        crowd.beat(std::chrono::seconds{options.beat_seconds});
        print("beat_core", (cpu() - before) / 10 / options.beat_seconds, "%");
    }
    before = cpu();
    if (crowd.next_generation([&] { crowd.fault(1); }, false) < 0) {
        std::fprintf(stderr, "no generation after a rank's end\n");
        return 1;
    }
    print("rank_detected", crowd.until_abort(), "ms");
    if (options.spares >= 2) {
        crowd.beat(std::chrono::seconds{2});
        const std::string bye = R"({"type":"bye","event":1000,"reason":"a bench"})";
        if (crowd.next_generation([&] { crowd.leave(2, bye); }, false) < 0) {
            std::fprintf(stderr, "no generation after BYE\n");
            return 1;
        }
        print("bye_detected", crowd.until_abort(), "ms");
        crowd.beat(std::chrono::seconds{2});
        if (crowd.next_generation([&] { crowd.freeze(3); }, false) < 0) {
            std::fprintf(stderr, "no generation after an agent fell silent\n");
            return 1;
        }
        print("silent_detected", crowd.until_abort(), "ms");
    }
    print("rss", daemon_mib(options.daemon, "VmRSS:"), "MiB");
    print("rss_most", daemon_mib(options.daemon, "VmHWM:"), "MiB");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 10) {
        std::fprintf(stderr, "usage: see the top of bench_agents.cpp\n");
        return 2;
    }
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    Options options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    options.ticket = argv[2];
    options.nodes = std::atoi(argv[3]);
    options.spares = std::atoi(argv[4]);
    options.ranks = std::atoi(argv[5]);
    options.daemon = std::atoi(argv[6]);
    options.job = argv[7];
    options.token = argv[8];
    options.beat_seconds = std::atoi(argv[9]);
    options.paced = argc < 11 || std::string_view{argv[10]} != "unpaced";
    return measure(options);
}
