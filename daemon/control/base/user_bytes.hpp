// What each user's jobs take on disk: their specifications in the store, from their submission on,
// and their folders as they were last measured. Sums of what it is told: nothing is read here.
// Control thread; no I/O, no clock.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

class UserBytes {
  public:
    struct Folder {
        std::int64_t bytes = 0;
        bool whole = true;  // false: the file system did not give all of it
    };

    // A job whose specification takes so many bytes. Of one that is known nothing changes.
    void add(const std::string& job, const std::string& user, std::int64_t specification);
    // Its folder takes so many bytes now, or if that is not all of it, no less than was known. A
    // job that is not known was removed meanwhile: nothing.
    void measured(const std::string& job, const Folder& folder);
    // It is gone, and what it took.
    void removed(const std::string& job);
    std::int64_t of(const std::string& user) const;
    // The job behind this one, in the order of their ids; "" = there is none. From "" on: all.
    std::string next(const std::string& job) const;
    // exhausted, without a time to try again: the user's jobs take `bound` bytes or more, and
    // nothing but their removal changes that. 0 = no bound.
    Status check(const std::string& user, std::int64_t bound) const;

  private:
    struct OfJob {
        std::string user;
        std::int64_t specification = 0;
        std::int64_t folder = 0;
    };
    std::map<std::string, OfJob> jobs_;
    std::map<std::string, std::int64_t> users_;  // sums of jobs_
};

}  // namespace lockstep
