#include "job/base/number.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace lockstep {
namespace {

// 309 digits before the point, or 324 zeros and 17 digits behind it.
constexpr std::size_t kLongest = 352;

void append(std::string& out, double value, std::chars_format format) {
    std::array<char, kLongest> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format).ptr;
    out.append(text.data(), end);
}

}  // namespace

void append_number(std::string& out, double finite) {
    const double size = std::abs(finite);
    if (size == 0) {
        out += std::signbit(finite) ? "-0.0" : "0";
    } else {
        append(
            out, finite,
            size >= 1e-5 && size < 1e16 ? std::chars_format::fixed : std::chars_format::scientific);
    }
}

void append_decimal(std::string& out, double finite) {
    append(out, finite, std::chars_format::fixed);
}

std::optional<double> if_finite(double value) {
    return std::isfinite(value) ? std::optional{value} : std::nullopt;
}

}  // namespace lockstep
