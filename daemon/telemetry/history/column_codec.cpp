#include "daemon/telemetry/history/column_codec.hpp"

#include "job/base/enum_table.hpp"
#include "job/model/wire/flat_bytes.hpp"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace lockstep::telemetry {
namespace {

// Level 1: the sorted bytes leave little for a longer search, which costs three times as much.
constexpr int kLevel = 1;
constexpr std::size_t kSample = 256;
constexpr std::size_t kMostValues = std::size_t{1} << 26U;

enum class Encoding : std::uint8_t { plain, xor_before, difference, second_difference };
constexpr std::size_t kEncodings = 4;
static_assert(is_count_of<Encoding, kEncodings>());

// Replaces each value by what it adds to those before it.
void reduce(Encoding encoding, std::span<const std::uint64_t> in, std::uint64_t* out) {
    std::uint64_t before = 0;
    std::uint64_t slope = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
        const std::uint64_t value = in[i];
        const std::uint64_t step = value - before;
        switch (encoding) {
            case Encoding::plain:
                out[i] = value;
                break;
            case Encoding::xor_before:
                out[i] = value ^ before;
                break;
            case Encoding::difference:
                out[i] = step;
                break;
            case Encoding::second_difference:
                out[i] = step - slope;
                break;
        }
        slope = step;
        before = value;
    }
}

void restore(Encoding encoding, std::span<std::uint64_t> values) {
    std::uint64_t before = 0;
    std::uint64_t slope = 0;
    for (std::uint64_t& value : values) {
        switch (encoding) {
            case Encoding::plain:
                break;
            case Encoding::xor_before:
                value ^= before;
                break;
            case Encoding::difference:
                value += before;
                break;
            case Encoding::second_difference:
                slope += value;
                value = before + slope;
                break;
        }
        before = value;
    }
}

// A small negative difference has many ones: fold the sign into the lowest bit.
std::uint64_t zigzag(std::uint64_t value) {
    return (value << 1U) ^ (0 - (value >> 63U));
}
std::uint64_t unzigzag(std::uint64_t value) {
    return (value >> 1U) ^ (0 - (value & 1U));
}
bool is_difference(Encoding encoding) {
    return encoding == Encoding::difference || encoding == Encoding::second_difference;
}

Encoding choose(std::span<const std::uint64_t> values) {
    const auto sample = values.first(std::min(values.size(), kSample));
    std::array<std::uint64_t, kSample> words{};
    Encoding best = Encoding::plain;
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for (std::size_t i = 0; i < kEncodings; ++i) {
        const auto encoding = static_cast<Encoding>(i);
        reduce(encoding, sample, words.data());
        std::size_t bits = 0;
        for (std::size_t k = 0; k < sample.size(); ++k) {
            const std::uint64_t word = is_difference(encoding) ? zigzag(words[k]) : words[k];
            bits += static_cast<std::size_t>(std::bit_width(word));
            bits -= word == 0 ? 0 : static_cast<std::size_t>(std::countr_zero(word));
        }
        if (bits < least) {
            least = bits;
            best = encoding;
        }
    }
    return best;
}

Status corrupt_column() {
    return fail(Errc::corrupt, "history: damaged column");
}

}  // namespace

struct ColumnCodec::Contexts {
    Contexts() : in(ZSTD_createCCtx()), out(ZSTD_createDCtx()) {
        ZSTD_CCtx_setParameter(in, ZSTD_c_compressionLevel, kLevel);
        ZSTD_CCtx_setParameter(in, ZSTD_c_checksumFlag, 1);
    }
    ~Contexts() {
        ZSTD_freeCCtx(in);
        ZSTD_freeDCtx(out);
    }
    Contexts(const Contexts&) = delete;
    Contexts& operator=(const Contexts&) = delete;
    ZSTD_CCtx* in;
    ZSTD_DCtx* out;
};

ColumnCodec::ColumnCodec() : contexts_(std::make_unique<Contexts>()) {}
ColumnCodec::~ColumnCodec() = default;

void ColumnCodec::pack(std::span<const std::uint64_t> values, std::string& out) {
    const Encoding encoding = choose(values);
    words_.resize(values.size());
    reduce(encoding, values, words_.data());
    bytes_.resize(values.size() * 8);
    for (std::size_t i = 0; i < words_.size(); ++i) {
        const std::uint64_t word = is_difference(encoding) ? zigzag(words_[i]) : words_[i];
        for (std::size_t byte = 0; byte < 8; ++byte) {
            bytes_[byte * words_.size() + i] = static_cast<unsigned char>(word >> (8 * byte));
        }
    }
    put_flat(out, static_cast<std::uint8_t>(encoding));
    put_flat(out, static_cast<std::uint32_t>(values.size()));
    const std::size_t size_at = out.size();
    put_flat(out, std::uint32_t{0});
    const std::size_t begin = out.size();
    out.resize(begin + ZSTD_compressBound(bytes_.size()));
    const std::size_t size = ZSTD_compress2(contexts_->in, out.data() + begin, out.size() - begin,
                                            bytes_.data(), bytes_.size());
    failed_ = failed_ || ZSTD_isError(size) != 0;
    out.resize(begin + (ZSTD_isError(size) != 0 ? 0 : size));
    const auto stored = static_cast<std::uint32_t>(out.size() - begin);
    std::memcpy(out.data() + size_at, &stored, sizeof stored);
}

void ColumnCodec::pack(std::span<const double> values, std::string& out) {
    std::vector<std::uint64_t> bits(values.size());
    std::memcpy(bits.data(), values.data(), values.size_bytes());
    pack(bits, out);
}

Status ColumnCodec::unpack(std::string_view& in, std::size_t count,
                           std::vector<std::uint64_t>& values) {
    std::uint8_t encoding = 0;
    std::uint32_t stored = 0;
    std::uint32_t size = 0;
    if (!take_flat(in, encoding) || !take_flat(in, stored) || !take_flat(in, size) ||
        encoding >= kEncodings || stored != count || count > kMostValues || size > in.size()) {
        return corrupt_column();
    }
    bytes_.resize(count * 8);
    const std::size_t got =
        ZSTD_decompressDCtx(contexts_->out, bytes_.data(), bytes_.size(), in.data(), size);
    in.remove_prefix(size);
    if (ZSTD_isError(got) != 0 || got != bytes_.size()) {
        return corrupt_column();
    }
    values.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t word = 0;
        for (std::size_t byte = 0; byte < 8; ++byte) {
            word |= static_cast<std::uint64_t>(bytes_[byte * count + i]) << (8 * byte);
        }
        values[i] = is_difference(static_cast<Encoding>(encoding)) ? unzigzag(word) : word;
    }
    restore(static_cast<Encoding>(encoding), values);
    return {};
}

Status ColumnCodec::unpack(std::string_view& in, std::size_t count, std::vector<double>& values) {
    const Status done = unpack(in, count, words_);
    if (done) {
        values.resize(count);
        std::memcpy(values.data(), words_.data(), count * sizeof(double));
    }
    return done;
}

Result<std::string> compress_bytes(std::string_view bytes) {
    std::string out(ZSTD_compressBound(bytes.size()), '\0');
    ZSTD_CCtx* context = ZSTD_createCCtx();
    if (context == nullptr) {
        return fail(Errc::exhausted, "history: no memory to compress in");
    }
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kLevel);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    const std::size_t size =
        ZSTD_compress2(context, out.data(), out.size(), bytes.data(), bytes.size());
    ZSTD_freeCCtx(context);
    if (ZSTD_isError(size) != 0) {
        return fail(Errc::exhausted, std::string{"history: "} + ZSTD_getErrorName(size));
    }
    out.resize(size);
    return out;
}

Result<std::string> decompress_bytes(std::string_view frame, std::size_t most) {
    const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > most) {
        return fail(Errc::corrupt, "history: damaged frame");
    }
    std::string out(static_cast<std::size_t>(size), '\0');
    const std::size_t got = ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size());
    if (ZSTD_isError(got) != 0 || got != out.size()) {
        return fail(Errc::corrupt, "history: damaged frame");
    }
    return out;
}

}  // namespace lockstep::telemetry
