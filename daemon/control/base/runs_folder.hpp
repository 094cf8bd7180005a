// Whether lockstepd can make files in the runs folder: no attempt begins without one, and its mode
// or its file system may change at any time. Asked on a thread of its own, because a file system
// that hangs would hang whoever asks. Control thread only.
#pragma once

#include "job/async/asio.hpp"
#include "job/async/side_thread.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <filesystem>
#include <string>

namespace lockstep {

// Blocking: makes a file there, writes to it and removes it.
Status can_write_into(const std::filesystem::path& folder);

class RunsFolder {
  public:
    struct Periods {
        std::chrono::milliseconds well = std::chrono::seconds{30};
        std::chrono::milliseconds unwell = std::chrono::seconds{2};
    };

    RunsFolder(net::io_context& io, std::filesystem::path folder)
        : folder_(std::move(folder)), asking_(io), timer_(io) {}

    // Looks now and then every so often, until halt(). Each change is told in the log, once.
    Task<void> watch(Periods periods);
    void halt();
    // Somebody could not make a file there: it is looked at now.
    void doubt();
    // Why no file can be made there; "" while one can.
    const std::string& problem() const { return problem_; }

  private:
    void note(const Status& found);

    std::filesystem::path folder_;
    std::string problem_;
    SideThread asking_;
    net::steady_timer timer_;
    bool doubted_ = false;
    bool ending_ = false;
};

}  // namespace lockstep
