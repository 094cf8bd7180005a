// Numbers in the lines of a job's stored state (history_restore.hpp). Pure; any thread.
#pragma once

#include "job/base/result.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {

// Puts " NUMBER" at the end.
template <class T>
void put_number(std::string& out, T value) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    out += ' ';
    out.append(text.data(), end);
}

// Takes " NUMBER" off the front. False: there is none.
template <class T>
bool take_number(std::string_view& line, T& value) {
    if (line.empty() || line.front() != ' ') {
        return false;
    }
    const auto read = std::from_chars(line.data() + 1, line.data() + line.size(), value);
    if (read.ec != std::errc{}) {
        return false;
    }
    line.remove_prefix(static_cast<std::size_t>(read.ptr - line.data()));
    return true;
}

// Gives each line of `state` to `take`, without its end. The last one must have an end, or it was
// cut: corrupt, as with a line for which `take` is false. JSON, which the first databases have, is
// no line.
template <class Take>
Status each_line(std::string_view state, Take take) {
    if (state.starts_with('{')) {
        return {};
    }
    while (!state.empty()) {
        const std::size_t end = state.find('\n');
        if (end == std::string_view::npos || !take(state.substr(0, end))) {
            return fail(Errc::corrupt, "the state of history has a bad line");
        }
        state.remove_prefix(end + 1);
    }
    return {};
}

}  // namespace lockstep
