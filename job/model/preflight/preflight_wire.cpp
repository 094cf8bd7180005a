// size: a reader and a writer for each type that is sent
// The pre-flight's values as they travel. What comes from an agent is bounded and made printable
// here: it ends in events and in people's terminals.
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/preflight/preflight.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t kAddresses = 8;
constexpr std::size_t kPaths = 64;
constexpr std::size_t kVersions = 16;
constexpr std::size_t kPeers = 64;  // more than ⌈log2⌉ of any number of nodes, and the ring
constexpr std::size_t kGpuLines = 64;
constexpr std::size_t kGpuProcesses = 16;
constexpr std::size_t kLinks = 64;  // of a GPU; NVML_NVLINK_MAX_LINKS is 18, from driver 590 on 36
constexpr std::size_t kNics = 256;

void clean(std::string& text) {
    text = printable(text);
}

// Takes an array of objects, item by item.
template <class F>
void each(ObjectReader& in, std::string_view key, std::size_t most, F&& take) {
    const Json* list = in.raw(key);
    if (list == nullptr) {
        return;
    }
    if (!list->is_array() || list->size() > most) {
        in.error(key, "must be an array of at most " + std::to_string(most));
        return;
    }
    for (const Json& item : *list) {
        take(item);
    }
}

Json path_json(const PathFact& path) {
    Json out = Json::object();
    out["use"] = path.use;
    out["path"] = path.path;
    out["answered"] = path.answered;
    out["error"] = path.error;
    out["directory"] = path.directory;
    out["enter"] = path.enter;
    out["write"] = path.write;
    out["free_mb"] = path.free_mb;
    return out;
}

PathFact read_path(const Json& json, std::vector<FieldError>& errors) {
    ObjectReader in{json, "/paths", errors};
    PathFact out;
    in.string("use", out.use, limits::kTextBytes);
    in.string("path", out.path, limits::kPathBytes);
    in.boolean("answered", out.answered);
    in.integer("error", out.error, 0, INT32_MAX);
    in.boolean("directory", out.directory);
    in.boolean("enter", out.enter);
    in.boolean("write", out.write);
    in.integer("free_mb", out.free_mb, -1, INT64_MAX);
    clean(out.use);
    clean(out.path);
    return out;
}

void read_versions(ObjectReader& in, NodeFacts& out, std::vector<FieldError>& errors) {
    const Json* versions = in.raw("versions");
    if (versions == nullptr || !versions->is_object() || versions->size() > kVersions) {
        in.error("versions", "must be an object");
        return;
    }
    ObjectReader map{*versions, "/versions", errors};
    for (const auto& [name, ignored] : versions->items()) {
        std::string value;
        map.string(name, value, limits::kTextBytes);
        out.versions[printable(name.substr(0, limits::kTextBytes))] = printable(value);
    }
}

Json gpu_json(const GpuFacts& gpu) {
    Json out = Json::object();
    out["driver"] = gpu.driver;
    out["count"] = gpu.count;
    out["faults"] = gpu.faults;
    out["doubts"] = gpu.doubts;
    out["health"] = to_json(gpu.health);
    out["unseen"] = gpu.unseen;
    return out;
}

Json health_json(const GpuHealth& gpu) {
    Json out = Json::object();
    out["gpu"] = gpu.gpu;
    out["bus"] = gpu.bus;
    out["model"] = gpu.model;
    out["lost"] = gpu.lost;
    out["ecc"] = gpu.ecc;
    out["remap"] = gpu.remap;
    out["remap_failed"] = gpu.remap_failed;
    out["pages"] = gpu.pages;
    out["recovery"] = gpu.recovery;
    out["mig"] = gpu.mig;
    out["slowdown"] = gpu.slowdown;
    out["temperature"] = gpu.temperature;
    out["memory_mb"] = gpu.memory_mb;
    out["others"] = Json::array();
    for (const GpuProcessFact& one : gpu.others) {
        out["others"].push_back(
            {{"pid", one.pid}, {"name", one.name}, {"memory_mb", one.memory_mb}});
    }
    out["links"] = gpu.links;
    out["links_down"] = gpu.links_down;
    out["link_errors"] = Json::array();
    for (const NvlinkErrors& one : gpu.link_errors) {
        out["link_errors"].push_back({{"link", one.link},
                                      {"crc", one.crc},
                                      {"replays", one.replays},
                                      {"recoveries", one.recoveries}});
    }
    return out;
}

void read_links(ObjectReader& in, GpuHealth& out, std::vector<FieldError>& errors) {
    constexpr std::int64_t kMost = kLinks - 1;
    in.integer("links", out.links, -1, kMost);
    each(in, "links_down", kLinks, [&](const Json& item) {
        const auto link = item.is_number_integer() ? item.get<std::int64_t>() : -1;
        if (link < 0 || link > kMost) {
            in.error("links_down", "must hold numbers of links");
            return;
        }
        out.links_down.push_back(static_cast<std::int32_t>(link));
    });
    each(in, "link_errors", kLinks, [&](const Json& item) {
        ObjectReader one{item, "/link_errors", errors};
        NvlinkErrors link;
        one.integer("link", link.link, 0, kMost);
        one.integer("crc", link.crc, 0, INT64_MAX);
        one.integer("replays", link.replays, 0, INT64_MAX);
        one.integer("recoveries", link.recoveries, 0, INT64_MAX);
        out.link_errors.push_back(link);
    });
}

GpuHealth read_health(const Json& json, std::vector<FieldError>& errors) {
    ObjectReader in{json, "/health", errors};
    GpuHealth out;
    in.integer("gpu", out.gpu, -1, INT32_MAX);
    in.string("bus", out.bus, limits::kTextBytes);
    in.string("model", out.model, limits::kTextBytes);
    in.string("lost", out.lost, limits::kTextBytes);
    in.integer("ecc", out.ecc, -1, INT64_MAX);
    in.integer("remap", out.remap, -1, 1);
    in.integer("remap_failed", out.remap_failed, -1, 1);
    in.integer("pages", out.pages, -1, 1);
    in.integer("recovery", out.recovery, -1, INT32_MAX);
    in.integer("mig", out.mig, -1, 1);
    in.integer("slowdown", out.slowdown, -1, INT64_MAX);
    in.integer("temperature", out.temperature, -1, INT32_MAX);
    in.integer("memory_mb", out.memory_mb, -1, INT64_MAX);
    each(in, "others", kGpuProcesses, [&](const Json& item) {
        ObjectReader one{item, "/others", errors};
        GpuProcessFact process;
        one.integer("pid", process.pid, 0, INT64_MAX);
        one.string("name", process.name, limits::kTextBytes);
        one.integer("memory_mb", process.memory_mb, -1, INT64_MAX);
        clean(process.name);
        out.others.push_back(std::move(process));
    });
    read_links(in, out, errors);
    clean(out.bus);
    clean(out.model);
    clean(out.lost);
    return out;
}

NicFact read_nic(const Json& json, std::vector<FieldError>& errors) {
    ObjectReader in{json, "/nics", errors};
    NicFact out;
    in.string("name", out.name, limits::kTextBytes);
    in.string("under", out.under, limits::kTextBytes);
    in.boolean("rdma", out.rdma);
    in.boolean("named", out.named);
    in.string("state", out.state, limits::kTextBytes);
    clean(out.name);
    clean(out.under);
    clean(out.state);
    return out;
}

// Takes an array that is a document of its own.
template <class T, class F>
Result<std::vector<T>> parse_all(const Json& json, std::size_t most, F&& read) {
    std::vector<FieldError> errors;
    std::vector<T> out;
    if (!json.is_array() || json.size() > most) {
        return fail(Errc::invalid, "must be an array of at most " + std::to_string(most));
    }
    for (const Json& item : json) {
        out.push_back(read(item, errors));
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return out;
}

void read_gpu(ObjectReader& in, GpuFacts& out, std::vector<FieldError>& errors) {
    const Json* json = in.raw("gpu");
    if (json == nullptr) {
        return;
    }
    ObjectReader gpu{*json, "/gpu", errors};
    gpu.boolean("driver", out.driver);
    gpu.integer("count", out.count, 0, limits::kGpusPerNode);
    gpu.strings("faults", out.faults, kGpuLines, limits::kTextBytes);
    gpu.strings("doubts", out.doubts, kGpuLines, limits::kTextBytes);
    gpu.strings("unseen", out.unseen, kGpuLines, limits::kTextBytes);
    each(gpu, "health", limits::kGpusPerNode,
         [&](const Json& item) { out.health.push_back(read_health(item, errors)); });
    std::for_each(out.unseen.begin(), out.unseen.end(), clean);
    std::for_each(out.faults.begin(), out.faults.end(), clean);
    std::for_each(out.doubts.begin(), out.doubts.end(), clean);
}

void read_addresses(ObjectReader& in, NodeFacts& out, std::vector<FieldError>& errors) {
    each(in, "addresses", kAddresses, [&](const Json& item) {
        ObjectReader one{item, "/addresses", errors};
        AddressFact fact;
        one.string("interface", fact.interface, limits::kTextBytes);
        one.string("address", fact.address, limits::kTextBytes);
        clean(fact.interface);
        clean(fact.address);
        out.addresses.push_back(std::move(fact));
    });
}

}  // namespace

Json to_json(const std::vector<GpuHealth>& gpus) {
    Json out = Json::array();
    for (const GpuHealth& gpu : gpus) {
        out.push_back(health_json(gpu));
    }
    return out;
}

Result<std::vector<GpuHealth>> parse_gpu_health(const Json& json) {
    return parse_all<GpuHealth>(json, limits::kGpusPerNode, read_health);
}

Json to_json(const std::vector<NicFact>& nics) {
    Json out = Json::array();
    for (const NicFact& nic : nics) {
        out.push_back({{"name", nic.name},
                       {"under", nic.under},
                       {"rdma", nic.rdma},
                       {"named", nic.named},
                       {"state", nic.state}});
    }
    return out;
}

Result<std::vector<NicFact>> parse_nics(const Json& json) {
    return parse_all<NicFact>(json, kNics, read_nic);
}

Json to_json(const NodeFacts& facts) {
    Json out = Json::object();
    out["versions"] = Json::object();
    for (const auto& [name, value] : facts.versions) {
        out["versions"][name] = value;
    }
    out["open_files"] = facts.open_files;
    out["memlock_kb"] = facts.memlock_kb;
    out["somaxconn"] = facts.somaxconn;
    out["rdma"] = facts.rdma;
    out["hostname"] = facts.hostname;
    out["hostname_answered"] = facts.hostname_answered;
    out["hostname_addresses"] = facts.hostname_addresses;
    out["addresses"] = Json::array();
    for (const AddressFact& one : facts.addresses) {
        out["addresses"].push_back({{"interface", one.interface}, {"address", one.address}});
    }
    out["probe_port"] = facts.probe_port;
    out["ports_problem"] = facts.ports_problem;
    out["ports_needed"] = facts.ports_needed;
    out["clock_known"] = facts.clock_known;
    out["clock_offset_ms"] = facts.clock_offset_ms;
    out["clock_error_ms"] = facts.clock_error_ms;
    out["paths"] = Json::array();
    for (const PathFact& path : facts.paths) {
        out["paths"].push_back(path_json(path));
    }
    out["gpu"] = gpu_json(facts.gpu);
    out["nics"] = to_json(facts.nics);
    out["cpu_test_ms"] = facts.cpu_test_ms;
    out["cpu_test_problem"] = facts.cpu_test_problem;
    if (facts.gpu_test.ran) {
        out["gpu_test"] = to_json(facts.gpu_test);
    }
    out["pair_port"] = facts.pair_port;
    out["nccl_port"] = facts.nccl_port;
    return out;
}

Result<NodeFacts> parse_node_facts(const Json& json) {
    constexpr std::int64_t kYear = std::int64_t{366} * 86'400'000;
    std::vector<FieldError> errors;
    NodeFacts out;
    ObjectReader in{json, "", errors};
    read_versions(in, out, errors);
    in.integer("open_files", out.open_files, -1, INT64_MAX);
    in.integer("memlock_kb", out.memlock_kb, -1, INT64_MAX);
    in.integer("somaxconn", out.somaxconn, -1, INT64_MAX);
    in.boolean("rdma", out.rdma);
    in.string("hostname", out.hostname, limits::kTextBytes);
    in.boolean("hostname_answered", out.hostname_answered);
    in.strings("hostname_addresses", out.hostname_addresses, kAddresses, limits::kTextBytes);
    read_addresses(in, out, errors);
    in.integer("probe_port", out.probe_port, 0, 65'535);
    in.string("ports_problem", out.ports_problem, limits::kTextBytes);
    in.integer("ports_needed", out.ports_needed, 0, 65'535);
    in.boolean("clock_known", out.clock_known);
    // A hundred years: a clock that has lost its battery shows 1970 and is still a finding.
    in.integer("clock_offset_ms", out.clock_offset_ms, -100 * kYear, 100 * kYear);
    in.integer("clock_error_ms", out.clock_error_ms, 0, kYear);
    each(in, "paths", kPaths,
         [&](const Json& item) { out.paths.push_back(read_path(item, errors)); });
    read_gpu(in, out.gpu, errors);
    each(in, "nics", kNics, [&](const Json& item) { out.nics.push_back(read_nic(item, errors)); });
    in.integer("cpu_test_ms", out.cpu_test_ms, -1, kYear);
    in.string("cpu_test_problem", out.cpu_test_problem, limits::kTextBytes);
    if (const Json* test = in.raw("gpu_test"); test != nullptr) {
        out.gpu_test = read_gpu_test(*test, errors);
    }
    in.integer("pair_port", out.pair_port, 0, 65'535);
    in.integer("nccl_port", out.nccl_port, 0, 65'535);
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    clean(out.hostname);
    std::for_each(out.hostname_addresses.begin(), out.hostname_addresses.end(), clean);
    clean(out.ports_problem);
    clean(out.cpu_test_problem);
    return out;
}

Json to_json(const std::vector<ProbePeer>& peers) {
    Json out = Json::array();
    for (const ProbePeer& peer : peers) {
        out.push_back({{"slot", peer.slot}, {"port", peer.port}, {"addresses", peer.addresses}});
    }
    return out;
}

Result<std::vector<ProbePeer>> parse_probe_peers(const Json& json) {
    std::vector<FieldError> errors;
    std::vector<ProbePeer> out;
    if (!json.is_array() || json.size() > static_cast<std::size_t>(limits::kNodes)) {
        return fail(Errc::invalid, "peers: must be an array");
    }
    for (const Json& item : json) {
        ObjectReader in{item, "/peers", errors};
        ProbePeer peer;
        in.integer("slot", peer.slot, 0, limits::kNodes);
        in.integer("port", peer.port, 1, 65'535);
        in.strings("addresses", peer.addresses, kAddresses, limits::kTextBytes);
        out.push_back(std::move(peer));
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return out;
}

Json to_json(const std::vector<ProbeResult>& results) {
    Json out = Json::array();
    for (const ProbeResult& one : results) {
        out.push_back({{"slot", one.to}, {"address", one.address}, {"error", one.error}});
    }
    return out;
}

Result<std::vector<ProbeResult>> parse_probe_results(const Json& json, std::int32_t from) {
    std::vector<FieldError> errors;
    std::vector<ProbeResult> out;
    if (!json.is_array() || json.size() > kPeers * kAddresses + limits::kNodes) {
        return fail(Errc::invalid, "results: must be an array");
    }
    for (const Json& item : json) {
        ObjectReader in{item, "/results", errors};
        ProbeResult one;
        one.from = from;
        in.integer("slot", one.to, 0, limits::kNodes);
        in.string("address", one.address, limits::kTextBytes);
        in.string("error", one.error, limits::kTextBytes);
        clean(one.address);
        clean(one.error);
        out.push_back(std::move(one));
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return out;
}

}  // namespace lockstep
