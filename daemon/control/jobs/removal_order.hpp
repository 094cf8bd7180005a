// Which job goes next where jobs that are over take too much together: the oldest of the user who
// has most, of those who have one that may go. What others keep and may not go counts, so that the
// bound holds. No I/O; any thread, one at a time.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/ids.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class RemovalOrder {
  public:
    struct Place {
        JobId job{};
        std::string user{};
        UnixMillis finished_at = 0;
        std::int64_t bytes = 0;
    };

    // From the oldest to the newest. One that may not go counts, and is never next.
    void add(Place place, bool may_go);
    // Each is given once; nothing if none is left that may go. Of users who have the same the
    // oldest job.
    std::optional<Place> next();
    // What next() gave has gone: its bytes count no more.
    void gone(const Place& place);
    std::int64_t bytes() const { return bytes_; }

  private:
    struct OfUser {
        std::int64_t bytes = 0;
        std::vector<Place> may_go{};
        std::size_t given = 0;  // of them
    };
    std::map<std::string, OfUser> users_;
    std::int64_t bytes_ = 0;
};

}  // namespace lockstep
