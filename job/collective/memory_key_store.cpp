#include "job/collective/memory_key_store.hpp"

namespace lockstep {

Status MemoryKeyStore::set(const std::string& key, std::string_view value) {
    {
        const std::lock_guard lock{mutex_};
        values_[key] = value;
    }
    changed_.notify_all();
    return {};
}

Result<std::string> MemoryKeyStore::wait(const std::string& key,
                                         std::chrono::milliseconds timeout) {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
        return fail(Errc::timed_out, "no key " + key);
    }
    return values_.at(key);
}

}  // namespace lockstep
