// Who changed what: one line of JSON for each request that changes something and for each token
// that is refused, appended to a file. Lines are written by a thread of its own, so that a disk
// that stands still does not hold the control thread up; the file is opened anew for each batch of
// them, so that it may be moved away at any time.
//
// A line is written once its request has been answered: after a kill the last lines may be missing
// (the event log has the change). All calls are the control thread's. The clock outlives it.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/json.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace lockstep {

struct AuditEntry {
    std::string user;     // "" = no token was sent, or an unknown one
    std::string token;    // its id
    std::string session;  // of the web page; "" = none
    std::string remote;   // address of the peer
    std::string operation;
    std::string path;
    std::string owner{};  // of the token that is to be revoked; "" = of none
};

// Whose a refused token was, and which; both empty: nobody's.
struct AuditOwner {
    std::string user{};
    std::string token{};
};

class AuditLog {
  public:
    // `lost` gets the number of lost lines, on the control thread or the log's own.
    AuditLog(std::filesystem::path file, const Clock& clock,
             std::function<void(std::size_t)> lost = {});
    ~AuditLog();  // writes what waits, if the disk takes it
    AuditLog(const AuditLog&) = delete;
    AuditLog& operator=(const AuditLog&) = delete;

    // A request that changes something was answered with `status`, of which 400 and above have
    // changed nothing; `made`: the path of what it made, "" if nothing.
    void answered(const AuditEntry& entry, int status, std::string_view made);
    // A token, or an agent's ticket, that is not good; `owner`: of one that was.
    void refused(std::string_view what, const std::string& remote, const std::string& path,
                 const AuditOwner& owner = {});
    // Waits until all lines so far are in the file, or were tried: false.
    bool flush();

  private:
    void put(std::string line);
    void run();
    bool append(const std::string& text) const;

    const std::filesystem::path file_;
    const Clock& clock_;
    const std::function<void(std::size_t)> lost_;
    // A limit, so that clients cannot fill the disk with refused requests.
    struct Budget {
        double most = 0;
        double room = 0;  // lines that may be written now; one more a second
        std::chrono::steady_clock::time_point since{};
        std::uint64_t unwritten = 0;  // since the last that was written
    };
    // Whether a line may be written; then `line` says how many were not.
    bool take(Budget& budget, Json& line) const;
    Budget refusals_;
    Budget failures_;

    std::mutex mutex_;  // guards the rest
    std::condition_variable wake_;
    std::condition_variable written_;
    std::string waiting_;
    std::size_t lines_ = 0;  // in waiting_
    bool writing_ = false;
    bool failed_ = false;  // the last batch, which waits to be tried again
    bool now_ = false;     // somebody waits for it
    bool stopping_ = false;
    std::uint64_t tries_ = 0;  // batches written, or not
    std::thread thread_;
};

}  // namespace lockstep
