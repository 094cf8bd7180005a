// Pictures of a file as bytes of red, green and blue: JPEG by libjpeg, PNG by libpng.
// Pure functions, any thread. The bytes are a stranger's: what is damaged, or larger than
// limits::kImagePixels, is `invalid` with the reason, not a crash.
#pragma once

#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::size_t kImageColours = 3;  // red, green and blue

struct ImageSize {
    std::int64_t height = 0;
    std::int64_t width = 0;
    bool operator==(const ImageSize&) const = default;
};

struct Image {
    ImageSize size;
    std::vector<std::uint8_t> pixels;  // [height][width][3]
};

// From the head of the file alone: what follows it may be damaged still.
Result<ImageSize> image_size(std::string_view bytes);

// Of a JPEG with `eighths` < 8 only that part of its frequencies is decoded, which gives an image
// of eighths/8 of its size (rounded up) in a fraction of the time. Without effect on a PNG.
// Grey is shown in all three colours, CMYK (a few of ImageNet's are) without a colour profile, and
// of a transparent PNG what is before black. A JPEG whose end is missing is invalid: libjpeg fills
// it with grey.
Status decode_image(std::string_view bytes, int eighths, Image& out);

}  // namespace lockstep
