#include "job/cli/event_file.hpp"

#include <boost/crc.hpp>

#include <bit>
#include <cmath>
#include <limits>

namespace lockstep::cli {
namespace {

template <class T>
void put_little_endian(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof value; ++i) {
        out += static_cast<char>(static_cast<unsigned char>(value >> (8U * i)));
    }
}

// Base 128, lowest seven bits first.
void put_varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80U; value >>= 7U) {
        out += static_cast<char>((value & 0x7FU) | 0x80U);
    }
    out += static_cast<char>(value);
}

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_key(std::string& out, unsigned field, Wire wire) {
    put_varint(out, field << 3U | static_cast<unsigned>(wire));
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
    put_key(out, field, Wire::bytes);
    put_varint(out, bytes.size());
    out += bytes;
}

void put_wall_time(std::string& out, double seconds) {
    put_key(out, 1, Wire::fixed64);
    put_little_endian(out, std::bit_cast<std::uint64_t>(seconds));
}

float nearest_float(double value) {
    // What rounds beyond the largest is not for a cast: half a unit of its last place above it.
    constexpr double kBeyond = 0x1.ffffffp127;
    if (std::abs(value) >= kBeyond) {
        return std::copysign(std::numeric_limits<float>::infinity(), value > 0 ? 1.0F : -1.0F);
    }
    return static_cast<float>(value);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
    boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
    crc.process_bytes(bytes.data(), bytes.size());
    return crc.checksum();
}

std::uint32_t masked_crc32c(std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

void append_record(std::string& out, std::string_view data) {
    std::string length;
    put_little_endian(length, static_cast<std::uint64_t>(data.size()));
    out += length;
    put_little_endian(out, masked_crc32c(length));
    out += data;
    put_little_endian(out, masked_crc32c(data));
}

void append_version_event(std::string& out, double wall_time) {
    std::string event;
    put_wall_time(event, wall_time);
    put_bytes(event, 3, "brain.Event:2");
    append_record(out, event);
}

void append_scalar_event(std::string& out, double wall_time, std::int64_t step,
                         std::string_view tag, double value) {
    std::string scalar;
    put_bytes(scalar, 1, tag);
    put_key(scalar, 2, Wire::fixed32);
    put_little_endian(scalar, std::bit_cast<std::uint32_t>(nearest_float(value)));
    std::string summary;
    put_bytes(summary, 1, scalar);
    std::string event;
    put_wall_time(event, wall_time);
    put_key(event, 2, Wire::varint);
    put_varint(event, static_cast<std::uint64_t>(step));
    put_bytes(event, 5, summary);
    append_record(out, event);
}

}  // namespace lockstep::cli
