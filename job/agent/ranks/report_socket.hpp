// The Unix SEQPACKET sockets that ranks report to: one listening socket per rank, so that which
// rank speaks follows from the socket and never from the message. Agent thread only.
#pragma once

#include "job/async/task_group.hpp"
#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// The socket of one rank. Its coroutines share their state, so the object may be destroyed while
// they unwind; they call the handlers only until close().
class ReportSocket {
  public:
    struct Handlers {
        // One message; `connection` is what answer() takes.
        std::function<void(std::uint64_t connection, std::string_view message)> message;
        // A message of `size` bytes was too large to be read; `head` is how it began.
        std::function<void(std::uint64_t connection, std::size_t size, std::string_view head)>
            too_large;
    };

    // Replaces a stale socket at `path`. `tasks` must outlive the coroutines it is given.
    static Result<std::unique_ptr<ReportSocket>> listen(TaskGroup& tasks, const std::string& path,
                                                        Handlers handlers);
    ~ReportSocket();
    ReportSocket(const ReportSocket&) = delete;
    ReportSocket& operator=(const ReportSocket&) = delete;

    // The process that opened the connection, as this process sees it; 0: of another process
    // namespace, or the connection is gone.
    std::int64_t peer(std::uint64_t connection) const;
    // The descriptor that came with the message that is being handled; empty: none did.
    UniqueFd take_descriptor();
    // Sends an answer; never blocks. A connection that does not read its answers is closed.
    // `instead` is sent when the message is larger than the socket's buffer (net.core.wmem_max).
    void answer(std::uint64_t connection, std::string message, std::string instead = {});
    // Reads everything that was sent so far: called when the rank has ended, so that what it
    // reported last is not lost.
    void drain();
    void close();

  private:
    struct State;
    explicit ReportSocket(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
};

}  // namespace lockstep
