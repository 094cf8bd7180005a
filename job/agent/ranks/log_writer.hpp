// Writes the logs of a node's ranks on a thread of its own, so that a file system that hangs does
// not silence the agent: in order, a megabyte of each waits at most. Who has more to write waits
// kPatience for room, which slows a rank that prints faster than its log is written, and loses what
// finds none (LogFile::miss()). After a wait in vain nobody waits before something is written
// again. One thread, the agent's; neither it nor the end of the process waits for one that hangs.
#pragma once

#include "job/agent/ranks/log_file.hpp"
#include "job/async/loose_thread.hpp"
#include "job/base/clock.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

namespace lockstep {

class LogWriter {
  public:
    static constexpr std::size_t kQueueBytes = 1U << 20U;  // of each log
    // Well below limits::kAgentSilence, after which a node is lost.
    static constexpr std::chrono::milliseconds kPatience{1'000};

    explicit LogWriter(std::chrono::milliseconds patience = kPatience);
    // Waits a second at most for what is to be written; see LooseThread::abandoned().
    ~LogWriter();
    LogWriter(const LogWriter&) = delete;
    LogWriter& operator=(const LogWriter&) = delete;

    // The file is closed on that thread, too: a close may wait for the file server.
    std::shared_ptr<LogFile> share(std::unique_ptr<LogFile> file);
    void append(const std::shared_ptr<LogFile>& file, std::string_view bytes, UnixMillis now);
    // LogFile::end(), behind all of it. The bytes that are still to be written.
    std::size_t end(const std::shared_ptr<LogFile>& file);

  private:
    struct Shared;
    bool start();
    static void serve(const std::shared_ptr<Shared>& shared);

    const std::chrono::milliseconds patience_;
    std::shared_ptr<Shared> shared_;
    std::optional<LooseThread> thread_;  // once there is a log
    bool warned_ = false;
};

}  // namespace lockstep
