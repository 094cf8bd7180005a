// Follows a rank's log: what is there, then what comes, until the job is over and its log is read:
// a rank that has ended may be started again. The next attempts' logs follow the old one's, each in
// turn and on a line of its own, unless one attempt was asked for: then until that is over. Control
// thread; files are read away from it (folder_reads.hpp), and one that hangs is asked for again
// until it answers.
#pragma once

#include "daemon/control/base/control.hpp"
#include "daemon/http/base/message.hpp"
#include "daemon/http/logs/rank_log_reader.hpp"
#include "daemon/http/routes/routes.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

// How long until the next look at a log that has not grown for so long.
std::chrono::milliseconds look_pause(std::chrono::milliseconds quiet);

class LogFollower final : public BodyStream {
  public:
    struct Asked {
        std::int32_t rank = 0;
        std::int32_t attempt = 0;  // 0: all from the newest on
        std::int32_t first = 0;    // that is this one, as the answer says; 0: none has begun yet
        std::int64_t offset = 0;   // where it begins, in bytes
        // Or so many lines before the end of what is there when it is opened.
        std::optional<std::int64_t> tail{};
    };
    LogFollower(RouteContext context, Caller caller, std::string id, Asked asked);

    Task<std::optional<std::string>> next() override;
    void close() override;

  private:
    struct Place {  // as far as the log has been given
        std::string path;
        std::shared_ptr<const RankLogReader> reader;  // none: there is no file yet
        std::int64_t offset = 0;
        std::optional<std::int64_t> tail;
    };
    struct Piece {
        Place next;
        std::string text;
        bool begun_cut = false;  // was opened now, within a line
    };
    struct Now {
        LogPlace place;
        bool newer = false;  // there is a newer attempt: nothing comes in this one's any more
    };
    // Where to look now: at the first attempt that is not read to its end.
    Task<Result<Now>> place_now();
    // What comes at `at` of the log that is at `path`, or `instead` while there is no such file.
    // Blocking, any thread.
    static Piece read_piece(Place at, const std::string& path, const std::string& instead);
    // The same, and goes on there; empty: nothing now. Nothing: it could not be read in time.
    Task<std::optional<std::string>> read_on(std::string path, std::string instead);

    RouteContext context_;
    net::steady_timer timer_;
    Caller caller_;
    std::string id_;
    Asked asked_;
    Place at_;
    std::optional<std::int32_t> passed_;  // the newest attempt that is read to its end
    std::string given_from_;              // folder of the attempt whose bytes were given last
    bool cut_ = false;                    // they end, or this began, within a line
    std::chrono::milliseconds quiet_{0};  // looked for so long since anything came
    bool closed_ = false;
};

}  // namespace lockstep
