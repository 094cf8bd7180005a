#include "job/agent/kv/kv_cache.hpp"

namespace lockstep {

void KvCache::put(const std::string& key, const std::string& value) {
    const std::size_t size = key.size() + value.size();
    if (size > most_bytes_ || !values_.try_emplace(key, value).second) {
        return;
    }
    order_.push_back(key);
    bytes_ += size;
    while (bytes_ > most_bytes_) {
        const auto oldest = values_.find(order_.front());
        bytes_ -= oldest->first.size() + oldest->second.size();
        values_.erase(oldest);
        order_.pop_front();
    }
}

const std::string* KvCache::find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

void KvCache::clear() {
    bytes_ = 0;
    values_.clear();
    order_.clear();
}

}  // namespace lockstep
