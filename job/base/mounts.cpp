#include "job/base/mounts.hpp"

#include "job/base/text.hpp"

#include <cstddef>
#include <utility>

namespace lockstep {
namespace {

// The kernel writes a blank, tab, newline and backslash as three octal digits: \040.
std::string unescaped(std::string_view text) {
    const auto is_octal = [](char digit) { return digit >= '0' && digit <= '7'; };
    std::string out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '\\' && at + 3 < text.size() && is_octal(text[at + 1]) &&
            is_octal(text[at + 2]) && is_octal(text[at + 3])) {
            out += static_cast<char>((text[at + 1] - '0') * 64 + (text[at + 2] - '0') * 8 +
                                     (text[at + 3] - '0'));
            at += 3;
        } else {
            out += text[at];
        }
    }
    return out;
}

}  // namespace

std::vector<Mount> parse_mounts(std::string_view mountinfo) {
    constexpr std::string_view kDash = " - ";
    std::vector<Mount> out;
    for (const std::string& line : split(mountinfo, '\n')) {
        // 36 35 98:0 / /scratch rw,noatime shared:1 - nfs4 server:/export rw: in place of
        // "shared:1" any number of words.
        const auto dash = line.find(kDash);
        const auto words = split(line, ' ');
        if (dash == std::string::npos || words.size() < 6) {
            continue;
        }
        const std::string_view rest = std::string_view{line}.substr(dash + kDash.size());
        out.push_back({unescaped(words[4]), std::string{rest.substr(0, rest.find(' '))}});
    }
    return out;
}

}  // namespace lockstep
