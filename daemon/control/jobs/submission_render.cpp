// What a submission would run, and when: nothing is stored.
#include "daemon/control/actor/render.hpp"
#include "daemon/control/base/attempt_files.hpp"
#include "daemon/control/jobs/submission_checks.hpp"
#include "daemon/control/jobs/submissions.hpp"
#include "job/base/text.hpp"

#include <utility>

namespace lockstep {

// With If-Match: whether it would run exactly what was rendered.
SubmitResult<void> Submissions::check_rendered(const std::string& user,
                                               const SubmitRequest& request,
                                               const std::vector<std::string>& warnings) const {
    if (request.if_match.empty()) {
        return {};
    }
    const auto rendered = render_json(request.spec, context_.scheduler, runs_of(user), warnings);
    LOCKSTEP_TRY(rendered);
    if ((*rendered)["render_hash"].get<std::string>() != request.if_match) {
        return refuse({SubmitFailure::render_changed, Errc::conflict,
                       "render: the submission would run something else than was rendered; render "
                       "it again"});
    }
    return {};
}

// What the folders of a user's jobs are in.
std::filesystem::path Submissions::runs_of(const std::string& user) const {
    const Signatures* const signatures = context_.scheduler.signatures();
    return signatures == nullptr ? context_.settings.runs_dir : signatures->runs() / user;
}

Result<Json> Submissions::render(const Caller& caller, const JobSpec& spec) {
    LOCKSTEP_TRY(check_for_user(spec, caller.user, context_));
    const auto admission = admit_job(context_.scheduler, spec);
    LOCKSTEP_TRY(admission);
    return render_json(spec, context_.scheduler, runs_of(caller.user), admission->warnings);
}

Task<Json> Submissions::start_estimate(JobSpec spec) {
    const JobId job{std::string{kTemplateJob}};
    AttemptRequest request = attempt_request(
        job, 1, spec, attempt_directory(context_.settings.runs_dir, job, 1).string());
    const auto estimate = co_await context_.scheduler.estimate(std::move(request));
    if (estimate && !*estimate) {
        co_return Json();
    }
    Json out = Json::object();
    if (!estimate || (*estimate)->start == 0) {
        out["message"] = printable(estimate ? (*estimate)->refusal : estimate.error().message);
        co_return out;
    }
    out["start"] = to_rfc3339((*estimate)->start);
    out["nodes"] = (*estimate)->nodes;
    if (!(*estimate)->partition.empty()) {
        out["partition"] = (*estimate)->partition;
    }
    co_return out;
}

}  // namespace lockstep
