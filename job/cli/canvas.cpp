#include "job/cli/canvas.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::cli {
namespace {

// Bit of a braille character for the dot at (column 0..1, row 0..3 from the top).
// Source: Unicode 15, chapter 21.1: U+2800 + dots 1..8.
constexpr std::array<std::array<unsigned, 4>, 2> kDots{
    {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};

}  // namespace

void Range::take(double value) {
    if (std::isfinite(value)) {
        low = std::min(low, value);
        high = std::max(high, value);
    }
}

std::size_t Range::place(double value, std::size_t size) const {
    // Halved: the difference of two finite values may be infinite.
    const double share = high > low ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
    return static_cast<std::size_t>(std::clamp(share * static_cast<double>(size - 1) + 0.5, 0.0,
                                               static_cast<double>(size - 1)));
}

void Canvas::dot(std::size_t x, std::size_t y, std::size_t ink) {
    const std::size_t from_top = height() - 1 - y;
    const std::size_t across = braille_ ? 2 : 1;
    const std::size_t down = braille_ ? 4 : 1;
    Cell& cell = cells_[(from_top / down) * columns_ + x / across];
    cell.bits |= braille_ ? kDots[x % 2][from_top % 4] : 1U;
    cell.shared = cell.shared || (cell.ink >= 0 && cell.ink != static_cast<int>(ink));
    cell.ink = static_cast<int>(ink);
}

void Canvas::stroke(std::size_t x0, std::size_t y0, std::size_t x1, std::size_t y1,
                    std::size_t ink) {
    const auto span = [](std::size_t a, std::size_t b) { return a > b ? a - b : b - a; };
    const std::size_t steps = std::max<std::size_t>({span(x0, x1), span(y0, y1), 1});
    for (std::size_t i = 0; i <= steps; ++i) {
        const double share = static_cast<double>(i) / static_cast<double>(steps);
        const auto between = [share](std::size_t a, std::size_t b) {
            return static_cast<std::size_t>(
                std::lround(static_cast<double>(a) +
                            share * (static_cast<double>(b) - static_cast<double>(a))));
        };
        dot(between(x0, x1), between(y0, y1), ink);
    }
}

std::string Canvas::row(std::size_t index, const std::string& meet) const {
    std::string out;
    for (std::size_t i = 0; i < columns_; ++i) {
        out += text(cells_[index * columns_ + i], meet);
    }
    return out;
}

std::string Canvas::text(const Cell& cell, const std::string& meet) const {
    if (cell.ink < 0) {
        return " ";
    }
    const Ink& ink = inks_[static_cast<std::size_t>(cell.ink)];
    if (!braille_) {
        return cell.shared && !meet.empty() ? meet : paint(terminal_, ink.colour, ink.mark);
    }
    const unsigned code = 0x2800U + cell.bits;  // three bytes of UTF-8
    const std::string dots{static_cast<char>(0xe0U | (code >> 12U)),
                           static_cast<char>(0x80U | ((code >> 6U) & 0x3fU)),
                           static_cast<char>(0x80U | (code & 0x3fU))};
    return paint(terminal_, ink.colour, dots);
}

}  // namespace lockstep::cli
