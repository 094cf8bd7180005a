#include "job/model/spec/spec_secrets.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// Of schedulers, process managers, communication libraries and frameworks, and LD_PRELOAD's kin.
constexpr std::array<std::string_view, 25> kForeignPrefixes{
    "LOCKSTEP_", "SLURM_", "SLURMD_",       "SBATCH_",  "SRUN_",
    "SALLOC_",   "PMI_",   "PMI2_",         "PMIX_",    "OMPI_",
    "PRTE_",     "MPI_",   "JSM_",          "MV2_",     "NCCL_",
    "GLOO_",     "TORCH_", "TORCHELASTIC_", "HOROVOD_", "PADDLE_",
    "LD_",       "FLAGS_", "PYTHON",        "BASH_",    "KERAS_DISTRIBUTION_"};
constexpr std::array<std::string_view, 27> kForeignNames{"PATH",
                                                         "HOME",
                                                         "USER",
                                                         "LOGNAME",
                                                         "SHELL",
                                                         "PWD",
                                                         "OLDPWD",
                                                         "SHLVL",
                                                         "TMPDIR",
                                                         "LANG",
                                                         "TZ",
                                                         "TERM",
                                                         "IFS",
                                                         "ENV",
                                                         "PS4",
                                                         "SHELLOPTS",
                                                         "KERAS_BACKEND",
                                                         "OMP_NUM_THREADS",
                                                         "GRPC_FAIL_FAST",
                                                         "ACCELERATE_USE_CPU",
                                                         "no_proxy",
                                                         "NO_PROXY",
                                                         "CUDA_VISIBLE_DEVICES",
                                                         "ROCR_VISIBLE_DEVICES",
                                                         "HIP_VISIBLE_DEVICES",
                                                         "NVIDIA_VISIBLE_DEVICES",
                                                         "GPU_DEVICE_ORDINAL"};

std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (std::size_t i = 0; i < names.size(); ++i) {
        out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
    }
    return out;
}

}  // namespace

Status check_secret_name(std::string_view name) {
    if (!is_variable_name(name) || name.size() > limits::kSecretNameBytes) {
        return fail(Errc::invalid, "must match ^[A-Za-z_][A-Za-z0-9_]*$, with " +
                                       std::to_string(limits::kSecretNameBytes) +
                                       " characters at most");
    }
    const bool others =
        is_launchers(name) ||
        std::find(kForeignNames.begin(), kForeignNames.end(), name) != kForeignNames.end() ||
        std::any_of(kForeignPrefixes.begin(), kForeignPrefixes.end(),
                    [name](std::string_view prefix) { return name.starts_with(prefix); });
    if (others) {
        return fail(Errc::invalid,
                    std::string{name} +
                        " is set by Lockstep, a scheduler or a launcher, or steers "
                        "the programs that are started: no secret can have this name");
    }
    return {};
}

Status check_secret_value(std::string_view value) {
    if (value.empty()) {
        return fail(Errc::invalid, "must not be empty");
    }
    if (value.size() > limits::kSecretBytes) {
        return fail(Errc::invalid,
                    "has more than " + std::to_string(limits::kSecretBytes >> 10U) + " KiB");
    }
    if (value.find('\0') != std::string_view::npos) {
        return fail(Errc::invalid, "has a zero byte, which no variable can hold");
    }
    return {};
}

void read_secrets(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors) {
    in.strings("secrets", spec.secrets, limits::kSecretsOfJob, limits::kTextBytes);
    for (std::size_t i = 0; i < spec.secrets.size(); ++i) {
        const std::string& name = spec.secrets[i];
        const std::string pointer = in.pointer("secrets") + "/" + std::to_string(i);
        const auto before = spec.secrets.begin() + static_cast<std::ptrdiff_t>(i);
        if (const Status good = check_secret_name(name); !good) {
            errors.push_back({pointer, good.error().message});
        } else if (std::find(spec.secrets.begin(), before, name) != before) {
            errors.push_back({pointer, "is there already"});
        } else if (spec.environment.contains(name)) {
            errors.push_back(
                {pointer, name + " is in /environment, too, where its value stands in the "
                                 "job's document for all who may read that: leave it out "
                                 "of one of them"});
        } else {
            spec.recorded_environment.erase(name);
        }
    }
}

Error missing_secrets(const std::vector<std::string>& missing, const JobSpec& spec) {
    std::vector<FieldError> errors;
    for (const std::string& name : missing) {
        const auto at = std::find(spec.secrets.begin(), spec.secrets.end(), name);
        std::string why = "you have no secret ";
        why.append(name).append(" here: lockstep secret set ").append(name);
        errors.push_back({"/secrets/" + std::to_string(at - spec.secrets.begin()), std::move(why)});
    }
    return field_errors(std::move(errors));
}

std::string removed_secrets(const std::vector<std::string>& missing) {
    const bool one = missing.size() == 1;
    return std::string{one ? "the secret " : "the secrets "} + joined(missing) +
           (one ? ", which it needs, was" : ", which it needs, were") +
           " removed before it started: lockstep secret set " + missing.front() +
           ", then submit it again";
}

}  // namespace lockstep
