// Keys shared by the threads of one process: several ranks in one process, and one rank alone.
// Any thread; must outlive the calls.
#pragma once

#include "job/collective/key_store.hpp"

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

class MemoryKeyStore final : public KeyStore {
  public:
    Status set(const std::string& key, std::string_view value) override;
    Result<std::string> wait(const std::string& key, std::chrono::milliseconds timeout) override;

  private:
    std::mutex mutex_;  // guards values_
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
};

}  // namespace lockstep
