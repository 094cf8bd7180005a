// lockstepd's end of lockstep-exec (../exec/order.hpp): one order a connection. Blocking, so called
// away from the control thread; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"
#include "scheduler-integration/exec/exec_limits.hpp"
#include "scheduler-integration/exec/order.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace lockstep {

// What an order says; the fields that its verb does not take stay as they are.
struct ExecOrder {
    exec::Verb verb = exec::Verb::query;
    exec::What what = exec::What::none;
    std::uint32_t attempt = 0;
    std::uint32_t point = 0;
    bool nil = false;
    std::int64_t slurm_job = 0;
    std::int64_t since = 0;
    std::string job{}, name{}, exclude{}, time{}, fence{}, file{}, ticket{};
    std::string credential{}, statement{};
};

struct ExecReply {
    exec::Status status = exec::Status::failed;
    std::string message;  // refused, failed; and what a query about lockstep-exec itself answers
    int exit = 0;
    int signal = 0;
    std::string out;
    std::string err;
    UniqueFd descriptor;
};

class ExecClient {
  public:
    explicit ExecClient(std::string socket, std::size_t at_once = limits::kExecCallsAtOnce)
        : socket_(std::move(socket)), at_once_(at_once) {}
    // unavailable: nobody listens, it is not root who does, or as many calls as may be at once have
    // kept this one waiting for its whole patience; corrupt: no answer in its form; timed_out. With
    // the last two, what was asked for may have been done. Ending the connection ends Slurm's
    // program at the other end. The patience begins with the connection.
    Result<ExecReply> call(const ExecOrder& order, std::chrono::milliseconds patience);
    // Every call ends now, and so does each one after it.
    void stop();
    const std::string& socket() const { return socket_; }

  private:
    Status take_place(std::chrono::milliseconds patience);
    void leave_place();
    Result<ExecReply> call_now(const ExecOrder& order, std::chrono::milliseconds patience);

    std::string socket_;
    std::size_t at_once_;
    std::mutex mutex_;  // guards those below
    std::condition_variable freed_;
    std::size_t calls_ = 0;
    std::set<int> open_;
    bool stopped_ = false;
};

}  // namespace lockstep
