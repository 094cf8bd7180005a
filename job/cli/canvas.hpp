// Dots drawn with characters. Pure; any thread.
#pragma once

#include "job/cli/terminal.hpp"

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace lockstep::cli {

struct Range {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    // What is not finite is left out.
    void take(double value);
    bool empty() const { return low > high; }
    // 0..size-1
    std::size_t place(double value, std::size_t size) const;
};

// How one of the drawn lines looks.
struct Ink {
    Style colour = Style::plain;
    std::string mark;  // where a character is one dot
};

// Each cell of the text is 2 × 4 dots of braille, or one. Not longer than the terminal.
class Canvas {
  public:
    Canvas(const Terminal& terminal, bool braille, std::vector<Ink> inks, std::size_t columns,
           std::size_t rows)
        : terminal_(terminal),
          braille_(braille),
          inks_(std::move(inks)),
          columns_(columns),
          rows_(rows),
          cells_(columns * rows) {}

    std::size_t width() const { return braille_ ? columns_ * 2 : columns_; }
    std::size_t height() const { return braille_ ? rows_ * 4 : rows_; }

    // y counts from the bottom.
    void dot(std::size_t x, std::size_t y, std::size_t ink);
    void stroke(std::size_t x0, std::size_t y0, std::size_t x1, std::size_t y1, std::size_t ink);
    // `meet`: what stands where two lines do; "" = the later one.
    std::string row(std::size_t index, const std::string& meet) const;

  private:
    struct Cell {
        unsigned bits = 0;
        int ink = -1;
        bool shared = false;
    };
    std::string text(const Cell& cell, const std::string& meet) const;

    const Terminal& terminal_;
    bool braille_;
    std::vector<Ink> inks_;
    std::size_t columns_;
    std::size_t rows_;
    std::vector<Cell> cells_;
};

}  // namespace lockstep::cli
