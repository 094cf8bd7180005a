// What Slurm's programs print and slurmrestd answers: users choose names, comments and reasons in
// it, and a node may run anything under these names.
#include "job/async/http_client.hpp"
#include "scheduler-integration/slurm/hostlist.hpp"
#include "scheduler-integration/slurm/rest_text.hpp"
#include "scheduler-integration/slurm/slurm_info.hpp"
#include "scheduler-integration/slurm/slurm_json.hpp"
#include "scheduler-integration/slurm/slurm_text.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace lockstep;
using namespace lockstep::rest;

ClientResponse answer(std::string_view body) {
    ClientResponse out;
    out.status = 200;
    out.body = std::string{body};
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
    ProgramOutput output;
    output.exit_status = 0;
    output.out = text;
    switch (data[0] % 14) {
        case 0:
            static_cast<void>(parse_sbatch(output));
            break;
        case 1:
            static_cast<void>(parse_test_only(output));
            break;
        case 2:
            static_cast<void>(parse_squeue(output, "fence"));
            break;
        case 3:
            static_cast<void>(parse_show_job(output, "train"));
            break;
        case 4:
            static_cast<void>(parse_sacct(output, 1000));
            break;
        case 5:
            static_cast<void>(parse_ping(output));
            static_cast<void>(parse_slurm_version(text));
            break;
        case 6:
            static_cast<void>(parse_show_config(output));
            break;
        case 7:
            static_cast<void>(parse_show_partitions(output));
            break;
        case 8:
            static_cast<void>(parse_sinfo_nodes(output));
            break;
        case 9:
            static_cast<void>(parse_slurm_jobs_json(text));
            break;
        case 10:
            static_cast<void>(parse_job_detail(answer(text), "ada"));
            static_cast<void>(parse_history(answer(text), "ada", 1));
            break;
        case 11:
            static_cast<void>(parse_partitions(answer(text), "ada"));
            static_cast<void>(parse_nodes(answer(text), "ada"));
            static_cast<void>(parse_ping_answer(answer(text), "ada"));
            break;
        case 12:
            static_cast<void>(read_token(text));
            static_cast<void>(submit_reply(answer(text), "ada"));
            break;
        default:
            // A short list names the same hosts in the same order.
            if (const auto names = expand_hostlist(text); names && !names->empty()) {
                const auto again = expand_hostlist(compress_hostlist(*names));
                if (!again || *again != *names) {
                    std::abort();
                }
            }
    }
    return 0;
}
