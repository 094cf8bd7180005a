#include "job/trainer/digits.hpp"

#include "job/base/files.hpp"
#include "job/base/unique_fd.hpp"
#include "job/trainer/idx_file.hpp"
#include "job/trainer/random.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {
namespace {

struct Point {
    float x;
    float y;
};
using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;

Stroke ellipse(Point center, float radius_x, float radius_y) {
    constexpr int kCorners = 14;
    Stroke stroke;
    for (int i = 0; i <= kCorners; ++i) {
        const float angle = static_cast<float>(i) * 2.0F * 3.14159265F / kCorners;
        stroke.push_back(
            {center.x + radius_x * std::cos(angle), center.y + radius_y * std::sin(angle)});
    }
    return stroke;
}

// The strokes of each digit in the unit square, y downwards.
std::array<Glyph, 10> make_glyphs() {
    std::array<Glyph, 10> glyphs;
    glyphs[0] = {ellipse({.5F, .5F}, .3F, .42F)};
    glyphs[1] = {{{.34F, .26F}, {.52F, .08F}, {.52F, .92F}}};
    glyphs[2] = {{{.2F, .3F},
                  {.28F, .14F},
                  {.5F, .07F},
                  {.72F, .14F},
                  {.78F, .32F},
                  {.68F, .5F},
                  {.2F, .92F},
                  {.8F, .92F}}};
    glyphs[3] = {{{.22F, .15F},
                  {.45F, .07F},
                  {.7F, .13F},
                  {.75F, .3F},
                  {.65F, .44F},
                  {.45F, .48F},
                  {.7F, .54F},
                  {.8F, .7F},
                  {.7F, .88F},
                  {.45F, .94F},
                  {.2F, .85F}}};
    glyphs[4] = {{{.62F, .92F}, {.62F, .08F}, {.18F, .65F}, {.82F, .65F}}};
    glyphs[5] = {{{.75F, .08F},
                  {.28F, .08F},
                  {.25F, .46F},
                  {.5F, .4F},
                  {.72F, .5F},
                  {.78F, .68F},
                  {.68F, .87F},
                  {.45F, .93F},
                  {.2F, .85F}}};
    glyphs[6] = {{{.7F, .1F},
                  {.45F, .2F},
                  {.28F, .45F},
                  {.24F, .7F},
                  {.35F, .9F},
                  {.55F, .94F},
                  {.74F, .83F},
                  {.76F, .65F},
                  {.6F, .5F},
                  {.4F, .52F},
                  {.26F, .64F}}};
    glyphs[7] = {{{.2F, .08F}, {.8F, .08F}, {.42F, .92F}}};
    glyphs[8] = {ellipse({.5F, .29F}, .21F, .21F), ellipse({.5F, .71F}, .27F, .22F)};
    glyphs[9] = glyphs[6];
    for (Point& point : glyphs[9][0]) {
        point = {1.0F - point.x, 1.0F - point.y};
    }
    return glyphs;
}

// A random affine map from the unit square to pixels.
struct Pose {
    std::array<float, 6> m;

    explicit Pose(Random& random) {
        const float turn = random.uniform(-.22F, .22F);  // ±12.6°
        const float shear = random.uniform(-.22F, .22F);
        const float width = 20.0F * random.uniform(.72F, 1.08F);
        const float height = 20.0F * random.uniform(.82F, 1.12F);
        const float x = 14.0F + random.uniform(-2.2F, 2.2F);
        const float y = 14.0F + random.uniform(-2.2F, 2.2F);
        m = {width * std::cos(turn), height * (shear - std::sin(turn)), x,
             width * std::sin(turn), height * std::cos(turn),           y};
    }
    Point operator()(Point p) const {
        const float x = p.x - .5F;
        const float y = p.y - .5F;
        return {m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]};
    }
};

// Puts ink where a pixel's center is closer to the segment than half the thickness, with an edge
// one pixel soft. Only the pixels around the segment are visited.
void draw_segment(Point a, Point b, float thickness, std::array<float, kDigitPixels>& ink) {
    const float reach = thickness / 2.0F + 1.0F;
    const auto first = [&](float low) { return std::max(0, static_cast<int>(low - reach)); };
    const auto last = [&](float high) {
        return std::min(static_cast<int>(kDigitSide) - 1, static_cast<int>(high + reach));
    };
    const float dx = b.x - a.x;
    const float dy = b.y - a.y;
    const float length2 = std::max(dx * dx + dy * dy, 1e-6F);
    for (int row = first(std::min(a.y, b.y)); row <= last(std::max(a.y, b.y)); ++row) {
        for (int column = first(std::min(a.x, b.x)); column <= last(std::max(a.x, b.x)); ++column) {
            const float x = static_cast<float>(column) + .5F - a.x;
            const float y = static_cast<float>(row) + .5F - a.y;
            const float along = std::clamp((x * dx + y * dy) / length2, 0.0F, 1.0F);
            const float distance = std::hypot(x - along * dx, y - along * dy);
            const float value = std::clamp(thickness / 2.0F + .5F - distance, 0.0F, 1.0F);
            float& pixel =
                ink[static_cast<std::size_t>(row) * kDigitSide + static_cast<std::size_t>(column)];
            pixel = std::max(pixel, value);
        }
    }
}

std::filesystem::path images_in(const std::filesystem::path& folder, const std::string& prefix) {
    return folder / (prefix + "-images-idx3-ubyte");
}

std::filesystem::path labels_in(const std::filesystem::path& folder, const std::string& prefix) {
    return folder / (prefix + "-labels-idx1-ubyte");
}

bool has_samples(const std::filesystem::path& folder, const char* prefix, std::uint32_t samples) {
    // Sizes are enough here: load_dataset() reads and validates every byte.
    std::error_code none;
    const auto images = std::filesystem::file_size(images_in(folder, prefix), none);
    if (none || images != 16U + std::uintmax_t{samples} * kDigitPixels) {
        return false;
    }
    const auto labels = std::filesystem::file_size(labels_in(folder, prefix), none);
    return !none && labels == 8U + std::uintmax_t{samples};
}

// Its first labels are those of drawn digits, which are the same everywhere; a file that a power
// cut has left empty has none.
bool has_drawn_labels(const std::filesystem::path& path, bool training) {
    constexpr std::size_t kHeader = 8;
    constexpr std::size_t kCompared = 64;
    std::ifstream file{path, std::ios::binary};
    if (!file) {
        return false;
    }
    std::array<char, kHeader + kCompared> bytes{};
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto count = static_cast<std::size_t>(file.gcount());
    std::array<std::uint8_t, kDigitPixels> pixels{};
    for (std::size_t i = kHeader; i < count; ++i) {
        const auto index = static_cast<std::uint32_t>(i - kHeader);
        if (static_cast<std::uint8_t>(bytes[i]) != draw_digit(training, index, pixels)) {
            return false;
        }
    }
    return true;
}

// One of the names, or the same packed, is somebody else's.
bool has_other_samples(const std::filesystem::path& folder, const char* prefix, bool training) {
    const auto is_there = [](std::filesystem::path path, const char* suffix) {
        std::error_code none;
        return std::filesystem::exists(path += suffix, none);
    };
    const std::filesystem::path images = images_in(folder, prefix);
    const std::filesystem::path labels = labels_in(folder, prefix);
    // Asked first: another rank, which may be making them, writes the labels before.
    const bool has_images = is_there(images, "");
    if (is_there(labels, "") ? !has_drawn_labels(labels, training) : has_images) {
        return true;
    }
    return is_there(images, ".gz") || is_there(labels, ".gz");
}

Status write_samples(const std::filesystem::path& folder, const char* prefix, bool training,
                     std::uint32_t samples) {
    if (has_samples(folder, prefix, samples)) {
        return {};
    }
    IdxFile images{{samples, kDigitSide, kDigitSide}, {}};
    IdxFile labels{{samples}, {}};
    images.values.resize(std::size_t{samples} * kDigitPixels);
    labels.values.resize(samples);
    for (std::uint32_t i = 0; i < samples; ++i) {
        const std::span<std::uint8_t, kDigitPixels> pixels{
            images.values.data() + std::size_t{i} * kDigitPixels, kDigitPixels};
        labels.values[i] = draw_digit(training, i, pixels);
    }
    // The images last: they are what others look for.
    const Status put = write_idx(labels_in(folder, prefix), labels);
    return put ? write_idx(images_in(folder, prefix), images) : put;
}

}  // namespace

std::uint8_t draw_digit(bool training, std::uint32_t index,
                        std::span<std::uint8_t, kDigitPixels> pixels) {
    static const std::array<Glyph, 10> kGlyphs = make_glyphs();
    Random random{Random::combine(training ? 1 : 2, index)};
    const auto digit = static_cast<std::uint8_t>(random.below(10));
    const Pose pose{random};
    const float thickness = random.uniform(1.5F, 3.2F);
    const float strength = random.uniform(170.0F, 255.0F);
    std::array<float, kDigitPixels> ink{};
    for (const Stroke& stroke : kGlyphs[digit]) {
        Stroke placed;
        for (const Point& point : stroke) {
            // Each corner moves a little: handwriting, not a font.
            const Point moved{point.x + random.uniform(-.03F, .03F),
                              point.y + random.uniform(-.03F, .03F)};
            placed.push_back(pose(moved));
        }
        for (std::size_t i = 1; i < placed.size(); ++i) {
            draw_segment(placed[i - 1], placed[i], thickness, ink);
        }
    }
    for (std::size_t i = 0; i < kDigitPixels; ++i) {
        const float value = ink[i] * strength + random.uniform(0.0F, 24.0F);
        pixels[i] = static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F));
    }
    return digit;
}

Status may_make_digits(const std::filesystem::path& folder, std::uint32_t train_samples,
                       std::uint32_t test_samples) {
    if (has_samples(folder, "train", train_samples) && has_samples(folder, "t10k", test_samples)) {
        return {};  // nothing will be written
    }
    if (has_other_samples(folder, "train", true) || has_other_samples(folder, "t10k", false)) {
        return fail(Errc::conflict, folder.string() +
                                        ": holds files that are not drawn digits; for MNIST's use "
                                        "dataset.name mnist");
    }
    return {};
}

Status make_digits(const std::filesystem::path& folder, std::uint32_t train_samples,
                   std::uint32_t test_samples) {
    if (const Status made = make_private_directories(folder); !made) {
        return made;
    }
    // Advisory: where a file system has no locks the ranks do the same work twice, and rename()
    // still replaces equal files by equal files.
    const UniqueFd lock{
        ::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!lock && !has_samples(folder, "train", train_samples)) {
        return fail(errno_error("create " + (folder / ".lock").string(), errno));
    }
    if (lock) {
        while (::flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
        }
    }
    const Status train = write_samples(folder, "train", true, train_samples);
    return train ? write_samples(folder, "t10k", false, test_samples) : train;
}

}  // namespace lockstep
