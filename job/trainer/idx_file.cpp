#include "job/trainer/idx_file.hpp"

#include "job/base/files.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <zlib.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;

std::uint32_t big_endian(std::string_view bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        value = (value << 8U) | static_cast<std::uint8_t>(bytes[at + i]);
    }
    return value;
}

void append_big_endian(std::string& bytes, std::uint32_t value) {
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
        bytes.push_back(static_cast<char>((value >> shift) & 0xFFU));
    }
}

struct CloseGzip {
    void operator()(gzFile file) const { gzclose(file); }
};

// What gzip packed into the file.
Result<std::string> read_gzip(const std::filesystem::path& path) {
    const std::unique_ptr<gzFile_s, CloseGzip> file{gzopen(path.c_str(), "rb")};
    if (!file) {
        return fail(Errc::not_found, path.string() + ": cannot be opened");
    }
    std::string bytes;
    std::string block(1U << 20U, '\0');
    for (;;) {
        const int count = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()));
        int code = Z_OK;
        const char* reason = gzerror(file.get(), &code);
        if (count < 0 || (code != Z_OK && code != Z_STREAM_END)) {
            return fail(Errc::invalid,
                        path.string() + ": gzip: " + (code == Z_BUF_ERROR ? "truncated" : reason));
        }
        if (count == 0) {
            return bytes;
        }
        if (bytes.size() + static_cast<std::size_t>(count) > limits::kIdxFileBytes) {
            return fail(Errc::invalid, path.string() + ": unpacks to more than " +
                                           std::to_string(limits::kIdxFileBytes) + " bytes");
        }
        bytes.append(block, 0, static_cast<std::size_t>(count));
    }
}

}  // namespace

Result<IdxFile> read_idx(const std::filesystem::path& path, std::uint32_t dimensions) {
    const Result<std::string> bytes =
        path.extension() == ".gz" ? read_gzip(path) : read_file(path, limits::kIdxFileBytes);
    LOCKSTEP_TRY(bytes);
    const auto wrong = [&](const std::string& what) {
        return fail(Errc::invalid, path.string() + ": " + what);
    };
    if (bytes->size() < 4) {
        return wrong("not an IDX file: only " + std::to_string(bytes->size()) + " bytes");
    }
    const std::uint32_t magic = big_endian(*bytes, 0);
    const std::uint32_t want = (std::uint32_t{kUnsignedByte} << 8U) | dimensions;
    if (magic != want) {
        const bool packed = (magic >> 16U) == 0x1F8BU;
        return wrong("magic number is " + std::to_string(magic) + ", must be " +
                     std::to_string(want) +
                     (packed ? " (compressed: its name must end in .gz)" : ""));
    }
    IdxFile file;
    std::size_t expected = 1;
    const std::size_t header = 4 + std::size_t{4} * dimensions;
    if (bytes->size() < header) {
        return wrong("truncated: the header alone has " + std::to_string(header) + " bytes");
    }
    for (std::uint32_t i = 0; i < dimensions; ++i) {
        file.sizes.push_back(big_endian(*bytes, 4 + std::size_t{4} * i));
        if (file.sizes.back() == 0 || expected > limits::kIdxFileBytes / file.sizes.back()) {
            return wrong("a size of " + std::to_string(file.sizes.back()) + " makes no sense");
        }
        expected *= file.sizes.back();
    }
    if (bytes->size() - header != expected) {
        return wrong(std::string{bytes->size() - header < expected ? "truncated" : "too long"} +
                     ": " + std::to_string(bytes->size() - header) + " bytes of values, must be " +
                     std::to_string(expected));
    }
    file.values.resize(expected);
    std::memcpy(file.values.data(), bytes->data() + header, expected);
    return file;
}

Status write_idx(const std::filesystem::path& path, const IdxFile& file) {
    std::string bytes;
    bytes.reserve(16 + file.values.size());
    append_big_endian(bytes, (std::uint32_t{kUnsignedByte} << 8U) |
                                 static_cast<std::uint32_t>(file.sizes.size()));
    for (const std::uint32_t size : file.sizes) {
        append_big_endian(bytes, size);
    }
    bytes.append(reinterpret_cast<const char*>(file.values.data()), file.values.size());
    return write_file_atomic(path, bytes);
}

}  // namespace lockstep
