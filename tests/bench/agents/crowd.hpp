// The agents of bench_agents: a WebSocket client small enough for 12,288 copies in one process.
#pragma once

#include "job/agent/agent_session.hpp"
#include "tests/bench/agents/simulated_agent.hpp"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::bench {

using std::chrono::milliseconds;

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

}  // namespace lockstep::bench
