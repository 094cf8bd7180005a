// The addresses of a host, asked for on a thread of its own. Asio's resolver asks on one that the
// io_context waits for when it ends: a name server that is silent for a minute would hold up the
// end of the process as long. One lookup an object. The executor's thread only; it must outlive the
// coroutine that waits. See getaddrinfo(3).
#pragma once

#include "job/async/asio.hpp"
#include "job/async/loose_thread.hpp"
#include "job/base/result.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class NameLookup {
  public:
    explicit NameLookup(const net::any_io_executor& executor);
    // The thread that still asks is left alone (LooseThread::abandoned()).
    ~NameLookup();
    NameLookup(const NameLookup&) = delete;
    NameLookup& operator=(const NameLookup&) = delete;

    // At least one address; numeric ones without a thread. unavailable: why there is none, or
    // cancel(). Has no deadline of its own.
    Task<Result<std::vector<tcp::endpoint>>> run(std::string host, std::string port);
    void cancel();

  private:
    struct Shared;
    std::shared_ptr<net::steady_timer> timer_;
    bool cancelled_ = false;
    std::shared_ptr<Shared> shared_;
    std::optional<LooseThread> thread_;
};

}  // namespace lockstep
