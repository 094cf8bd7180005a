#include "job/model/preflight/nccl_test.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/preflight/json_lines.hpp"

#include <array>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kBlames{"unknown", "self", "partner"};
static_assert(names_all_of<NcclBlame>(kBlames));
constexpr std::int32_t kMostRanks = 2 * limits::kGpusPerNode;
constexpr std::int64_t kMostMbs = 1'000'000'000;  // far above what any link does
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40U;
constexpr std::int64_t kMostNs = 3'600'000'000'000;  // an hour

}  // namespace

std::string_view to_string(NcclBlame blame) {
    return kBlames.at(static_cast<std::size_t>(blame));
}

namespace {

void read_blame(ObjectReader& in, NcclBlame& out) {
    auto word = static_cast<std::size_t>(out);
    in.word("blames", word, {kBlames.begin(), kBlames.end()});
    out = static_cast<NcclBlame>(word);
}

void add_warning(std::string warning, NcclTestFact& out) {
    if (!warning.empty() && out.warnings.size() < limits::kNcclWarnings) {
        out.warnings.push_back(printable(warning));
    }
}

void read_end(ObjectReader& in, NcclTestAnswer& out) {
    NcclTestFact& fact = out.fact;
    in.integer("ranks", fact.ranks, 1, kMostRanks);
    in.integer("nodes", fact.nodes, 1, 2);
    in.integer("bytes", fact.bytes, 1, kMostBytes);
    in.integer("wrong", fact.wrong, 0, INT64_MAX);
    double bus = -1;
    double latency = -1;
    in.number("bus_bytes_per_second", bus, 0, static_cast<double>(kMostMbs) * 1e6);
    in.number("latency_seconds", latency, 0, static_cast<double>(kMostNs) / 1e9);
    for (const char* key : {"nodes", "bytes", "wrong", "bus_bytes_per_second", "latency_seconds"}) {
        if (!in.has(key)) {
            in.error(key, "is missing");
        }
    }
    fact.bus_mbs = bus < 0 ? -1 : std::llround(bus / 1e6);
    fact.latency_ns = latency < 0 ? -1 : std::llround(latency * 1e9);
    out.done = true;
}

void read_nccl_line(const Json& line, NcclTestAnswer& out, std::vector<FieldError>& errors) {
    ObjectReader in{line, "", errors};
    if (out.done || !out.error.empty()) {
        in.error("", "comes after the end");
    } else if (in.has("gpus")) {
        in.integer("gpus", out.fact.gpus, 0, limits::kGpusPerNode);
        in.string("nccl", out.fact.version, limits::kTextBytes);
        out.fact.version = printable(out.fact.version);
    } else if (in.has("stage")) {
        in.string("stage", out.stage, limits::kTextBytes);
        out.stage = printable(out.stage);
    } else if (in.has("warning")) {
        std::string warning;
        in.string("warning", warning, limits::kTextBytes);
        add_warning(std::move(warning), out.fact);
    } else if (in.has("ranks")) {
        read_end(in, out);
    } else {
        in.string("error", out.error, limits::kTextBytes);
        in.boolean("unloadable", out.fact.unloadable);
        read_blame(in, out.fact.blames);
        if (out.error.empty()) {
            in.error("error", "is missing");
        }
        out.error = printable(out.error);
    }
}

}  // namespace

bool same_shape(const NcclTestFact& a, const NcclTestFact& b) {
    return a.ranks == b.ranks && a.nodes == b.nodes;
}

Json to_json(const NcclTestFact& fact) {
    Json out = Json::object();
    out["version"] = fact.version;
    out["gpus"] = fact.gpus;
    out["ranks"] = fact.ranks;
    out["nodes"] = fact.nodes;
    out["bytes"] = fact.bytes;
    out["bus_mbs"] = fact.bus_mbs;
    out["latency_ns"] = fact.latency_ns;
    out["wrong"] = fact.wrong;
    out["unloadable"] = fact.unloadable;
    out["blames"] = to_string(fact.blames);
    out["warnings"] = fact.warnings;
    return out;
}

Result<NcclTestFact> parse_nccl_test_fact(const Json& json) {
    std::vector<FieldError> errors;
    NcclTestFact out;
    ObjectReader in{json, "", errors};
    in.string("version", out.version, limits::kTextBytes);
    in.integer("gpus", out.gpus, 0, limits::kGpusPerNode);
    in.integer("ranks", out.ranks, 0, kMostRanks);
    in.integer("nodes", out.nodes, 0, 2);
    in.integer("bytes", out.bytes, 0, kMostBytes);
    in.integer("bus_mbs", out.bus_mbs, -1, kMostMbs);
    in.integer("latency_ns", out.latency_ns, -1, kMostNs);
    in.integer("wrong", out.wrong, 0, INT64_MAX);
    in.boolean("unloadable", out.unloadable);
    read_blame(in, out.blames);
    std::vector<std::string> warnings;
    in.strings("warnings", warnings, limits::kNcclWarnings, limits::kTextBytes);
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    out.version = printable(out.version);
    for (std::string& warning : warnings) {
        add_warning(std::move(warning), out);
    }
    return out;
}

Result<NcclTestAnswer> parse_nccl_test_answer(std::string_view lines) {
    NcclTestAnswer out;
    if (lines.size() > limits::kNcclTestBytes) {
        return fail(Errc::invalid, "it says too much");
    }
    LOCKSTEP_TRY(each_json_line(lines, [&out](const Json& line, std::vector<FieldError>& errors) {
        read_nccl_line(line, out, errors);
    }));
    return out;
}

}  // namespace lockstep
