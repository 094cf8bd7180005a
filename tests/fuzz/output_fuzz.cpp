// What a script prints, in two pieces, cut where its first byte says.
#include "job/agent/ranks/output_reader.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
    const std::size_t cut = std::min<std::size_t>(data[0], text.size());
    lockstep::OutputReader reader{lockstep::Capture{"auto", ""}};
    auto reports = reader.feed(text.substr(0, cut), 1);
    for (auto more : {reader.feed(text.substr(cut), 2), reader.end(3)}) {
        reports.insert(reports.end(), more.begin(), more.end());
    }
    // A line is one loss at the most, and no step is before the first.
    const auto lines = std::count_if(text.begin(), text.end(),
                                     [](char one) { return one == '\n' || one == '\r'; });
    if (static_cast<std::ptrdiff_t>(reports.size()) > lines + 1 ||
        std::any_of(reports.begin(), reports.end(),
                    [](const auto& report) { return report.step < 0; })) {
        std::abort();
    }
    return 0;
}
