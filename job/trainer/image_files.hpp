// Images that stay in their files until a batch needs them: a data set of millions, as ImageNet is.
// Read-only after make_image_files(); read() from any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/trainer/image_decode.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// A part of an image.
struct ImageCut {
    std::int64_t top = 0;
    std::int64_t left = 0;
    std::int64_t height = 0;
    std::int64_t width = 0;
    bool mirrored = false;
    bool operator==(const ImageCut&) const = default;
};

// The square in the middle whose side is 7/8 of the shorter side: what is left of an image that is
// resized to 256 and cut to 224.
ImageCut middle_cut(const ImageSize& size);
// A part of 8 to 100 % of its area and of 3:4 to 4:3, anywhere, every second one mirrored: as
// torchvision.transforms.RandomResizedCrop and RandomHorizontalFlip. The same for the same chance.
ImageCut random_cut(const ImageSize& size, std::uint64_t chance);

class ImageFiles {
  public:
    // `side`: height and width that read() gives them. `vary`: cut at random, else in the middle.
    ImageFiles(std::filesystem::path folder, std::int64_t side, bool vary)
        : folder_(std::move(folder)), side_(side), vary_(vary) {}

    void add(std::string_view relative);  // to the folder
    std::size_t count() const { return ends_.size(); }
    std::filesystem::path path(std::size_t index) const;

    // The image as floats in [0, 1], [side][side][3]. `variation` differs from epoch to epoch.
    // invalid, not_found, …: the message names the file.
    Status read(std::size_t index, std::uint64_t variation, float* out) const;
    // Whether the file is there and its head is that of an image; as read().
    Status check(std::size_t index) const;

  private:
    std::filesystem::path folder_;
    std::int64_t side_;
    bool vary_;
    std::string names_;              // one after the other: a million strings take twice as much
    std::vector<std::size_t> ends_;  // of each of them
};

}  // namespace lockstep
