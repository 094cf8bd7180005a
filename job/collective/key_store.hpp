// Where ranks leave their addresses for each other while a communicator is being made.
#pragma once

#include "job/base/result.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace lockstep {

// Implementations say which threads may call; each key is set once and never changes.
class KeyStore {
  public:
    virtual ~KeyStore() = default;
    virtual Status set(const std::string& key, std::string_view value) = 0;
    // Waits until the key exists; timed_out if it does not in time.
    virtual Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace lockstep
