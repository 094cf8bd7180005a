#include "job/agent/nccl/inspector_metrics.hpp"

#include "job/base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace lockstep {
namespace {

constexpr double kGigabyte = 1e9;  // "GB/s" in the plugin: bytes ÷ 10⁹
constexpr double kMicrosecond = 1e-6;
// The largest that any link of today could be said to have, by far: a value beyond is no bandwidth.
constexpr double kMostBytesPerSecond = 1e15;

// NCCL's words (ncclFuncToString in inspector.cc) and ours. It gives AllToAll no bandwidth.
constexpr std::array<std::pair<std::string_view, std::size_t>, 9> kPluginWords{
    {{"AllReduce", 0},
     {"AllGather", 1},
     {"AllGatherV", 1},
     {"ReduceScatter", 2},
     {"Broadcast", 3},
     {"Reduce", 4},
     {"SendRecv", 5},
     {"Send", 6},
     {"Recv", 7}}};

const Json* member(const Json& object, const char* key) {
    if (!object.is_object()) {
        return nullptr;
    }
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
}

// Every element of object[key]; false: it is there and no array. What is not there is empty.
template <class Visit>
bool each(const Json& object, const char* key, const Visit& visit) {
    const Json* list = member(object, key);
    if (list == nullptr) {
        return object.is_object();
    }
    return list->is_array() && std::all_of(list->begin(), list->end(),
                                           [&visit](const Json& one) { return visit(one); });
}

std::uint64_t whole(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    return ec == std::errc{} && end == text.data() + text.size() ? value : 0;
}

// "512B", "1-2MB": at least so many bytes.
std::uint64_t size_from(std::string_view range) {
    std::uint64_t number = 0;
    const char* const end = range.data() + range.size();
    const auto [digits, ec] = std::from_chars(range.data(), end, number);
    if (ec != std::errc{} || number > (1U << 20U)) {
        return 0;
    }
    constexpr std::array<std::string_view, 4> kUnits{"KB", "MB", "GB", "TB"};
    for (std::size_t i = 0; i < kUnits.size(); ++i) {
        if (range.ends_with(kUnits[i])) {
            return number << (10 * (i + 1));
        }
    }
    return number;
}

struct Attributes {
    std::optional<std::size_t> operation;
    std::uint64_t nodes = 0;
    std::uint64_t ranks = 0;
    std::uint64_t bytes = 0;
    std::string_view communicator;
    std::string_view algorithm;
};

// Their values are all strings. False: not the form of OTLP.
bool read_attributes(const Json& point, Attributes& out) {
    return each(point, "attributes", [&out](const Json& one) {
        const Json* key = member(one, "key");
        const Json* holder = member(one, "value");
        if (key == nullptr || !key->is_string() || holder == nullptr) {
            return false;
        }
        const Json* text = member(*holder, "stringValue");
        if (text == nullptr || !text->is_string()) {
            return holder->is_object();
        }
        const auto& name = key->get_ref<const std::string&>();
        const auto& value = text->get_ref<const std::string&>();
        if (name == "collective" || name == "p2p_operation") {
            const auto known = std::find_if(kPluginWords.begin(), kPluginWords.end(),
                                            [&](const auto& pair) { return pair.first == value; });
            if (known != kPluginWords.end()) {
                out.operation = known->second;
            }
        } else if (name == "n_nodes") {
            out.nodes = whole(value);
        } else if (name == "nranks") {
            out.ranks = whole(value);
        } else if (name == "message_size") {
            out.bytes = size_from(value);
        } else if (name == "coll_msg_size_bytes" || name == "p2p_msg_size_bytes") {
            out.bytes = whole(value);
        } else if (name == "comm_name") {
            out.communicator = value;
        } else if (name == "algo_proto") {
            out.algorithm = value;
        }
        return true;
    });
}

using Quantity = InspectorQuantity;

std::optional<Quantity> quantity_of(std::string_view name) {
    if (name == "nccl_bus_bandwidth_gbs" || name == "nccl_p2p_bus_bandwidth_gbs") {
        return Quantity::bandwidth;
    }
    if (name == "nccl_collective_exec_time_microseconds" ||
        name == "nccl_p2p_exec_time_microseconds") {
        return Quantity::time;
    }
    return std::nullopt;
}

}  // namespace

bool tells_more(const InspectorValue& one, const InspectorValue& other) {
    return one.bytes > other.bytes ||
           (one.bytes == other.bytes && one.bytes_per_second < other.bytes_per_second);
}

namespace {

void take_bandwidth(std::optional<InspectorValue>& slot, const Attributes& what, double value) {
    if (!slot) {
        slot.emplace();
    }
    ++slot->values;
    InspectorValue other;
    other.bytes = what.bytes;
    other.bytes_per_second = value;
    if (slot->values == 1 || tells_more(other, *slot)) {
        slot->bytes_per_second = value;
        slot->bytes = what.bytes;
        slot->ranks = what.ranks;
    }
}

// Bandwidths come before times: the plugin writes metrics in the order of their names.
void take_time(std::optional<InspectorValue>& slot, const Attributes& what, double value) {
    if (slot && what.bytes == slot->bytes && what.ranks == slot->ranks) {
        slot->seconds = std::max(slot->seconds, value);
    }
}

bool take_point(const Json& point, Quantity quantity, const InspectorVisit& visit,
                InspectorPost& out) {
    Attributes what;
    if (!read_attributes(point, what)) {
        return false;
    }
    const Json* number = member(point, "asDouble");
    if (number == nullptr || !number->is_number()) {
        return false;
    }
    const bool bandwidth = quantity == Quantity::bandwidth;
    const double value = number->get<double>() * (bandwidth ? kGigabyte : kMicrosecond);
    if (!what.operation || what.nodes == 0 || !std::isfinite(value) || value <= 0 ||
        value > kMostBytesPerSecond) {
        ++out.skipped;
        return true;
    }
    if (visit) {
        visit({quantity, value, *what.operation, what.nodes, what.ranks, what.bytes,
               what.communicator, what.algorithm});
    }
    auto& slot = out.by_place.at(nccl_bandwidth_place(*what.operation, what.nodes > 1 ? 1 : 0));
    if (bandwidth) {
        take_bandwidth(slot, what, value);
    } else {
        take_time(slot, what, value);
    }
    return true;
}

bool take_metric(const Json& metric, const InspectorVisit& visit, InspectorPost& out) {
    const Json* name = member(metric, "name");
    if (name == nullptr || !name->is_string()) {
        return false;
    }
    const auto quantity = quantity_of(name->get_ref<const std::string&>());
    const Json* gauge = member(metric, "gauge");
    if (!quantity || gauge == nullptr) {
        return true;  // a sum or a histogram of somebody else's
    }
    return each(*gauge, "dataPoints",
                [&](const Json& point) { return take_point(point, *quantity, visit, out); });
}

}  // namespace

Result<InspectorPost> parse_inspector_post(std::string_view body, const InspectorVisit& visit) {
    const auto json = parse_json(body);
    LOCKSTEP_TRY(json);
    InspectorPost out;
    const bool good = each(*json, "resourceMetrics", [&](const Json& resource) {
        return each(resource, "scopeMetrics", [&](const Json& scope) {
            return each(scope, "metrics",
                        [&](const Json& metric) { return take_metric(metric, visit, out); });
        });
    });
    if (!good) {
        return fail(Errc::invalid, "not the form of OTLP's metrics");
    }
    return out;
}

}  // namespace lockstep
