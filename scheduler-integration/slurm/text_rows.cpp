#include "scheduler-integration/slurm/text_rows.hpp"

#include "job/base/text.hpp"

#include <algorithm>
#include <charconv>

namespace lockstep::rows {

std::vector<std::string_view> lines(std::string_view text) {
    std::vector<std::string_view> out;
    while (!text.empty()) {
        const auto end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        if (!line.empty()) {
            out.push_back(line);
        }
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return out;
}

std::optional<std::int64_t> number(std::string_view text) {
    std::int64_t value = 0;
    if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) {
        return std::nullopt;
    }
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    return ec == std::errc{} && end == text.data() + text.size() ? std::optional{value}
                                                                 : std::nullopt;
}

bool printable_bytes(std::string_view text) {
    return std::none_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7f;
    });
}

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

bool is_hostlist_text(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        return is_name_character(c) || c == '[' || c == ']' || c == ',';
    });
}

std::string message(std::string_view err, std::string_view out) {
    constexpr std::size_t kBytes = 1024;
    const auto said = trim(err).empty() ? lines(out) : lines(err);
    std::string text;
    for (std::string_view line : said) {
        line = trim(line);
        // "sbatch: error: text", "sbatch: fatal: text", "sbatch: text".
        const auto colon = line.find(": ");
        if (colon != std::string_view::npos && colon < 16 &&
            std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon),
                        is_name_character)) {
            line.remove_prefix(colon + 2);
        }
        for (const std::string_view level : {"error: ", "fatal: "}) {
            line.remove_prefix(line.starts_with(level) ? level.size() : 0);
        }
        if (line.empty() || text.size() >= kBytes) {
            continue;
        }
        text += text.empty() ? "" : "; ";
        text += line.substr(0, kBytes);
    }
    text.resize(std::min(text.size(), kBytes));
    text = printable(text);
    std::replace(text.begin(), text.end(), '\t', ' ');
    return text;
}

}  // namespace lockstep::rows
