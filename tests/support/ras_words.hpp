// What NCCL's RAS answers to STATUS in JSON, byte for byte as src/ras/client_support.cc of NCCL
// 2.30.7 formats it (jsonWriteHeader … jsonWriteFooter; the same lines in 2.29.2 and in 12df1a1 of
// 2.32). 2.28 leaves out a comma before the status of a rank that is missing. For doubles and
// tests: what it shows of NCCL is only that those sources were read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::test {

inline constexpr std::array kRasOperations{"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                           "AllReduce"};  // the order of ncclFunc_t

struct RasMember {
    int rank = 0;
    std::string host = "10.0.0.1";
    int pid = 0;
    std::array<std::uint64_t, 5> launched{};
    int init_state = 0;
    int async_error = 0;
    bool finalize_called = false;
    bool abort_flag = false;
    // Missing: then only these two are said.
    bool missing = false;
    bool unresponsive = false;
    bool dead = false;
};
struct RasGroup {
    std::uint64_t hash = 0x5ca1ab1e;
    int size = 0;  // 0: as many as there are members
    std::vector<RasMember> members;
};

inline std::string ras_words(const std::vector<RasGroup>& groups,
                             const std::string& version = "2.30.7") {
    const auto hex = [](std::uint64_t number) {
        static constexpr const char* kDigits = "0123456789abcdef";
        std::string out;
        do {
            out.insert(out.begin(), kDigits[number % 16]);
            number /= 16;
        } while (number != 0);
        return "0x" + out;
    };
    const auto word = [](bool yes) { return std::string{yes ? "true" : "false"}; };
    std::string out = "{\n  \"nccl_version\": \"" + version +
                      "\",\n  \"cuda_runtime_version\": 13000,\n"
                      "  \"cuda_driver_version\": 13000,\n"
                      "  \"timestamp\": \"2026-11-26 20:00:00\",\n"
                      "  \"communicators_count\": " +
                      std::to_string(groups.size()) + ",\n  \"communicators\": [\n";
    bool first_group = true;
    for (const RasGroup& group : groups) {
        std::size_t missing = 0;
        for (const RasMember& one : group.members) {
            missing += one.missing ? 1 : 0;
        }
        out += first_group ? "" : ",\n";
        first_group = false;
        out +=
            "    {\n      \"hash\": \"" + hex(group.hash) + "\",\n      \"secondary_hash\": \"" +
            hex(group.hash + 1) + ":" + hex(group.hash + 2) + "\",\n      \"size\": " +
            std::to_string(group.size == 0 ? static_cast<int>(group.members.size()) : group.size) +
            ",\n      \"ranks_count\": " + std::to_string(group.members.size() - missing) +
            ",\n      \"missing_ranks_count\": " + std::to_string(missing) +
            ",\n      \"ranks\": [\n";
        const bool no_comma = version.starts_with("2.28.");
        const auto begin = [&out, no_comma](const RasMember& one, bool& first) {
            out += std::string{first ? "" : ",\n"} +
                   "        {\n          \"rank\": " + std::to_string(one.rank) +
                   ",\n          \"host\": \"" + one.host +
                   "\",\n          \"pid\": " + std::to_string(one.pid) +
                   ",\n          \"cuda_dev\": 0,\n          \"nvml_dev\": 0" +
                   (one.missing && no_comma ? "" : ",") + "\n          \"status\": {\n";
            first = false;
        };
        bool first = true;
        for (const RasMember& one : group.members) {
            if (one.missing) {
                continue;
            }
            begin(one, first);
            out += "            \"init_state\": " + std::to_string(one.init_state) +
                   ",\n            \"async_error\": " + std::to_string(one.async_error) +
                   ",\n            \"finalize_called\": " + word(one.finalize_called) +
                   ",\n            \"destroy_flag\": false,\n            \"abort_flag\": " +
                   word(one.abort_flag) + "\n          },\n          \"collective_counts\": {\n";
            for (std::size_t op = 0; op < kRasOperations.size(); ++op) {
                out += "            \"" + std::string{kRasOperations[op]} +
                       "\": " + std::to_string(one.launched[op]) +
                       (op + 1 < kRasOperations.size() ? ",\n" : "\n");
            }
            out += "          }\n        }";
        }
        out += "\n      ],\n      \"missing_ranks\": [\n";
        first = true;
        for (const RasMember& one : group.members) {
            if (!one.missing) {
                continue;
            }
            begin(one, first);
            out += "            \"unresponsive\": " + word(one.unresponsive) +
                   ",\n            \"considered_dead\": " + word(one.dead) +
                   "\n          }\n        }";
        }
        out += "\n      ]\n    }";
    }
    return out +
           "\n  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.001,\n    \"timeouts_count\": 0\n"
           "  }\n}\n";
}

}  // namespace lockstep::test
