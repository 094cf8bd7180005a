// Writing and reading the flat binary frames of telemetry (batch.hpp, gpu_batch.hpp): little-endian
// numbers without padding, read with a bound check each. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The formats are little-endian and so is every machine Lockstep builds for.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

template <class T>
void put_flat(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
void put_flat_all(std::string& out, const std::vector<T>& values) {
    out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// Takes a number off the front; false, and nothing is read, where there are too few bytes.
template <class T>
bool take_flat(std::string_view& in, T& value) {
    if (in.size() < sizeof value) {
        return false;
    }
    in.copy(reinterpret_cast<char*>(&value), sizeof value);
    in.remove_prefix(sizeof value);
    return true;
}

// Each get() is false, and reads nothing, where the bytes do not hold what is asked for.
class FlatReader {
  public:
    explicit FlatReader(std::string_view bytes) : rest_(bytes) {}
    template <class T>
    bool get(T& value) {
        return take_flat(rest_, value);
    }
    template <class T>
    bool get_all(std::vector<T>& values, std::size_t count) {
        if (rest_.size() / sizeof(T) < count) {
            return false;
        }
        values.resize(count);
        rest_.copy(reinterpret_cast<char*>(values.data()), count * sizeof(T));
        rest_.remove_prefix(count * sizeof(T));
        return true;
    }
    bool get_text(std::string& text, std::size_t size) {
        if (rest_.size() < size) {
            return false;
        }
        text.assign(rest_.substr(0, size));
        rest_.remove_prefix(size);
        return true;
    }
    bool done() const { return rest_.empty(); }

  private:
    std::string_view rest_;
};

}  // namespace lockstep
