// What Horovod's ranks tell each other before they are connected: values by scope and key, with the
// rules of its horovod/runner/http/http_server.py. A scope is one group of ranks that connect;
// `global`, `local_<host>` and `cross_<local rank>` are known by name, with their sizes. A rank
// that is connected deletes its own number there: the scope is emptied once all have, for not all
// have read by then; after hvd.shutdown() it is used again. In any other scope, a process
// set's too, a key is just deleted. Agent thread only.
#pragma once

#include "job/base/limits.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

struct ScopeSizes {
    std::int32_t world = 1;
    std::int32_t node = 1;  // ranks of one
    std::int32_t nodes = 1;
};

class HorovodScopes {
  public:
    using Value = std::shared_ptr<const std::string>;

    explicit HorovodScopes(ScopeSizes sizes, std::size_t max_keys = limits::kStoreKeys,
                           std::size_t max_bytes = limits::kStoreBytes)
        : sizes_(sizes), max_keys_(max_keys), max_bytes_(max_bytes) {}

    // exhausted: there are too many keys, or too much in them.
    Status put(const std::string& scope, const std::string& key, std::string value);
    Value get(const std::string& scope, const std::string& key) const;  // nullptr: none
    void remove(const std::string& scope, const std::string& key);

    std::size_t keys() const { return keys_; }
    std::size_t bytes() const { return bytes_; }

  private:
    struct Scope {
        std::map<std::string, Value> values;
        std::set<std::int64_t> finished;  // ranks, by their number in it
    };
    // 0: not one of Horovod's own.
    std::size_t size_of(std::string_view scope) const;
    void forget(std::size_t key_bytes, const Value& value);

    ScopeSizes sizes_;
    std::size_t max_keys_;
    std::size_t max_bytes_;
    std::map<std::string, Scope> scopes_;
    std::size_t keys_ = 0;
    std::size_t bytes_ = 0;  // of scopes, once for each key, keys and values
};

}  // namespace lockstep
