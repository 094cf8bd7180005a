#include "job/trainer/safetensors.hpp"

#include "job/base/json.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kLengthBytes = 8;

std::optional<std::uint64_t> bytes_of_dtype(std::string_view dtype) {
    struct Row {
        std::string_view dtype;
        std::uint64_t bytes;
    };
    constexpr std::array<Row, 14> kRows{{{"F64", 8},
                                         {"I64", 8},
                                         {"U64", 8},
                                         {"F32", 4},
                                         {"I32", 4},
                                         {"U32", 4},
                                         {"F16", 2},
                                         {"BF16", 2},
                                         {"I16", 2},
                                         {"U16", 2},
                                         {"I8", 1},
                                         {"U8", 1},
                                         {"BOOL", 1},
                                         {"F8_E4M3", 1}}};
    for (const Row& row : kRows) {
        if (row.dtype == dtype) {
            return row.bytes;
        }
    }
    return std::nullopt;
}

// A size or an offset; no file is larger.
std::optional<std::uint64_t> bounded(const Json& value) {
    if (!value.is_number_integer()) {
        return std::nullopt;
    }
    const auto number = value.get<std::int64_t>();
    return number >= 0 && static_cast<std::uint64_t>(number) <= limits::kSafetensorsValueBytes
               ? std::optional{static_cast<std::uint64_t>(number)}
               : std::nullopt;
}

Result<TensorEntry> parse_entry(const Json& json) {
    TensorEntry out;
    const auto wrong = [](std::string what) { return fail(Errc::invalid, std::move(what)); };
    if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
        !json.contains("shape") || !json["shape"].is_array() || !json.contains("data_offsets") ||
        !json["data_offsets"].is_array() || json["data_offsets"].size() != 2) {
        return wrong("must have dtype, shape and data_offsets");
    }
    out.dtype = json["dtype"].get<std::string>();
    const std::optional<std::uint64_t> each = bytes_of_dtype(out.dtype);
    if (!each) {
        return wrong("dtype \"" + out.dtype.substr(0, 16) + "\" is not known");
    }
    if (json["shape"].size() > limits::kSafetensorsDimensions) {
        return wrong("more than " + std::to_string(limits::kSafetensorsDimensions) + " dimensions");
    }
    std::uint64_t bytes = *each;
    for (const Json& side : json["shape"]) {
        const std::optional<std::uint64_t> size = bounded(side);
        if (!size || (*size != 0 && bytes > limits::kSafetensorsValueBytes / *size)) {
            return wrong("a shape that no file has");
        }
        bytes *= *size;
        out.shape.push_back(static_cast<std::int64_t>(*size));
    }
    const std::optional<std::uint64_t> begin = bounded(json["data_offsets"][0]);
    const std::optional<std::uint64_t> end = bounded(json["data_offsets"][1]);
    if (!begin || !end || *end < *begin || *end - *begin != bytes) {
        return wrong("data_offsets are not of " + std::to_string(bytes) + " bytes, its shape's");
    }
    out.begin = *begin;
    out.end = *end;
    return out;
}

// Reads exactly so many bytes at `offset`.
Status read_at(int file, std::uint64_t offset, char* out, std::size_t bytes) {
    while (bytes > 0) {
        const auto got = ::pread(file, out, bytes, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail(errno_error("read", errno));
        }
        if (got == 0) {
            return fail(Errc::corrupt, "ends too early");
        }
        out += got;
        offset += static_cast<std::uint64_t>(got);
        bytes -= static_cast<std::size_t>(got);
    }
    return {};
}

}  // namespace

std::string encode_safetensors(std::span<const NamedTensor> tensors,
                               const std::vector<std::pair<std::string, std::string>>& metadata) {
    Json header = Json::object();
    header["__metadata__"] = Json::object();
    for (const auto& [key, value] : metadata) {
        header["__metadata__"][key] = value;
    }
    std::uint64_t offset = 0;
    for (const NamedTensor& tensor : tensors) {
        const std::uint64_t end = offset + tensor.values.size() * sizeof(float);
        header[tensor.name] = {
            {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text = dump_json(header);
    text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
    const std::uint64_t length = text.size();
    std::string out(kLengthBytes, '\0');
    std::memcpy(out.data(), &length, kLengthBytes);
    out.reserve(kLengthBytes + text.size() + offset);
    out += text;
    for (const NamedTensor& tensor : tensors) {
        out.append(reinterpret_cast<const char*>(tensor.values.data()),
                   tensor.values.size() * sizeof(float));
    }
    return out;
}

Result<std::map<std::string, TensorEntry>> parse_safetensors_header(std::string_view json,
                                                                    std::uint64_t bytes) {
    const Result<Json> header = parse_json(json);
    if (!header || !header->is_object()) {
        return fail(Errc::invalid,
                    "header: " + (header ? "not an object" : header.error().message));
    }
    std::map<std::string, TensorEntry> out;
    std::vector<const std::pair<const std::string, TensorEntry>*> by_place;
    for (const auto& [name, value] : header->items()) {
        if (name == "__metadata__") {
            continue;
        }
        Result<TensorEntry> entry = parse_entry(value);
        if (!entry) {
            return fail(std::move(entry).error().in("tensor " + name.substr(0, 200)));
        }
        by_place.push_back(&*out.emplace(name, std::move(*entry)).first);
    }
    std::sort(by_place.begin(), by_place.end(), [](const auto* a, const auto* b) {
        return std::pair{a->second.begin, a->second.end} <
               std::pair{b->second.begin, b->second.end};
    });
    std::uint64_t next = 0;
    for (const auto* each : by_place) {
        if (each->second.begin != next) {
            return fail(Errc::invalid, "tensor " + each->first.substr(0, 200) +
                                           ": does not begin where the one before ends");
        }
        next = each->second.end;
    }
    if (next != bytes) {
        return fail(Errc::invalid, "the tensors have " + std::to_string(next) +
                                       " bytes of values, the file " + std::to_string(bytes));
    }
    return out;
}

Result<TensorFile> TensorFile::open(const std::filesystem::path& path) {
    TensorFile out;
    out.path_ = path;
    // A pipe is not waited for.
    out.file_ = UniqueFd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (!out.file_) {
        return fail(errno_error("open " + path.string(), errno));
    }
    struct stat info{};
    if (::fstat(out.file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return fail(Errc::denied, path.string() + ": not a regular file");
    }
    const auto size = static_cast<std::uint64_t>(info.st_size);
    const auto wrong = [&](const std::string& what) {
        return fail(Errc::invalid, path.string() + ": not a safetensors file: " + what);
    };
    std::uint64_t length = 0;
    if (size < kLengthBytes ||
        !read_at(out.file_.get(), 0, reinterpret_cast<char*>(&length), kLengthBytes)) {
        return wrong(std::to_string(size) + " bytes");
    }
    if (length > limits::kSafetensorsHeaderBytes || length > size - kLengthBytes) {
        return wrong(
            "a header of " + std::to_string(length) + " bytes, at most " +
            std::to_string(std::min(limits::kSafetensorsHeaderBytes, size - kLengthBytes)) +
            " here");
    }
    std::string json(length, '\0');
    if (!read_at(out.file_.get(), kLengthBytes, json.data(), json.size())) {
        return wrong("it cannot be read");
    }
    out.values_ = kLengthBytes + length;
    Result<std::map<std::string, TensorEntry>> entries =
        parse_safetensors_header(json, size - out.values_);
    if (!entries) {
        return wrong(entries.error().message);
    }
    out.entries_ = std::move(*entries);
    return out;
}

Result<std::string> TensorFile::read(const TensorEntry& entry) const {
    std::string bytes(entry.end - entry.begin, '\0');
    if (const Status got = read_at(file_.get(), values_ + entry.begin, bytes.data(), bytes.size());
        !got) {
        return fail(Error{got.error()}.in(path_.string()));
    }
    return bytes;
}

}  // namespace lockstep
