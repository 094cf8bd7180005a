// The test of NCCL between two nodes (preflight.nccl_test): lockstep-nccl-test sums values over
// every GPU of both with NCCL's all-reduce, one rank per GPU as training has it, so that NVLink
// within the nodes and every network port between them take part. Two rounds with other partners,
// as the test in pairs (pair_outcome.hpp). Pure values and functions; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Whose doing a failure is, by the word of one of the two.
enum class NcclBlame : std::uint8_t { unknown, self, partner };
std::string_view to_string(NcclBlame blame);

// What one node says of one round. -1: not measured.
struct NcclTestFact {
    std::string version;     // of NCCL: "2.32.3"; "" = it was not loaded
    std::int32_t gpus = 0;   // of this node that took part
    std::int32_t ranks = 0;  // of both nodes; 0 = they did not meet
    std::int32_t nodes = 0;  // 1: it was alone in the round
    std::int64_t bytes = 0;  // of the large all-reduce
    // MB/s, of the large one: 2 (ranks - 1) / ranks × bytes / time. So what a link carries can be
    // compared between different numbers of ranks: github.com/NVIDIA/nccl-tests,
    // doc/PERFORMANCE.md ("Bus bandwidth"). 0: one rank sends nothing.
    std::int64_t bus_mbs = -1;
    std::int64_t latency_ns = -1;  // of an all-reduce of 8 bytes, one after another
    std::int64_t wrong = 0;        // values of a sum that are not what they must be; each is exact
    bool unloadable = false;       // NCCL or the CUDA driver does not load here: nothing was tested
    NcclBlame blames = NcclBlame::unknown;
    // Of the program, and what NCCL's own diagnostics (2.31 and later) found worth a look. They
    // tell of ranks: those below `gpus` are this node's, the others the partner's.
    std::vector<std::string> warnings;

    bool operator==(const NcclTestFact&) const = default;
};
// Same ranks on as many nodes: their bandwidths may be compared.
bool same_shape(const NcclTestFact& a, const NcclTestFact& b);

Json to_json(const NcclTestFact& fact);
// invalid: not what to_json() makes, or over the limits. What it does not know it ignores.
Result<NcclTestFact> parse_nccl_test_fact(const Json& json);

// What lockstep-nccl-test says, in lines of JSON (job/nccl_test/main.cpp):
//   {"gpus":8,"nccl":"2.32.3"}       once both libraries are loaded
//   {"stage":"NCCL's initialisation"}  what it begins with
//   {"warning":"…"}
//   {"ranks":16,"nodes":2,"bytes":134217728,"bus_bytes_per_second":1.8e11,"latency_seconds":3e-5,
//    "wrong":0}                      the end
//   {"error":"…","blames":"partner","unloadable":false}  or why it did not come so far
// It may have been killed in the middle: what is missing then is no error, nor is a last line
// without its end. invalid: anything else that it would not say.
struct NcclTestAnswer {
    NcclTestFact fact;
    std::string stage;  // that it had reached
    std::string error;
    bool done = false;  // it has said the end
};
Result<NcclTestAnswer> parse_nccl_test_answer(std::string_view lines);

}  // namespace lockstep
