// What a rank posts in the place of NCCL's Inspector. Bytes stand for themselves, or are written
// over what the plugin posts.
#include "job/agent/nccl/inspector_metrics.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string posted() {
    const auto attribute = [](const char* key, const char* value) {
        return std::string{"{\"key\":\""} + key + "\",\"value\":{\"stringValue\":\"" + value +
               "\"}}";
    };
    const std::string attributes =
        "{\"attributes\":[" + attribute("n_nodes", "2") + "," + attribute("nranks", "4") + "," +
        attribute("message_size", "64-65MB") + "," + attribute("collective", "AllReduce") + "],";
    const auto metric = [&](const char* name, const char* value) {
        return std::string{"{\"name\":\""} + name + "\",\"gauge\":{\"dataPoints\":[" + attributes +
               "\"timeUnixNano\":\"1\",\"asDouble\":" + value + "}]}}";
    };
    return "{\"resourceMetrics\":[{\"resource\":{},\"scopeMetrics\":[{\"metrics\":[" +
           metric("nccl_bus_bandwidth_gbs", "25.1") + "," +
           metric("nccl_collective_exec_time_microseconds", "4000") + "]}]}]}";
}

void look(std::string_view body) {
    const auto post = lockstep::parse_inspector_post(body);
    if (!post) {
        return;
    }
    for (const auto& value : post->by_place) {
        if (value &&
            (!(value->bytes_per_second > 0) || !(value->seconds >= 0) || value->values == 0)) {
            std::abort();
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    look({reinterpret_cast<const char*>(data), size});
    std::string text = posted();
    // Two bytes where, one what.
    for (std::size_t at = 0; at + 3 <= size; at += 3) {
        text[(data[at] + 256U * data[at + 1]) % text.size()] = static_cast<char>(data[at + 2]);
    }
    look(text);
    return 0;
}
