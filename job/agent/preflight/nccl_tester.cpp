#include "job/agent/preflight/nccl_tester.hpp"

#include "job/agent/diagnostics/nccl_ras.hpp"
#include "job/agent/preflight/helper_end.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kGiveUpNccl{500};
constexpr std::size_t kNcclWords = 240;  // of an error, which is one line of a table
constexpr HelperLimits kNcclHelper{limits::kNcclTestTimeout, kNcclWords};
constexpr std::int64_t kMsPerMbs = 1'000'000'000;

// What NCCL's diagnostics print where rank 0 is: the same in both rounds, but for the number that
// they give the communicator.
void take_diagnostics(const std::string& printed, NcclTestFact& out) {
    constexpr std::string_view kComm = " in comm 0x";
    for (std::string& one : diagnostics_found(printed)) {
        if (const auto at = one.find(kComm); at != std::string::npos) {
            const auto end = one.find_first_not_of("0123456789abcdef", at + kComm.size());
            one.erase(at, end == std::string::npos ? end : end - at);
        }
        if (out.warnings.size() < limits::kNcclWarnings) {
            out.warnings.push_back(one.substr(0, kNcclWords));
        }
    }
}

}  // namespace

ProcessCommand nccl_test_command(const std::string& program,
                                 const std::map<std::string, std::string>& environment,
                                 const Json& task) {
    ProcessCommand out;
    out.argv = {program};
    for (const auto& [name, value] : environment) {
        // Its output is kept here, and nobody is to find ranks of the job where there are none.
        const bool own = name.starts_with("LOCKSTEP_") || name.starts_with("SLURM_") ||
                         name.starts_with("NCCL_DEBUG") || name.starts_with("NCCL_RAS_") ||
                         name == "NCCL_RUN_RAS_DIAGNOSTICS" ||
                         name == "NCCL_COMM_ID";  // one address for every pair
        if (!own) {
            out.environment.push_back(name + "=" + value);
        }
    }
    out.environment.emplace_back("NCCL_DEBUG=WARN");
    // 2.31 and later: it compares drivers, GPUs, links and settings of all ranks beside the test.
    out.environment.emplace_back("NCCL_RUN_RAS_DIAGNOSTICS=1");
    out.input = dump_json(task);  // not where everybody on the machine reads the token
    out.timeout = limits::kNcclTestTimeout;
    out.give_up = kGiveUpNccl;
    out.output_bytes = limits::kNcclErrors;
    out.drop_excess = true;
    return out;
}

PairOutcome nccl_test_outcome(const Result<ProcessResult>& result) {
    PairOutcome out;
    if (!result) {
        out.absent = result.error().code == Errc::not_found;
        out.problem = helper_unstarted(result.error(), kNcclHelper);
        out.nccl.blames = NcclBlame::self;
        return out;
    }
    auto answer = parse_nccl_test_answer(result->out);
    if (!answer) {
        out.problem = "its answer is not understood: " +
                      printable(answer.error().message.substr(0, kNcclWords));
        out.nccl.blames = NcclBlame::self;
        return out;
    }
    out.nccl = std::move(answer->fact);
    take_diagnostics(result->err, out.nccl);
    const bool ended = !result->timed_out && !result->signal;
    if (!answer->error.empty()) {
        out.problem = answer->error;
    } else if (out.nccl.wrong > 0) {
        out.problem = std::to_string(out.nccl.wrong) + " wrong values in its sums";
    } else if (!answer->done || !ended || result->exit_status != 0) {
        out.problem = helper_end(*result, answer->stage, kNcclHelper);
        // One that had to be killed may have waited for the other; not if even that does not help.
        out.nccl.blames =
            result->timed_out && !result->abandoned ? NcclBlame::unknown : NcclBlame::self;
    } else {
        // What a terabyte takes on the bus.
        out.ms = out.nccl.bus_mbs > 0 ? kMsPerMbs / out.nccl.bus_mbs : 0;
    }
    out.problem = printable(out.problem.substr(0, kNcclWords));
    return out;
}

}  // namespace lockstep
