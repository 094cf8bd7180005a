#include "job/agent/ranks/standby_orders.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

// python, python3, python3.11
bool is_python(std::string_view program) {
    program = program.substr(program.rfind('/') + 1);
    return program.starts_with("python") &&
           std::all_of(program.begin() + 6, program.end(),
                       [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

// Read before the script begins, or by modules that it imports: by the linker, by the interpreter,
// by numerical libraries when they make their threads, by Lightning (which rank prints), by
// whoever looks for GPUs or for the size of the job.
bool is_read_by_imports(std::string_view name) {
    constexpr std::array<std::string_view, 6> kPrefixes{"LD_",  "PYTHON",    "OMP_",
                                                        "MKL_", "OPENBLAS_", "GLIBC_"};
    constexpr std::array<std::string_view, 13> kNames{"RANK",
                                                      "LOCAL_RANK",
                                                      "WORLD_SIZE",
                                                      "LOCAL_WORLD_SIZE",
                                                      "SLURM_PROCID",
                                                      "SLURM_NTASKS",
                                                      "SLURM_NPROCS",
                                                      "NNODES",
                                                      "NCCL_RAS_ADDR",
                                                      "CUDA_VISIBLE_DEVICES",
                                                      "HIP_VISIBLE_DEVICES",
                                                      "ROCR_VISIBLE_DEVICES",
                                                      "ZE_AFFINITY_MASK"};
    return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
           std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

constexpr char kEnd = '\0';

void add_arguments(std::string& out, const std::vector<std::string>& argv, std::size_t first) {
    out += '!';
    out += kEnd;
    for (std::size_t i = first; i < argv.size(); ++i) {
        out += '>' + argv[i] + kEnd;
    }
}

}  // namespace

Result<std::size_t> script_arguments(const std::vector<std::string>& argv) {
    if (argv.empty() || !is_python(argv.front())) {
        return fail(Errc::invalid, "its program is not python");
    }
    for (std::size_t i = 1; i < argv.size(); ++i) {
        const std::string& word = argv[i];
        if (word == "-" || word.starts_with("--")) {
            return fail(Errc::invalid, "not with python " + word);
        }
        if (!word.starts_with('-')) {
            return i + 1;
        }
        for (std::size_t at = 1; at < word.size(); ++at) {
            const char flag = word[at];
            const bool last = at + 1 == word.size();
            if (flag == 'W' || flag == 'X') {
                i += last ? 1 : 0;
                break;
            }
            if (flag == 'm') {
                return last ? i + 2 : i + 1;
            }
            // Without the hooks the process would not wait, but run the script at once.
            constexpr std::string_view kHarmless = "BOPbdqsuvx";
            if (kHarmless.find(flag) == std::string_view::npos) {
                return fail(Errc::invalid, std::string{"not with python -"} + flag);
            }
        }
    }
    return fail(Errc::invalid, "python has no script");
}

Result<std::string> standby_orders(const SpawnRequest& was, const SpawnRequest& is) {
    const auto first = script_arguments(is.argv);
    LOCKSTEP_TRY(first);
    const auto same_until = [&](std::size_t end) {
        return was.argv.size() >= end && is.argv.size() >= end &&
               std::equal(is.argv.begin(), is.argv.begin() + static_cast<std::ptrdiff_t>(end),
                          was.argv.begin());
    };
    if (was.program != is.program || !same_until(*first)) {
        return fail(Errc::invalid, "its command is another now");
    }
    if (was.directory != is.directory || was.binding.cpus != is.binding.cpus ||
        was.binding.memory_node != is.binding.memory_node) {
        return fail(Errc::invalid, "its folder or its CPUs are others now");
    }
    std::string out;
    for (const auto& [name, value] : was.environment) {
        if (is.environment.count(name) == 0) {
            if (is_read_by_imports(name)) {
                return fail(Errc::invalid, name + " is not set any more");
            }
            out += '-' + name + kEnd;
        }
    }
    for (const auto& [name, value] : is.environment) {
        const auto before = was.environment.find(name);
        if (before != was.environment.end() && before->second == value) {
            continue;
        }
        if (is_read_by_imports(name)) {
            return fail(Errc::invalid, name + " is another now");
        }
        out += '+' + name + '=' + value + kEnd;
    }
    if (was.argv != is.argv) {
        add_arguments(out, is.argv, *first);
    }
    return out;
}

}  // namespace lockstep
