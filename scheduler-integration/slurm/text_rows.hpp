// What the parsers of Slurm's text share: lines, separated fields, strict numbers, messages. Used
// by slurm_text.cpp, slurm_info.cpp, slurm_errors.cpp and slurm_version.cpp only. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rows {

// ASCII unit separator: nothing that Slurm or a sane name holds.
inline constexpr char kSeparator = '\x1f';

// The lines without their ends; the last may lack one. Empty lines are left out.
std::vector<std::string_view> lines(std::string_view text);

// A decimal number, digits only, that fits an int64.
std::optional<std::int64_t> number(std::string_view text);

// Whether there is no control character in it; other bytes may be any.
bool printable_bytes(std::string_view text);
// Only what a hostlist is made of; empty is one.
bool is_hostlist_text(std::string_view text);
bool is_name_character(char c);

template <class Texts>
bool contains_any(std::string_view text, const Texts& parts) {
    for (const std::string_view part : parts) {
        if (text.find(part) != std::string_view::npos) {
            return true;
        }
    }
    return false;
}
inline bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
    return contains_any<std::initializer_list<std::string_view>>(text, parts);
}

// Exactly N fields, or nothing.
template <std::size_t N>
std::optional<std::array<std::string_view, N>> fields(std::string_view line) {
    std::array<std::string_view, N> out;
    for (std::size_t i = 0; i < N; ++i) {
        const auto end = line.find(kSeparator);
        if ((end == std::string_view::npos) != (i + 1 == N)) {
            return std::nullopt;
        }
        out[i] = line.substr(0, end);
        line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    }
    return out;
}

// What a program said, for a person: stderr's lines (stdout's if there are none) without the
// "sbatch: error: " in front, joined by "; ", at most 1 KiB, control characters dropped.
std::string message(std::string_view err, std::string_view out);

}  // namespace lockstep::rows
