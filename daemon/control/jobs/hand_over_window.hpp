// How many jobs are with the scheduler, and whether one more of a user may go there. The window is
// everybody's; whoever has less than a small share of it there may go beyond it, so that the many
// jobs of one, which may wait there for days, keep nobody else's out of the scheduler's sight,
// whose priorities decide. Jobs that wait there for a person, a time or another job are *aside*:
// they take no place, up to as many of one user as the window has. Control thread; no I/O.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace lockstep {

class HandOverWindow {
  public:
    void set_size(std::size_t jobs);
    // Whether one more of the user's may go.
    bool takes(const std::string& user) const;
    void enter(const std::string& job, const std::string& user);
    // Nothing if it has not entered.
    void set_aside(const std::string& job, bool aside);
    void leave(const std::string& job);
    // Places that are taken.
    std::size_t taken() const { return taken_; }

  private:
    struct Share {
        std::size_t there = 0;  // those aside not among them
        std::size_t aside = 0;
    };
    struct Place {
        std::string user;
        bool aside = false;
    };
    std::size_t places(const Share& share) const;
    void count(const Place& place, bool in);

    std::size_t size_ = 0;
    std::size_t taken_ = 0;
    std::map<std::string, Place> jobs_;
    std::map<std::string, Share> users_;  // none is empty
};

}  // namespace lockstep
