#include "job/trainer/image_files.hpp"

#include "job/base/files.hpp"
#include "job/trainer/kernels.hpp"
#include "job/trainer/random.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

namespace lockstep {
namespace {

constexpr int kEighths = 8;

// Too large is the file's fault, not that of a limit which may give way.
Result<std::string> read_image(const std::filesystem::path& file) {
    Result<std::string> bytes = read_file(file, limits::kImageFileBytes);
    std::error_code none;
    if (!bytes && std::filesystem::file_size(file, none) > limits::kImageFileBytes && !none) {
        return fail(Errc::invalid, file.string() + ": larger than " +
                                       std::to_string(limits::kImageFileBytes >> 20U) + " MiB");
    }
    return bytes;
}

// The least part of a JPEG's frequencies that gives the cut `side` pixels in both directions.
int eighths_for(const ImageCut& cut, std::int64_t side) {
    int eighths = 1;
    while (eighths < kEighths && std::min(cut.height, cut.width) * eighths < side * kEighths) {
        ++eighths;
    }
    return eighths;
}

std::int64_t scaled(std::int64_t place, std::int64_t to, std::int64_t from) {
    return (place * to + from / 2) / from;
}

// The cut of an image that was decoded smaller.
ImageCut scale_cut(const ImageCut& cut, const ImageSize& from, const ImageSize& to) {
    ImageCut out = cut;
    out.height = std::clamp<std::int64_t>(scaled(cut.height, to.height, from.height), 1, to.height);
    out.width = std::clamp<std::int64_t>(scaled(cut.width, to.width, from.width), 1, to.width);
    out.top = std::min(scaled(cut.top, to.height, from.height), to.height - out.height);
    out.left = std::min(scaled(cut.left, to.width, from.width), to.width - out.width);
    return out;
}

void take_cut(const Image& image, const ImageCut& cut, std::vector<std::uint8_t>& out) {
    const auto line = static_cast<std::size_t>(cut.width) * kImageColours;
    out.resize(static_cast<std::size_t>(cut.height) * line);
    for (std::int64_t y = 0; y < cut.height; ++y) {
        const std::uint8_t* from =
            image.pixels.data() +
            static_cast<std::size_t>((cut.top + y) * image.size.width + cut.left) * kImageColours;
        std::uint8_t* to = out.data() + static_cast<std::size_t>(y) * line;
        if (!cut.mirrored) {
            std::copy_n(from, line, to);
            continue;
        }
        for (std::size_t x = 0; x < line; x += kImageColours) {
            std::copy_n(from + x, kImageColours, to + line - kImageColours - x);
        }
    }
}

}  // namespace

ImageCut middle_cut(const ImageSize& size) {
    const std::int64_t side = std::max<std::int64_t>(std::min(size.height, size.width) * 7 / 8, 1);
    return {(size.height - side) / 2, (size.width - side) / 2, side, side, false};
}

ImageCut random_cut(const ImageSize& size, std::uint64_t chance) {
    constexpr int kTries = 10;  // as torchvision's
    constexpr float kLeastArea = 0.08F;
    const float widest = std::log(4.0F / 3.0F);
    Random random{chance};
    const bool mirrored = random.below(2) == 1;
    const auto area = static_cast<float>(size.height) * static_cast<float>(size.width);
    for (int i = 0; i < kTries; ++i) {
        const float wanted = area * random.uniform(kLeastArea, 1.0F);
        const float ratio = std::exp(random.uniform(-widest, widest));
        const auto width = static_cast<std::int64_t>(std::lround(std::sqrt(wanted * ratio)));
        const auto height = static_cast<std::int64_t>(std::lround(std::sqrt(wanted / ratio)));
        if (width > 0 && width <= size.width && height > 0 && height <= size.height) {
            const auto below = [&](std::int64_t bound) {
                return static_cast<std::int64_t>(random.below(static_cast<std::uint32_t>(bound)));
            };
            return {below(size.height - height + 1), below(size.width - width + 1), height, width,
                    mirrored};
        }
    }
    // Far wider or higher than 4:3: the largest such part in the middle.
    const std::int64_t width = std::clamp<std::int64_t>(size.height * 4 / 3, 1, size.width);
    const std::int64_t height = std::clamp<std::int64_t>(size.width * 4 / 3, 1, size.height);
    return {(size.height - height) / 2, (size.width - width) / 2, height, width, mirrored};
}

void ImageFiles::add(std::string_view relative) {
    names_ += relative;
    ends_.push_back(names_.size());
}

std::filesystem::path ImageFiles::path(std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    return folder_ / std::string_view{names_}.substr(begin, ends_[index] - begin);
}

Status ImageFiles::read(std::size_t index, std::uint64_t variation, float* out) const {
    // A worker's own, which it keeps: half a megabyte an image would go back to the system each
    // time.
    static thread_local Image image;
    static thread_local std::vector<std::uint8_t> cut_out;
    const std::filesystem::path file = path(index);
    const Result<std::string> bytes = read_image(file);
    LOCKSTEP_TRY(bytes);
    const Result<ImageSize> size = image_size(*bytes);
    if (!size) {
        return fail(Error{size.error()}.in(file.string()));
    }
    const ImageCut cut =
        vary_ ? random_cut(*size, Random::combine(variation, index)) : middle_cut(*size);
    if (Status decoded = decode_image(*bytes, eighths_for(cut, side_), image); !decoded) {
        return fail(std::move(decoded).error().in(file.string()));
    }
    const ImageCut here = scale_cut(cut, *size, image.size);
    take_cut(image, here, cut_out);
    const auto side = static_cast<std::size_t>(side_);
    kernels::resize(cut_out.data(), static_cast<std::size_t>(here.height),
                    static_cast<std::size_t>(here.width), kImageColours, out, side, side);
    return {};
}

Status ImageFiles::check(std::size_t index) const {
    constexpr std::size_t kHead = 65'536;  // of a JPEG with a large preview it is more
    const std::filesystem::path file = path(index);
    std::string head(kHead, '\0');
    std::ifstream in{file, std::ios::binary};
    if (!in) {
        return fail(errno_error(file.string(), errno));
    }
    in.read(head.data(), static_cast<std::streamsize>(head.size()));
    const bool all = !in;
    head.resize(static_cast<std::size_t>(in.gcount()));
    const Result<ImageSize> size = image_size(head);
    if (!size && !all) {
        const Result<std::string> bytes = read_image(file);
        LOCKSTEP_TRY(bytes);
        if (image_size(*bytes)) {
            return {};
        }
    }
    return size ? Status{} : fail(Error{size.error()}.in(file.string()));
}

}  // namespace lockstep
