#include "job/agent/horovod/horovod_scopes.hpp"

#include "job/base/text.hpp"

#include <utility>

namespace lockstep {

std::size_t HorovodScopes::size_of(std::string_view scope) const {
    // "local_n1_process_set_hash_4711": of a process set (hvd.add_process_set), which has its own
    // number of ranks here.
    if (scope.find("_process_set_hash_") != std::string_view::npos) {
        return 0;
    }
    const std::int32_t size = scope == "global" || scope == "global_" ? sizes_.world
                              : scope.starts_with("local_")           ? sizes_.node
                              : scope.starts_with("cross_")           ? sizes_.nodes
                                                                      : 0;
    return static_cast<std::size_t>(size);
}

void HorovodScopes::forget(std::size_t key_bytes, const Value& value) {
    --keys_;
    bytes_ -= key_bytes + (value ? value->size() : 0);
}

Status HorovodScopes::put(const std::string& scope, const std::string& key, std::string value) {
    const auto in = scopes_.find(scope);
    if (in != scopes_.end()) {
        if (const auto known = in->second.values.find(key); known != in->second.values.end()) {
            if (bytes_ - known->second->size() + value.size() > max_bytes_) {
                return fail(Errc::exhausted, "the rendezvous holds as much as it takes");
            }
            bytes_ += value.size();
            bytes_ -= known->second->size();
            known->second = std::make_shared<const std::string>(std::move(value));
            return {};
        }
    }
    // A scope's own name counts with each of its keys: so many scopes of one key are bounded too.
    if (keys_ >= max_keys_ || bytes_ + scope.size() + key.size() + value.size() > max_bytes_) {
        return fail(Errc::exhausted, "the rendezvous holds as much as it takes");
    }
    ++keys_;
    bytes_ += scope.size() + key.size() + value.size();
    scopes_[scope].values[key] = std::make_shared<const std::string>(std::move(value));
    return {};
}

HorovodScopes::Value HorovodScopes::get(const std::string& scope, const std::string& key) const {
    const auto in = scopes_.find(scope);
    if (in == scopes_.end()) {
        return nullptr;
    }
    const auto found = in->second.values.find(key);
    return found == in->second.values.end() ? nullptr : found->second;
}

void HorovodScopes::remove(const std::string& scope, const std::string& key) {
    const auto in = scopes_.find(scope);
    if (in == scopes_.end()) {
        return;
    }
    Scope& one = in->second;
    const std::size_t size = size_of(scope);
    if (size == 0) {
        if (const auto found = one.values.find(key); found != one.values.end()) {
            forget(scope.size() + key.size(), found->second);
            one.values.erase(found);
        }
    } else if (const auto rank = to_int(key);
               rank && *rank >= 0 && static_cast<std::size_t>(*rank) < size) {
        one.finished.insert(*rank);  // said again (its answer was lost) it counts once
        if (one.finished.size() == size) {
            for (const auto& [name, value] : one.values) {
                forget(scope.size() + name.size(), value);
            }
            one.values.clear();
        }
    }
    if (one.values.empty()) {
        scopes_.erase(in);
    }
}

}  // namespace lockstep
