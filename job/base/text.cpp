#include "job/base/text.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace lockstep {

std::string to_hex(std::span<const unsigned char> bytes) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    out.reserve(bytes.size() * 2);
    for (const unsigned char byte : bytes) {
        out += kDigits[byte >> 4U];
        out += kDigits[byte & 15U];
    }
    return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    for (;;) {
        const auto at = text.find(separator);
        parts.emplace_back(text.substr(0, at));
        if (at == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(at + 1);
    }
}

std::string comma_joined(std::span<const std::string> items) {
    std::string out;
    for (const auto& item : items) {
        out += out.empty() ? "" : ",";
        out += item;
    }
    return out;
}

std::string_view trim(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r\n";
    const auto first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<std::int64_t> to_int(std::string_view text) {
    std::int64_t value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || ec != std::errc{} || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

std::optional<double> to_double(std::string_view text) {
    if (!text.empty() && text.front() == '+') {
        text.remove_prefix(1);
    }
    double value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || ec != std::errc{} || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

Result<std::vector<std::int32_t>> parse_rank_set(std::string_view text, std::size_t cap) {
    std::vector<std::int32_t> ranks;
    for (const auto& part : split(text, ',')) {
        const auto dash = part.find('-');
        const auto first = to_int(part.substr(0, dash));
        const auto last = dash == std::string::npos ? first : to_int(part.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last > 10'000'000) {
            return fail(Errc::invalid, "not a set of ranks: use 0-3,7");
        }
        if (ranks.size() + static_cast<std::size_t>(*last - *first) + 1 > cap) {
            return fail(Errc::invalid, "too many ranks in one request");
        }
        for (auto rank = *first; rank <= *last; ++rank) {
            ranks.push_back(static_cast<std::int32_t>(rank));
        }
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
}

namespace {
// Length of the well-formed UTF-8 sequence at the front (Unicode 15, table 3-7), or 0.
std::size_t utf8_length(std::string_view text) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto tail = [&](std::size_t i) { return i < text.size() && (at(i) & 0xC0U) == 0x80U; };
    const unsigned char lead = at(0);
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        return tail(1) ? 2 : 0;
    }
    if (lead >= 0xE0 && lead <= 0xEF && tail(1) && tail(2)) {
        const bool overlong = lead == 0xE0 && at(1) < 0xA0;
        const bool surrogate = lead == 0xED && at(1) > 0x9F;
        return overlong || surrogate ? 0 : 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4 && tail(1) && tail(2) && tail(3)) {
        const bool overlong = lead == 0xF0 && at(1) < 0x90;
        const bool too_high = lead == 0xF4 && at(1) > 0x8F;
        return overlong || too_high ? 0 : 4;
    }
    return 0;
}
}  // namespace

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const auto length = utf8_length(text);
        if (length == 0) {
            out += "\xEF\xBF\xBD";
            text.remove_prefix(1);
            continue;
        }
        const auto lead = static_cast<unsigned char>(text.front());
        const bool control = length == 1 && (lead < 0x20 || lead == 0x7F);
        if (!control || lead == '\n' || lead == '\t') {
            out.append(text.substr(0, length));
        }
        text.remove_prefix(length);
    }
    return out;
}

std::string base64_encode(std::string_view bytes) {
    std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
    const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
    out.resize(static_cast<std::size_t>(size));
    return out;
}

Result<std::string> base64_decode(std::string_view text) {
    if (text.size() % 4 != 0) {
        return fail(Errc::invalid, "not base 64");
    }
    if (text.empty()) {
        return std::string{};
    }
    std::string out(text.size() / 4 * 3, '\0');
    const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
    if (size < 0) {
        return fail(Errc::invalid, "not base 64");
    }
    std::size_t length = static_cast<std::size_t>(size);
    for (std::size_t i = 1; i <= 2 && text[text.size() - i] == '='; ++i) {
        --length;
    }
    out.resize(length);
    return out;
}

}  // namespace lockstep
