// Data sets of image files. The files are written with libjpeg and libpng here; by Pillow, of
// another author, in tests/integration/test_native_images.py.
#include "job/base/files.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/image_files.hpp"
#include "job/trainer/loader.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

// 4 × 8 pixels a block; the left half red, the right one blue.
std::vector<std::uint8_t> red_and_blue(int height, int width) {
    std::vector<std::uint8_t> out;
    for (int i = 0; i < height * width; ++i) {
        const bool left = i % width < width / 2;
        out.insert(out.end(), {static_cast<std::uint8_t>(left ? 250 : 10), std::uint8_t{20},
                               static_cast<std::uint8_t>(left ? 10 : 250)});
    }
    return out;
}

// `pixels` as they are in `space`, `components` bytes each.
std::string jpeg_of(int height, int width, std::vector<std::uint8_t> pixels,
                    J_COLOR_SPACE space = JCS_RGB, int components = 3, bool progressive = false) {
    jpeg_compress_struct jpeg{};
    jpeg_error_mgr errors{};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&jpeg, &bytes, &size);
    jpeg.image_height = static_cast<JDIMENSION>(height);
    jpeg.image_width = static_cast<JDIMENSION>(width);
    jpeg.input_components = components;
    jpeg.in_color_space = space;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 95, TRUE);
    if (progressive) {
        jpeg_simple_progression(&jpeg);
    }
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        std::uint8_t* row = pixels.data() + static_cast<std::size_t>(jpeg.next_scanline) *
                                                jpeg.image_width *
                                                static_cast<std::size_t>(components);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    std::string out{reinterpret_cast<const char*>(bytes), size};
    jpeg_destroy_compress(&jpeg);
    std::free(bytes);
    return out;
}

std::string png_of(int height, int width, const std::vector<std::uint8_t>& pixels,
                   png_uint_32 format) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.height = static_cast<png_uint_32>(height);
    image.width = static_cast<png_uint_32>(width);
    image.format = format;
    png_alloc_size_t size = 0;
    png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
    std::string out(size, '\0');
    png_image_write_to_memory(&image, out.data(), &size, 0, pixels.data(), 0, nullptr);
    out.resize(size);
    return out;
}

std::vector<int> pixel(const Image& image, std::int64_t y, std::int64_t x) {
    const std::uint8_t* at =
        image.pixels.data() + static_cast<std::size_t>((y * image.size.width + x) * 3);
    return {at[0], at[1], at[2]};
}

void expect_near(const std::vector<int>& got, const std::vector<int>& want, int off) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], off) << "colour " << i;
    }
}

TEST(ImageDecode, AJpegHasItsColoursWholeAndInPart) {
    const std::string bytes = jpeg_of(48, 100, red_and_blue(48, 100));
    EXPECT_EQ(image_size(bytes).value(), (ImageSize{48, 100}));
    for (const int eighths : {8, 4, 1}) {
        Image image;
        ASSERT_TRUE(decode_image(bytes, eighths, image)) << eighths;
        EXPECT_EQ(image.size, (ImageSize{48 * eighths / 8, (100 * eighths + 7) / 8}));
        expect_near(pixel(image, image.size.height / 2, 1), {250, 20, 10}, 8);
        expect_near(pixel(image, 0, image.size.width - 1), {10, 20, 250}, 8);
    }
}

TEST(ImageDecode, GreyAndInksBecomeColours) {
    Image image;
    ASSERT_TRUE(decode_image(jpeg_of(16, 16, std::vector<std::uint8_t>(256, 90), JCS_GRAYSCALE, 1),
                             8, image));
    expect_near(pixel(image, 7, 15), {90, 90, 90}, 2);
    // Inverted inks, as Adobe writes them: no cyan, half of the magenta, all of the yellow, no
    // black.
    std::vector<std::uint8_t> inks;
    for (int i = 0; i < 256; ++i) {
        inks.insert(inks.end(), {255, 128, 0, 255});
    }
    ASSERT_TRUE(decode_image(jpeg_of(16, 16, inks, JCS_CMYK, 4), 8, image));
    expect_near(pixel(image, 3, 3), {255, 128, 0}, 4);
}

TEST(ImageDecode, APngIsExactAndItsTransparencyBlack) {
    Image image;
    const std::vector<std::uint8_t> pixels = red_and_blue(5, 7);
    ASSERT_TRUE(decode_image(png_of(5, 7, pixels, PNG_FORMAT_RGB), 1, image));
    EXPECT_EQ(image.size, (ImageSize{5, 7}));
    EXPECT_EQ(image.pixels, pixels);
    ASSERT_TRUE(decode_image(png_of(1, 2, {200, 100, 50, 0, 200, 100, 50, 255}, PNG_FORMAT_RGBA), 8,
                             image));
    EXPECT_EQ(image.pixels, (std::vector<std::uint8_t>{0, 0, 0, 200, 100, 50}));
}

TEST(ImageDecode, WhatIsDamagedIsAnErrorWhereverItEnds) {
    const std::string jpeg = jpeg_of(48, 100, red_and_blue(48, 100));
    const std::string png = png_of(48, 100, red_and_blue(48, 100), PNG_FORMAT_RGB);
    Image image;
    for (const std::string& whole : {jpeg, png}) {
        for (std::size_t size = 0; size + 8 < whole.size(); size += 7) {
            const Status read = decode_image(whole.substr(0, size), 8, image);
            ASSERT_FALSE(read) << size << " bytes of " << whole.size();
            EXPECT_EQ(read.error().code, Errc::invalid);
        }
    }
    EXPECT_EQ(decode_image(jpeg.substr(0, jpeg.size() - 40), 8, image).error().message,
              "JPEG: truncated");
    EXPECT_EQ(decode_image("", 8, image).error().message, "empty");
    EXPECT_EQ(decode_image("GIF89a", 8, image).error().message, "neither JPEG nor PNG");
}

TEST(ImageDecode, BytesThatAreChangedNeverCrash) {
    for (const std::string& whole : {jpeg_of(24, 20, red_and_blue(24, 20)),
                                     png_of(24, 20, red_and_blue(24, 20), PNG_FORMAT_RGB)}) {
        Image image;
        int read = 0;
        for (std::size_t i = 0; i < whole.size(); ++i) {
            std::string bytes = whole;
            bytes[i] = static_cast<char>(bytes[i] ^ 0x5A);
            // What a size of a header in between may ask for is not worth a test's time.
            const Result<ImageSize> size = image_size(bytes);
            if (size && size->height * size->width < 1'000'000) {
                read += decode_image(bytes, 8, image) ? 1 : 0;
            }
        }
        EXPECT_GT(read + 1, 0);
        ASSERT_TRUE(decode_image(whole, 8, image)) << "and the next image is not harmed by them";
        expect_near(pixel(image, 12, 2), {250, 20, 10}, 8);
    }
}

TEST(ImageDecode, WhatIsFarTooLargeIsRefusedBeforeMemoryIsTakenForIt) {
    std::string png = png_of(1, 1, {1, 2, 3}, PNG_FORMAT_RGB);
    png.replace(16, 8, std::string{"\x00\x00\xFF\xFF\x00\x00\xFF\xFF", 8});
    EXPECT_FALSE(image_size(png));
    std::string jpeg = jpeg_of(8, 8, red_and_blue(8, 8));
    const std::size_t frame = jpeg.find("\xFF\xC0");
    ASSERT_NE(frame, std::string::npos);
    jpeg.replace(frame + 5, 4, "\xFD\xE8\xFD\xE8");  // 65,000 each
    EXPECT_EQ(image_size(jpeg).error().message, "65000 × 65000 pixels are more than 100000000");
}

TEST(ImageDecode, AJpegOfEndlessScansIsGivenUp) {
    const std::string jpeg = jpeg_of(24, 20, red_and_blue(24, 20), JCS_RGB, 3, true);
    Image image;
    ASSERT_TRUE(decode_image(jpeg, 8, image)) << "ten scans";
    const std::size_t last = jpeg.rfind("\xFF\xDA");
    const std::string scan = jpeg.substr(last, jpeg.size() - 2 - last);
    std::string endless = jpeg.substr(0, jpeg.size() - 2);
    for (int i = 0; i < 300; ++i) {
        endless += scan;
    }
    EXPECT_EQ(decode_image(endless + "\xFF\xD9", 8, image).error().message,
              "JPEG: more than 200 scans");
}

TEST(ImageDecode, AnImageFileOfAnySizeIsNotRead) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder.path() / "c");
    ASSERT_TRUE(replace_file(folder.path() / "c" / "a.jpg", jpeg_of(8, 8, red_and_blue(8, 8))));
    std::filesystem::resize_file(folder.path() / "c" / "a.jpg", (64U << 20U) + 1);
    ImageFiles files{folder.path(), 4, false};
    files.add("c/a.jpg");
    std::vector<float> out(48);
    const Status read = files.read(0, 0, out.data());
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Errc::invalid);
    EXPECT_NE(read.error().message.find("c/a.jpg: larger than 64 MiB"), std::string::npos);
}

TEST(ImageCut, TheMiddleIsThatOfResizing) {
    EXPECT_EQ(middle_cut({256, 512}), (ImageCut{16, 144, 224, 224, false}));
    EXPECT_EQ(middle_cut({1, 1}), (ImageCut{0, 0, 1, 1, false}));
}

TEST(ImageCut, AtRandomItIsWithinTheImageAndDiffers) {
    for (const ImageSize size :
         {ImageSize{375, 500}, ImageSize{1, 1}, ImageSize{10, 3'000}, ImageSize{3'000, 10}}) {
        std::set<std::int64_t> tops;
        int mirrored = 0;
        double area = 0.0;
        for (std::uint64_t chance = 0; chance < 4'000; ++chance) {
            const ImageCut cut = random_cut(size, chance);
            ASSERT_EQ(cut, random_cut(size, chance));
            ASSERT_GE(std::min({cut.top, cut.left, cut.height - 1, cut.width - 1}), 0);
            ASSERT_LE(cut.top + cut.height, size.height);
            ASSERT_LE(cut.left + cut.width, size.width);
            tops.insert(cut.top);
            mirrored += cut.mirrored ? 1 : 0;
            area += static_cast<double>(cut.height * cut.width);
        }
        EXPECT_NEAR(mirrored, 2'000, 200);
        if (size == ImageSize{375, 500}) {
            EXPECT_GT(tops.size(), 200U);
            // Uniform in 8–100 % of the area, less what did not fit at either side.
            EXPECT_NEAR(area / 4'000 / (375 * 500), 0.47, 0.06);
        }
    }
}

// path/{train,val}/CLASS/…
class ImageFolderTest : public testing::Test {
  protected:
    void write(const std::string& name, const std::string& bytes) {
        const std::filesystem::path file = folder_.path() / name;
        std::filesystem::create_directories(file.parent_path());
        ASSERT_TRUE(replace_file(file, bytes));
    }
    void write_some(int classes) {
        for (int i = 0; i < classes; ++i) {
            const std::string number = "n" + std::to_string(10'000 + i).substr(1);
            write("train/" + number + "/b.JPEG", jpeg_);
            write("train/" + number + "/a.png", png_);
            write("val/" + number + "/c.jpg", jpeg_);
        }
    }
    TrainConfig config() const {
        TrainConfig out;
        out.dataset = TrainDataset::images;
        out.dataset_path = folder_.path().string();
        out.resize = 16;
        return out;
    }
    std::string why(const TrainConfig& config) const {
        const Result<Dataset> data = load_dataset(config, {});
        return data ? "loaded" : data.error().message;
    }

    TemporaryFolder folder_;
    std::string jpeg_ = jpeg_of(48, 100, red_and_blue(48, 100));
    std::string png_ = png_of(30, 20, red_and_blue(30, 20), PNG_FORMAT_RGB);
};

TEST_F(ImageFolderTest, ClassesAreNumberedByNameBeyondWhatAByteHolds) {
    write_some(300);
    write("train/n0000/notes.txt", "not an image");
    const Result<Dataset> data = load_dataset(config(), {});
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->classes, 300);
    EXPECT_EQ(data->train.count, 600U);
    EXPECT_EQ(data->test.count, 300U);
    EXPECT_EQ(data->train.input.files->path(0).filename(), "a.png");
    EXPECT_EQ(data->train.input.files->path(599), folder_.path() / "train/n0299/b.JPEG");
    for (const std::int32_t workers : {0, 3}) {
        Loader loader{data->train, 7, workers};
        std::vector<std::uint32_t> order(600);
        std::iota(order.rbegin(), order.rend(), 0U);
        loader.begin(order);
        std::size_t seen = 0;
        for (Batch batch = loader.next(); batch.size > 0; batch = loader.next()) {
            for (std::int64_t i = 0; i < batch.size; ++i, ++seen) {
                ASSERT_EQ(batch.target.indices()[i], order[seen] / 2);
            }
        }
        EXPECT_EQ(seen, 600U);
        EXPECT_TRUE(loader.status());
    }
}

TEST_F(ImageFolderTest, ATestImageIsItsMiddleAndATrainingImageDiffersFromEpochToEpoch) {
    write_some(1);
    const Dataset data = load_dataset(config(), {}).value();
    const std::size_t floats = 16 * 16 * 3;
    std::vector<float> test(floats);
    ASSERT_TRUE(data.test.input.files->read(0, 1, test.data()));
    EXPECT_NEAR(test[0], 250.0 / 255.0, 0.04) << "red at the left";
    EXPECT_NEAR(test[15 * 3 + 2], 250.0 / 255.0, 0.04) << "blue at the right";
    std::set<std::vector<float>> seen;
    for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
        std::vector<float> once(floats);
        std::vector<float> again(floats);
        ASSERT_TRUE(data.train.input.files->read(1, epoch, once.data()));
        ASSERT_TRUE(data.train.input.files->read(1, epoch, again.data()));
        EXPECT_EQ(once, again);
        seen.insert(once);
    }
    EXPECT_GT(seen.size(), 4U);
    TrainConfig plain = config();
    plain.augment = false;
    const Dataset middle = load_dataset(plain, {}).value();
    std::vector<float> first(floats);
    std::vector<float> second(floats);
    ASSERT_TRUE(middle.train.input.files->read(1, 1, first.data()));
    ASSERT_TRUE(middle.train.input.files->read(1, 2, second.data()));
    EXPECT_EQ(first, second);
    EXPECT_EQ(first, test) << "the same image, cut as one that is tested";
}

TEST_F(ImageFolderTest, WhatIsMissingOrNoImageIsNamedBeforeTheTraining) {
    EXPECT_NE(why(config()).find("train"), std::string::npos);
    write_some(2);
    EXPECT_EQ(why(config()), "loaded");
    write("val/other/x.jpg", jpeg_);
    EXPECT_NE(why(config()).find("train and val have different classes, \"other\" for one"),
              std::string::npos);
    std::filesystem::remove_all(folder_.path() / "val/other");
    write("train/n0001/a.png", "GIF89a");
    EXPECT_NE(why(config()).find("train/n0001/a.png: neither JPEG nor PNG"), std::string::npos);
    write("train/n0001/a.png", "");
    EXPECT_NE(why(config()).find("train/n0001/a.png: empty"), std::string::npos);
    std::filesystem::remove_all(folder_.path() / "val");
    std::filesystem::create_directories(folder_.path() / "val/n0000");
    std::filesystem::create_directories(folder_.path() / "val/n0001");
    write("train/n0001/a.png", png_);
    EXPECT_NE(why(config()).find("no .jpg, .jpeg or .png in its folders"), std::string::npos);
}

TEST_F(ImageFolderTest, AFileThatBreaksOffLaterEndsTheTrainingWithItsName) {
    write_some(10);
    write("train/n0004/b.JPEG", jpeg_.substr(0, jpeg_.size() - 60));
    const Dataset data = load_dataset(config(), {}).value();
    for (const std::int32_t workers : {0, 2}) {
        Loader loader{data.train, 2, workers};
        std::vector<std::uint32_t> order(20);
        std::iota(order.begin(), order.end(), 0U);
        loader.begin(order);
        while (loader.next().size > 0) {
        }
        EXPECT_NE(loader.ended().message.find("train/n0004/b.JPEG: JPEG: truncated"),
                  std::string::npos)
            << loader.ended().message;
        loader.begin({0, 1});
        EXPECT_EQ(loader.next().size, 2) << "what comes after begin() is not harmed";
        EXPECT_TRUE(loader.status());
    }
}

}  // namespace
}  // namespace lockstep
