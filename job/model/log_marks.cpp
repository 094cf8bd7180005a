#include "job/model/log_marks.hpp"

#include <utility>

namespace lockstep {
namespace {

void put_little(char* at, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
        at[i] = static_cast<char>(value >> (8 * i) & 0xffU);
    }
}

std::uint64_t take_little(const char* at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
        value |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
    }
    return value;
}

}  // namespace

std::array<char, kLogMarkBytes> encode_log_mark(const LogMark& mark) {
    std::array<char, kLogMarkBytes> out{};
    put_little(out.data(), static_cast<std::uint64_t>(mark.offset), 8);
    put_little(out.data() + 8, static_cast<std::uint64_t>(mark.time), 8);
    put_little(out.data() + 16, static_cast<std::uint32_t>(mark.generation), 4);
    return out;
}

LogMark decode_log_mark(const char* bytes) {
    LogMark mark;
    mark.offset = static_cast<std::int64_t>(take_little(bytes, 8));
    mark.time = static_cast<UnixMillis>(take_little(bytes + 8, 8));
    mark.generation = static_cast<std::int32_t>(take_little(bytes + 16, 4));
    return mark;
}

std::filesystem::path log_marks_path(std::filesystem::path log) {
    log.replace_extension(".times");
    return log;
}

}  // namespace lockstep
