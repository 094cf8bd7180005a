#include "daemon/control/jobs/submission_checks.hpp"

#include "job/model/spec/gpu_view.hpp"
#include "job/model/spec/notify.hpp"
#include "job/model/spec/spec_secrets.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

Status check_secrets(const JobSpec& spec, const std::string& user, const SecretStore* secrets) {
    const auto missing = secrets != nullptr ? secrets->missing(user, spec.secrets) : spec.secrets;
    return missing.empty() ? Status{} : Status{fail(missing_secrets(missing, spec))};
}

// Ranks of Keras see GPUs by the backend, which the script may name where nobody else reads it.
bool leaves_backend_open(const JobSpec& spec) {
    const char* variable = "KERAS_BACKEND";
    return spec.framework == Framework::keras && spec.roles.empty() &&
           spec.environment.count(variable) == 0 &&
           spec.recorded_environment.count(variable) == 0 && gpu_slice(spec, 0).has_value();
}

}  // namespace

Result<Admission> admit_job(Scheduler& scheduler, const JobSpec& spec) {
    if (spec.preflight.mode == PreflightMode::only && spec.resources.spares > 0) {
        // Neither would the failure of a node that has a spare end it, nor is a spare waited for.
        return fail(field_errors({{"/preflight/mode",
                                   "only looks at the nodes and starts no ranks: ask for more "
                                   "nodes, not for resources.spares"}}));
    }
    if (spec.preflight.gpu_test && spec.resources.gpus_per_node == 0) {
        return fail(field_errors({{"/preflight/gpu_test",
                                   "tests the GPUs that the job asks for, and "
                                   "resources.gpus_per_node is 0; the test of the CPUs, which "
                                   "had this name in 0.1.0, is cpu_test"}}));
    }
    if (spec.preflight.nccl_test && spec.resources.gpus_per_node == 0) {
        return fail(field_errors({{"/preflight/nccl_test",
                                   "tests NCCL between the GPUs that the job asks for, and "
                                   "resources.gpus_per_node is 0"}}));
    }
    if (spec.framework == Framework::native && spec.resources.gpus_per_node > 0 &&
        spec.preflight.mode != PreflightMode::only && spec.train->devices == TrainDevices::cpu) {
        return fail(field_errors({{"/resources/gpus_per_node",
                                   "train.devices is cpu: the job's GPUs would idle; ask for 0, or "
                                   "train on them with devices auto"}}));
    }
    if (spec.submission == Submission::manual && scheduler.signatures() != nullptr) {
        return fail(field_errors({{"/submission",
                                   "manual is not possible where jobs are signed: its script is "
                                   "made when it is handed over"}}));
    }
    auto admission = scheduler.admit(spec);
    if (admission && spec.resources.ranks_per_gpu > 1) {
        admission->warnings.push_back(
            std::to_string(spec.resources.ranks_per_gpu) +
            " ranks share each GPU (resources.ranks_per_gpu), and its memory: to try out a script, "
            "not to train fast");
    }
    if (admission && leaves_backend_open(spec)) {
        admission->warnings.emplace_back(
            "environment does not set KERAS_BACKEND, so each rank sees its own share of the node's "
            "GPUs, as TensorFlow needs it; where the script sets torch or jax, set it there as "
            "well");
    }
    return admission;
}

Status check_for_user(const JobSpec& spec, const std::string& user, const ControlContext& context) {
    if (const Status good = check_notify(spec, user, context.settings.notify); !good) {
        return good;
    }
    return check_secrets(spec, user, context.secrets);
}

Status check_all_for_user(const SubmitRequest& request, const std::string& user,
                          const ControlContext& context) {
    if (!request.sweep) {
        return check_for_user(request.spec, user, context);
    }
    for (const SweepPoint& point : request.sweep->points) {
        if (const Status good = check_for_user(point.spec, user, context); !good) {
            return good;
        }
    }
    return {};
}

Task<Result<std::vector<std::string>>> admit_all(Scheduler& scheduler, const SubmitRequest& request,
                                                 Slices& slices) {
    if (!request.sweep) {
        auto one = admit_job(scheduler, request.spec);
        LOCKSTEP_CO_TRY(one);
        co_return std::move(one->warnings);
    }
    std::vector<std::string> warnings;
    for (const SweepPoint& point : request.sweep->points) {
        auto one = admit_job(scheduler, point.spec);
        if (!one) {
            Error error = std::move(one.error());
            for (FieldError& field : error.fields) {
                field.message += " (with " + dump_json(point.parameters) + ")";
            }
            co_return fail(std::move(error));
        }
        for (std::string& warning : one->warnings) {
            if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
                warnings.push_back(std::move(warning));
            }
        }
        if (slices.over()) {
            co_await slices.rest();
        }
    }
    co_return warnings;
}

}  // namespace lockstep
