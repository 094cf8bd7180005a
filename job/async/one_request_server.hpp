// A server for few words between processes of one node: one HTTP/1.1 request a connection, which is
// closed with the answer. Bounded in connections, in the time of each, and in the bytes of all
// bodies that are on their way, which are counted before they come.
//
// One thread, the TaskGroup's. The coroutines share the state, so the object may be destroyed at
// any time: no handler is called from then on, and every connection is closed. The TaskGroup must
// outlive them.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/request_parser.hpp"
#include "job/async/task_group.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

class OneRequestServer {
  public:
    struct Caps {
        std::size_t connections = 0;
        std::size_t head_bytes = 0;
        std::size_t body_bytes = 0;     // of one
        std::size_t transit_bytes = 0;  // of all that are on their way
        std::chrono::milliseconds patience{0};
    };
    struct Answer {
        int status = 200;
        std::shared_ptr<const std::string> body{};  // null: empty
        std::string_view content_type{};            // of a literal; "" = none is said
    };
    struct Handlers {
        // Who is served, in log lines: "the rendezvous for the ranks".
        std::string name;
        // Whether a new connection may speak.
        std::function<bool(int fd)> admits = [](int) { return true; };
        // Of a head that is there: 200, or the status to refuse it with.
        std::function<int(const RequestParser&)> judge = [](const RequestParser&) { return 200; };
        // Of a whole request.
        std::function<Answer(RequestParser&)> answer;
        // It was refused with 413 for its size, or with 503 for what else is on its way.
        std::function<void(const RequestParser&, int status)> left_out = [](const RequestParser&,
                                                                            int) {};
    };
    struct Totals {
        std::size_t connections = 0;  // open
        std::size_t transit = 0;      // bytes of bodies that are on their way
        std::uint64_t answered = 0;   // by `answer`, with 200 or 404
        std::uint64_t refused = 0;
    };

    // `acceptor` listens.
    OneRequestServer(TaskGroup& tasks, tcp::acceptor acceptor, Caps caps, Handlers handlers);
    ~OneRequestServer();
    OneRequestServer(const OneRequestServer&) = delete;
    OneRequestServer& operator=(const OneRequestServer&) = delete;

    std::uint16_t port() const;  // 0: it is closed
    Totals totals() const;

  private:
    struct Server;
    std::shared_ptr<Server> server_;
};

}  // namespace lockstep
