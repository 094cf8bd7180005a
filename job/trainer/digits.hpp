// A data set made on the spot, so that the quick start and the tests need no download: the digits
// 0 to 9 drawn with jittered strokes, 28 × 28, in MNIST's four IDX files. The same everywhere:
// every image depends only on its number and on whether it is for training or for the test.
// Pure functions; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <span>

namespace lockstep {

inline constexpr std::uint32_t kDigitSide = 28;  // pixels
inline constexpr std::uint32_t kDigitPixels = kDigitSide * kDigitSide;

// Draws image `index` of the training (or the test) set; its label is the digit it shows.
// 0 = paper, 255 = ink. ~10 µs.
std::uint8_t draw_digit(bool training, std::uint32_t index,
                        std::span<std::uint8_t, kDigitPixels> pixels);

// Of a folder that a user has named: whether make_digits() would take the place of somebody else's
// files there, or of packed ones. Drawn ones are known by their first labels. conflict: it would.
Status may_make_digits(const std::filesystem::path& folder, std::uint32_t train_samples,
                       std::uint32_t test_samples);

// Makes sure that `folder` holds the four files with these many samples; the folder is created.
// Several ranks and nodes may call it for one folder at once: one makes the files, the others
// wait; each file appears complete or not at all.
Status make_digits(const std::filesystem::path& folder, std::uint32_t train_samples,
                   std::uint32_t test_samples);

}  // namespace lockstep
