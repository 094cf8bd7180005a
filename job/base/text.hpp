// Small text helpers that more than one folder needs. Pure; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string to_hex(std::span<const unsigned char> bytes);
std::vector<std::string> split(std::string_view text, char separator);
// The items with a comma between each two; an item that is empty at the beginning is left out.
std::string comma_joined(std::span<const std::string> items);
std::string_view trim(std::string_view text);
// The whole text as a decimal integer, or nothing.
std::optional<std::int64_t> to_int(std::string_view text);
// The whole text as a finite or non-finite decimal (nan, inf), or nothing.
std::optional<double> to_double(std::string_view text);
// "0-3,7" → {0,1,2,3,7}, ascending and unique; at most `cap` values.
Result<std::vector<std::int32_t>> parse_rank_set(std::string_view text, std::size_t cap);
// Invalid UTF-8 becomes U+FFFD and control characters but \n and \t are dropped, so the result can
// be put in JSON and on a terminal. For log tails and other foreign text.
std::string printable(std::string_view text);
// Standard base 64 (RFC 4648 §4) with padding.
std::string base64_encode(std::string_view bytes);
Result<std::string> base64_decode(std::string_view text);

}  // namespace lockstep
