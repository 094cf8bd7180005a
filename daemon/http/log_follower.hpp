// Follows a rank's log: what is there, then what comes, until the rank has ended and its log is
// read. A new attempt's log follows the old one's. Control thread.
#pragma once

#include "daemon/control/control.hpp"
#include "daemon/http/message.hpp"
#include "daemon/http/rank_log_reader.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

class LogFollower final : public BodyStream {
  public:
    // Begins at `offset`, or `tail` lines before the end of what is there when it is opened.
    LogFollower(net::io_context& io, Control& control, Caller caller, std::string id,
                std::int32_t rank, std::int64_t offset, std::optional<std::int64_t> tail);

    Task<std::optional<std::string>> next() override;
    void close() override;

  private:
    // Opens the log that `place` names if it is not the one in hand.
    void change_to(const LogPlace& place);
    std::string read_some();

    net::steady_timer timer_;
    Control& control_;
    Caller caller_;
    std::string id_;
    std::int32_t rank_;
    std::int64_t offset_;
    std::optional<std::int64_t> tail_;
    std::string path_;
    std::optional<RankLogReader> reader_;
    bool closed_ = false;
};

}  // namespace lockstep
