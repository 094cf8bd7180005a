// What one user may submit: so many jobs that are not over, and so many a minute, with a bucket of
// one minute's. A sweep counts by its jobs; one of more than a minute's takes a full bucket, and
// what it took beyond is made up for before the next. Control thread; no I/O, no clock.
#pragma once

#include "job/base/result.hpp"

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace lockstep {

class UserQuotas {
  public:
    using Instant = std::chrono::steady_clock::time_point;

    struct Caps {
        std::size_t jobs = 0;        // that are not over; 0 = no limit
        std::size_t per_minute = 0;  // 0 = no limit
    };

    // Jobs that are being stored; what was taken for them is given back unless they are kept.
    // The UserQuotas outlives it.
    class Hold {
      public:
        Hold(UserQuotas& of, std::string user, std::size_t count, bool metered);
        Hold(Hold&& other) noexcept;
        Hold& operator=(Hold&&) = delete;
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;
        ~Hold();
        // They are submitted: begun() is said of each next.
        void keep();

      private:
        UserQuotas* of_;
        std::string user_;
        std::size_t count_;
        bool metered_;
    };

    // exhausted, with when to try again: the user has too many, or submits too fast.
    Result<Hold> take(const std::string& user, std::size_t count, Caps caps, Instant now);
    // A job of the user's that is not over, and the end of one.
    void begun(const std::string& user);
    void ended(const std::string& user);
    std::size_t unfinished(const std::string& user) const;

  private:
    struct Account {
        std::size_t jobs = 0;     // not over
        std::size_t storing = 0;  // held
        double room = 0;          // jobs that may come now; < 0: a sweep took more
        Instant since{};          // room is of then
        bool metered = false;     // room and since mean something
    };
    static void refill(Account& account, std::size_t per_minute, Instant now);
    void give_back(const std::string& user, std::size_t count, bool metered);

    std::map<std::string, Account> accounts_;  // of users that have submitted in this daemon's life
};

}  // namespace lockstep
