// Writes this process's log (job/base/log.hpp) to stderr on a thread of its own while it lives: the
// agent's stderr is a file in the attempt directory, and a file server that hangs must not hold up
// the thread that answers lockstepd and the ranks. At most kQueueBytes wait; what finds no room is
// lost, and the log says how many lines, in their place. After fork(2), before other threads.
#pragma once

#include "job/async/loose_thread.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

namespace lockstep {

class OwnLog {
  public:
    static constexpr std::size_t kQueueBytes = 256U << 10U;
    static constexpr std::chrono::milliseconds kFlushWait{1'000};

    // `fd`: where to, not owned. Where there is no thread to be had the log stays as it was.
    explicit OwnLog(int fd);
    // Waits kFlushWait at most for what is to be written. In time: the log is as before. Else what
    // is logged from now on is lost with the rest, for it would wait, too.
    ~OwnLog();
    OwnLog(const OwnLog&) = delete;
    OwnLog& operator=(const OwnLog&) = delete;

  private:
    struct Queue;
    const std::shared_ptr<Queue> queue_;
    std::optional<LooseThread> thread_;
};

}  // namespace lockstep
