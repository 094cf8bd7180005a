// TLS handshakes beside the control thread: a few threads of low priority do their arithmetic, and
// the line in front of them gives every remote address its turn, so that one that keeps calling
// holds up itself. Control thread, but for the workers themselves; outlives the turns.
#pragma once

#include "job/async/asio.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep {

class Handshakes {
  public:
    using Instant = std::chrono::steady_clock::time_point;

    struct Caps {
        std::size_t all = 0;      // with the workers at a time
        std::size_t address = 0;  // of these, of one remote address
        // Whoever takes longer waits for the peer, not for a processor: its turn is another's.
        std::chrono::milliseconds turn{0};
    };

    Handshakes(net::io_context& io, Caps caps) : io_(io), caps_(caps) {}
    ~Handshakes();
    Handshakes(const Handshakes&) = delete;
    Handshakes& operator=(const Handshakes&) = delete;

    // One connection's turn: waits for it, has it until release() or the end of its time. Destroyed
    // only when no connection waits in it.
    class Turn {
      public:
        // `key`: as admission_key() makes it.
        Turn(Handshakes& of, const net::ip::address& key) : of_(of), key_(key) {}
        ~Turn() { release(); }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

        // False: cancelled.
        Task<bool> wait();
        // Ends wait() and every later one.
        void cancel();
        // Gives the turn to the next in line.
        void release();

      private:
        friend class Handshakes;
        Handshakes& of_;
        net::ip::address key_;
        std::optional<net::steady_timer> timer_;  // while it waits
        bool cancelled_ = false;
        bool has_ = false;
        Instant since_{};
        std::list<Turn*>::iterator at_;  // in busy_
    };

    // Starts the threads at the first call. Throws std::system_error if there may be none.
    net::io_context& workers();
    // From time to time: ends the turns that have taken too long.
    void expire(Instant now);
    std::size_t waiting() const { return waiting_; }
    std::size_t busy() const { return busy_.size(); }

  private:
    struct Line {
        std::deque<Turn*> waiting;
        std::size_t busy = 0;
        bool queued = false;  // in next_
    };
    void grant(Line& line, Turn& turn);
    void put_in_line(const net::ip::address& key, Line& line);
    void grant_waiting();
    void drop_if_empty(const net::ip::address& key);

    net::io_context& io_;
    Caps caps_;
    std::map<net::ip::address, Line> lines_;
    std::deque<net::ip::address> next_;  // addresses with somebody who may go in, in turn
    std::list<Turn*> busy_;              // oldest first
    std::size_t waiting_ = 0;
    net::io_context work_io_;
    std::optional<net::executor_work_guard<net::io_context::executor_type>> work_;
    std::vector<std::thread> threads_;
};

}  // namespace lockstep
