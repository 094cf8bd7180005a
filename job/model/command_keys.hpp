// Which commands of a job have been done under which Idempotency-Key: whoever gives one again,
// because the answer was lost, has it done once. Value; any thread.
#pragma once

#include "job/base/limits.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class Command : std::uint8_t { restart, checkpoint };
constexpr std::string_view to_string(Command command) {
    return command == Command::restart ? "restart" : "checkpoint";
}

// The newest limits::kCommandKeys of a job. A key is its user's: another's is another key.
class CommandKeys {
  public:
    // What was done under it; nullptr: nothing that is known.
    const Command* find(std::string_view user, std::string_view key) const {
        const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& one) {
            return one.key == key && one.user == user;
        });
        return found == known_.end() ? nullptr : &found->command;
    }
    // "" is none; one that is known stays what it was.
    void note(std::string user, std::string key, Command command) {
        if (key.empty() || find(user, key) != nullptr) {
            return;
        }
        if (known_.size() >= limits::kCommandKeys) {
            known_.erase(known_.begin());
        }
        known_.push_back({std::move(user), std::move(key), command});
    }
    std::size_t size() const { return known_.size(); }

  private:
    struct Known {
        std::string user;
        std::string key;
        Command command;
    };
    std::vector<Known> known_;  // the oldest first
};

}  // namespace lockstep
