// lockstep.h for C++17: the same functions with strings and exceptions. Header only; link the C
// library. What lockstep.h says of threads, fork(), limits and programs that were started by hand
// holds here too.
#ifndef LOCKSTEP_LOCKSTEP_HPP
#define LOCKSTEP_LOCKSTEP_HPP

#include <lockstep/lockstep.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep {

// Thrown by what shares keys. what(): the agent's words.
class Error : public std::runtime_error {
  public:
    Error(lockstep_status status, const std::string& message)
        : std::runtime_error(message), status_(status) {}
    lockstep_status status() const noexcept { return status_; }

  private:
    lockstep_status status_;
};

namespace detail {
inline void check(lockstep_status status) {
    if (status != LOCKSTEP_OK) {
        throw Error(status, lockstep_error());
    }
}
inline double seconds(std::chrono::duration<double> time) {
    return time.count();
}
}  // namespace detail

using Metric = lockstep_metric;

// report(step, {{"loss", loss}, {"samples", 64}});
inline bool report(std::int64_t step, std::initializer_list<Metric> metrics) noexcept {
    return lockstep_report(step, metrics.begin(), metrics.size());
}
inline bool phase(const char* name) noexcept {
    return lockstep_phase(name);
}
inline bool checkpoint(std::int64_t step, const std::string& path) noexcept {
    return lockstep_checkpoint(step, path.c_str());
}
inline bool checkpoint_requested() noexcept {
    return lockstep_checkpoint_requested();
}

inline void set(const std::string& key, std::string_view value) {
    detail::check(lockstep_set(key.c_str(), value.data(), value.size()));
}
inline void set_once(const std::string& key, std::string_view value) {
    detail::check(lockstep_set_once(key.c_str(), value.data(), value.size()));
}
// Whether it was set: the key's value was `expected`, or with "" there was no such key.
inline bool compare_and_set(const std::string& key, std::string_view expected,
                            std::string_view value) {
    bool swapped = false;
    detail::check(lockstep_compare_and_set(key.c_str(), expected.data(), expected.size(),
                                           value.data(), value.size(), &swapped));
    return swapped;
}
inline std::string get(const std::string& key) {
    void* value = nullptr;
    std::size_t size = 0;
    detail::check(lockstep_get(key.c_str(), &value, &size));
    const std::unique_ptr<void, void (*)(void*)> owned(value, lockstep_free);
    return std::string(static_cast<const char*>(value), size);
}
inline void wait(const std::string& key, std::chrono::duration<double> timeout) {
    detail::check(lockstep_wait(key.c_str(), detail::seconds(timeout)));
}
inline std::int64_t add(const std::string& key, std::int64_t delta) {
    std::int64_t sum = 0;
    detail::check(lockstep_add(key.c_str(), delta, &sum));
    return sum;
}
// Whether there was such a key.
inline bool remove(const std::string& key) {
    bool deleted = false;
    detail::check(lockstep_delete(key.c_str(), &deleted));
    return deleted;
}
inline void barrier(const std::string& name, std::chrono::duration<double> timeout) {
    detail::check(lockstep_barrier(name.c_str(), detail::seconds(timeout)));
}

}  // namespace lockstep

#endif
