// Whose name a scheduler acts in, where it does not act in lockstepd's own: each user hands over a
// credential that is theirs alone and ends soon. Control thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/base/result.hpp"

#include <optional>
#include <string>

namespace lockstep {

class Identities {
  public:
    virtual ~Identities() = default;
    // Taken into use at once, in the place of the one before. invalid: it cannot be one, it is
    // another user's, or it has ended. internal: it cannot be kept.
    virtual Status put(const std::string& user, const std::string& credential) = 0;
    // Until when the user's is good; 0 = it does not say. None: there is none.
    virtual std::optional<UnixMillis> good_until(const std::string& user) const = 0;
    // What was handed over before and waits goes on once there is a new one. None there: no error.
    virtual Status forget(const std::string& user) = 0;
};

}  // namespace lockstep
