#include "job/trainer/image_decode.hpp"

#include "job/trainer/trainer_limits.hpp"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

// After <cstdio>: it uses FILE and does not include it.
#include <jerror.h>
#include <jpeglib.h>

namespace lockstep {
namespace {

bool is_jpeg(std::string_view bytes) {
    return bytes.starts_with("\xFF\xD8\xFF");
}

bool is_png(std::string_view bytes) {
    return bytes.starts_with("\x89PNG\r\n\x1A\n");
}

Status check_size(const ImageSize& size) {
    if (size.height < 1 || size.width < 1 || size.height > limits::kImagePixels / size.width) {
        return fail(Errc::invalid, std::to_string(size.width) + " × " +
                                       std::to_string(size.height) + " pixels are more than " +
                                       std::to_string(limits::kImagePixels));
    }
    return {};
}

// libjpeg reports what it cannot go on with through a function that must not return.
struct JpegErrors {
    jpeg_error_mgr manager;  // first: libjpeg hands out its address
    std::jmp_buf leave;
    jpeg_progress_mgr progress;
    bool cut_off;
    char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr info) {
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    info->err->format_message(info, errors->text);
    std::longjmp(errors->leave, 1);
}

// Warnings are of damage that libjpeg gets over. ImageNet has some that nobody sees; of a file that
// ends too early most is missing.
void note_warning(j_common_ptr info, int level) {
    if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) {
        reinterpret_cast<JpegErrors*>(info->err)->cut_off = true;
    }
}

void limit_scans(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > limits::kJpegScans) {
        auto* errors = reinterpret_cast<JpegErrors*>(info->err);
        std::snprintf(errors->text, sizeof errors->text, "more than %d scans", limits::kJpegScans);
        std::longjmp(errors->leave, 1);
    }
}

void begin(jpeg_decompress_struct& jpeg, JpegErrors& errors) {
    jpeg.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = leave;
    errors.manager.emit_message = note_warning;
    errors.cut_off = false;
    errors.text[0] = '\0';
    jpeg_create_decompress(&jpeg);
    errors.progress.progress_monitor = limit_scans;
    jpeg.progress = &errors.progress;
    jpeg.mem->max_memory_to_use = limits::kJpegMemoryBytes;
}

// `row` is filled from its end backwards into itself: three bytes out of one or four.
void widen_grey(std::uint8_t* row, std::size_t width) {
    for (std::size_t x = width; x-- > 0;) {
        const std::uint8_t grey = row[x];
        std::fill_n(row + x * kImageColours, kImageColours, grey);
    }
}

// Adobe's files, and there are no others, have the inks inverted: 255 is none.
void narrow_inks(const std::uint8_t* inks, std::uint8_t* row, std::size_t width) {
    for (std::size_t x = 0; x < width; ++x) {
        for (std::size_t c = 0; c < kImageColours; ++c) {
            row[x * kImageColours + c] =
                static_cast<std::uint8_t>(inks[x * 4 + c] * inks[x * 4 + kImageColours] / 255);
        }
    }
}

// No object with a destructor may live in a function that longjmp leaves or enters: the caller owns
// what is allocated. False: `errors` says why. With `out` nullptr only `size` is filled.
bool read_jpeg(std::string_view bytes, int eighths, jpeg_decompress_struct& jpeg,
               JpegErrors& errors, ImageSize& size, Image* out, std::vector<std::uint8_t>& inks) {
    if (setjmp(errors.leave) != 0) {
        return false;
    }
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&jpeg, TRUE);
    size = {static_cast<std::int64_t>(jpeg.image_height),
            static_cast<std::int64_t>(jpeg.image_width)};
    if (out == nullptr) {
        return true;
    }
    const bool has_inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    const bool grey = jpeg.jpeg_color_space == JCS_GRAYSCALE;
    jpeg.out_color_space = has_inks ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
    jpeg.scale_num = static_cast<unsigned>(eighths);
    jpeg.scale_denom = 8;
    jpeg_start_decompress(&jpeg);
    const std::size_t width = jpeg.output_width;
    out->size = {static_cast<std::int64_t>(jpeg.output_height), static_cast<std::int64_t>(width)};
    out->pixels.resize(width * jpeg.output_height * kImageColours);
    inks.resize(has_inks ? width * 4 : 0);
    while (jpeg.output_scanline < jpeg.output_height) {
        std::uint8_t* row = out->pixels.data() + jpeg.output_scanline * width * kImageColours;
        std::uint8_t* line = has_inks ? inks.data() : row;
        jpeg_read_scanlines(&jpeg, &line, 1);
        if (has_inks) {
            narrow_inks(inks.data(), row, width);
        } else if (grey) {
            widen_grey(row, width);
        }
    }
    jpeg_finish_decompress(&jpeg);
    return true;
}

Status jpeg(std::string_view bytes, int eighths, ImageSize& size, Image* out) {
    jpeg_decompress_struct info{};
    JpegErrors errors{};
    std::vector<std::uint8_t> inks;
    begin(info, errors);
    const bool read = read_jpeg(bytes, eighths, info, errors, size, out, inks);
    jpeg_destroy_decompress(&info);
    if (!read) {
        return fail(Errc::invalid, std::string{"JPEG: "} + errors.text);
    }
    if (errors.cut_off) {
        return fail(Errc::invalid, "JPEG: truncated");
    }
    return check_size(size);
}

Status png(std::string_view bytes, ImageSize& size, Image* out) {
    png_image info{};
    info.version = PNG_IMAGE_VERSION;
    const auto failed = [&] {
        std::string why = std::string{"PNG: "} + info.message;
        png_image_free(&info);
        return fail(Errc::invalid, std::move(why));
    };
    if (png_image_begin_read_from_memory(&info, bytes.data(), bytes.size()) == 0) {
        return failed();
    }
    size = {static_cast<std::int64_t>(info.height), static_cast<std::int64_t>(info.width)};
    if (const Status fits = check_size(size); !fits || out == nullptr) {
        png_image_free(&info);
        return fits;
    }
    info.format = PNG_FORMAT_RGB;
    out->size = size;
    out->pixels.resize(static_cast<std::size_t>(size.height * size.width) * kImageColours);
    const png_color black{};
    if (png_image_finish_read(&info, &black, out->pixels.data(), 0, nullptr) == 0) {
        return failed();
    }
    png_image_free(&info);
    return {};
}

Status read(std::string_view bytes, int eighths, ImageSize& size, Image* out) {
    if (is_jpeg(bytes)) {
        return jpeg(bytes, eighths, size, out);
    }
    if (is_png(bytes)) {
        return png(bytes, size, out);
    }
    return fail(Errc::invalid, bytes.empty() ? "empty" : "neither JPEG nor PNG");
}

}  // namespace

Result<ImageSize> image_size(std::string_view bytes) {
    ImageSize size;
    const Status done = read(bytes, 8, size, nullptr);
    return done ? Result<ImageSize>{size} : fail(done.error());
}

Status decode_image(std::string_view bytes, int eighths, Image& out) {
    const Result<ImageSize> size = image_size(bytes);  // before memory is taken for it
    if (!size) {
        return fail(size.error());
    }
    ImageSize same;
    return read(bytes, std::clamp(eighths, 1, 8), same, &out);
}

}  // namespace lockstep
