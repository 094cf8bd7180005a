#include "job/agent/ranks/secret_mask.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

SecretMask::SecretMask(const std::vector<std::string>& values) {
    const auto add = [this](std::string text) {
        if (text.size() >= limits::kMaskedValueBytes &&
            std::find(values_.begin(), values_.end(), text) == values_.end()) {
            values_.push_back(std::move(text));
        }
    };
    for (const std::string& value : values) {
        add(value);
        for (const std::string& line : split(value, '\n')) {
            add(std::string{trim(line)});
        }
    }
    // The longest first: one that begins with another is masked whole.
    std::sort(values_.begin(), values_.end(),
              [](const auto& one, const auto& other) { return one.size() > other.size(); });
}

// Where the end of `text` begins that may be the beginning of a value.
std::size_t SecretMask::open_from(std::string_view text) const {
    std::size_t most = 0;
    for (const std::string& value : values_) {
        for (std::size_t size = std::min(value.size() - 1, text.size()); size > most; --size) {
            if (text[text.size() - size] == value.front() &&
                text.substr(text.size() - size) == std::string_view{value}.substr(0, size)) {
                most = size;
                break;
            }
        }
    }
    return text.size() - most;
}

// From the left, at each place the longest: `until` is where nothing is certain yet.
std::size_t SecretMask::replace(std::string_view text, std::size_t until, std::string& out) const {
    std::size_t from = 0;
    for (;;) {
        std::size_t at = std::string_view::npos;
        std::size_t size = 0;
        for (const std::string& value : values_) {
            if (const auto found = text.find(value, from); found < at) {
                at = found;
                size = value.size();
            }
        }
        if (at >= until) {
            break;
        }
        out.append(text.substr(from, at - from)).append(kMaskedValue);
        from = at + size;
    }
    if (from < until) {
        out.append(text.substr(from, until - from));
    }
    return std::max(from, until);
}

std::string SecretMask::masked(std::string_view text) const {
    std::string out;
    replace(text, text.size(), out);
    return out;
}

std::string MaskedStream::feed(std::string_view bytes) {
    const std::string text = std::exchange(held_, {}).append(bytes);
    std::string out;
    held_ = text.substr(mask_->replace(text, mask_->open_from(text), out));
    return out;
}

std::string MaskedStream::end() {
    return mask_->masked(std::exchange(held_, {}));
}

}  // namespace lockstep
