// Write-once values that this node has seen, so that its ranks' further reads need no daemon: such
// a value is the same for the rest of its generation. Bounded; what came first goes first. Pure;
// agent thread only.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>

namespace lockstep {

class KvCache {
  public:
    explicit KvCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

    // `value` as it travels, base 64. Left out if it alone is larger than the cache.
    void put(const std::string& key, const std::string& value);
    // Null if it is not here; valid until the next put() or clear().
    const std::string* find(const std::string& key) const;
    bool contains(const std::string& key) const { return values_.contains(key); }
    void clear();
    std::size_t bytes() const { return bytes_; }

  private:
    std::size_t most_bytes_;
    std::size_t bytes_ = 0;  // of keys and values
    std::map<std::string, std::string> values_;
    std::deque<std::string> order_;  // of the keys, by arrival
};

}  // namespace lockstep
