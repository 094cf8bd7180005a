// Reads TensorBoard's event files as its own reader does: lengths, both CRCs, and the fields by the
// numbers in event.proto and summary.proto. Shares no code with what writes them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct ReadEvent {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string file_version;
    std::string tag;
    std::optional<float> value;
};

class EventReader {
  public:
    // Bit by bit, by the reflected polynomial.
    static std::uint32_t crc(std::string_view bytes) {
        std::uint32_t crc = 0xFFFFFFFFU;
        for (const char byte : bytes) {
            crc ^= static_cast<unsigned char>(byte);
            for (int bit = 0; bit < 8; ++bit) {
                crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
            }
        }
        return ~crc;
    }

    // Throws where the bytes are not such a file.
    static std::vector<ReadEvent> read(std::string_view bytes) {
        std::vector<ReadEvent> out;
        while (!bytes.empty()) {
            const std::string_view head = take(bytes, 8);
            check(head, number<std::uint32_t>(take(bytes, 4)));
            const std::string_view data = take(bytes, number<std::uint64_t>(head));
            check(data, number<std::uint32_t>(take(bytes, 4)));
            out.push_back(event(data));
        }
        return out;
    }

  private:
    using Fields = std::multimap<unsigned, std::string_view>;

    static void need(bool good) {
        if (!good) {
            throw std::runtime_error("not an event file");
        }
    }
    static std::string_view take(std::string_view& bytes, std::uint64_t count) {
        need(count <= bytes.size());
        const std::string_view out = bytes.substr(0, count);
        bytes.remove_prefix(count);
        return out;
    }
    template <class T>
    static T number(std::string_view bytes) {
        T out{};
        need(bytes.size() == sizeof out);
        std::memcpy(&out, bytes.data(), sizeof out);
        return out;
    }
    static void check(std::string_view bytes, std::uint32_t masked) {
        const std::uint32_t shifted = masked - 0xA282EAD8U;
        need(((shifted >> 17U) | (shifted << 15U)) == crc(bytes));
    }
    static std::uint64_t varint(std::string_view& bytes) {
        std::uint64_t out = 0;
        for (unsigned shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(bytes, 1)[0]);
            out |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
            if (byte < 0x80) {
                return out;
            }
        }
    }
    static Fields fields(std::string_view bytes) {
        Fields out;
        while (!bytes.empty()) {
            const std::uint64_t key = varint(bytes);
            const auto field = static_cast<unsigned>(key >> 3U);
            const std::string_view before = bytes;
            switch (key & 7U) {
                case 0:
                    varint(bytes);
                    out.emplace(field, before.substr(0, before.size() - bytes.size()));
                    break;
                case 1:
                    out.emplace(field, take(bytes, 8));
                    break;
                case 2:
                    out.emplace(field, take(bytes, varint(bytes)));
                    break;
                case 5:
                    out.emplace(field, take(bytes, 4));
                    break;
                default:
                    need(false);
            }
        }
        return out;
    }
    static ReadEvent event(std::string_view data) {
        ReadEvent out;
        for (const auto& [field, bytes] : fields(data)) {
            std::string_view left = bytes;
            switch (field) {
                case 1:
                    out.wall_time = number<double>(bytes);
                    break;
                case 2:
                    out.step = static_cast<std::int64_t>(varint(left));
                    break;
                case 3:
                    out.file_version = bytes;
                    break;
                case 5:
                    summary(bytes, out);
                    break;
                default:
                    need(false);
            }
        }
        return out;
    }
    static void summary(std::string_view bytes, ReadEvent& out) {
        for (const auto& [field, value] : fields(bytes)) {
            need(field == 1 && out.tag.empty());
            for (const auto& [inner, content] : fields(value)) {
                if (inner == 1) {
                    out.tag = content;
                } else {
                    need(inner == 2);
                    out.value = number<float>(content);
                }
            }
        }
    }
};

}  // namespace lockstep::cli
