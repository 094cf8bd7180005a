// Sections of history as a damaged disk may have them: an error or values, as many as were asked
// for.
#include "daemon/telemetry/history/history_chunk.hpp"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    namespace telemetry = lockstep::telemetry;
    if (size < 2) {
        return 0;
    }
    static telemetry::ColumnCodec codec;
    const std::size_t rows = data[1];
    const std::string_view section{reinterpret_cast<const char*>(data) + 2, size - 2};
    const auto check = [rows](const auto& values) {
        if (values && values->size() != rows) {
            std::abort();
        }
    };
    switch (data[0] % 6) {
        case 0:
            static_cast<void>(telemetry::decode_rows(section));
            break;
        case 1:
            check(telemetry::decode_steps(section, rows, codec));
            break;
        case 2:
            check(telemetry::decode_times(section, rows, codec));
            break;
        case 3:
            check(telemetry::decode_values(section, rows, codec));
            break;
        case 4:
            if (const auto level = telemetry::decode_level(section, rows, codec);
                level && level->begin.size() != rows + 1) {
                std::abort();
            }
            break;
        default:
            if (const auto all = telemetry::decode_nonfinite(section, rows)) {
                for (const auto& one : *all) {
                    if (one.which >= rows) {
                        std::abort();
                    }
                }
            }
    }
    return 0;
}
