// What a script prints, in two pieces, cut where its first byte says.
#include "job/agent/ranks/output_reader.hpp"

#include <algorithm>
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
    for (const auto& report : reports) {
        if (!report.has_loss || report.metrics.empty() || report.metrics.front().first != "loss") {
            std::abort();
        }
    }
    return 0;
}
