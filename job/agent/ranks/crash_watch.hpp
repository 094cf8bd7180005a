// When a rank's output last spoke of a crash: the moment at which a traceback, or what a C++
// program or the interpreter says when it dies, began. One per rank, agent thread only. A gigabyte
// may pass through it.
#pragma once

#include "job/base/clock.hpp"

#include <string>
#include <string_view>

namespace lockstep {

class CrashWatch {
  public:
    // The next piece of output, read at `now`.
    void feed(std::string_view bytes, UnixMillis now);
    // 0: never. Words that follow each other within a second are one crash: an exception is printed
    // after the one it came from.
    UnixMillis at() const { return at_; }

  private:
    std::string end_;  // of the last piece: a word may be cut in two
    UnixMillis at_ = 0;
    UnixMillis newest_ = 0;
};

}  // namespace lockstep
