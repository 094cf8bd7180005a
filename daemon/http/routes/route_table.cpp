#include "daemon/http/routes/openapi.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/limits.hpp"

#include <array>
#include <span>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

using enum Method;

constexpr std::string_view kNothing;  // there is no body in the answer
constexpr std::string_view kPage = "text/html; charset=utf-8";

constexpr RouteTag kJobsTag{"jobs", "Jobs and sweeps: submit, list, command, remove."};
constexpr RouteTag kRunTag{"runs",
                           "What a job does: ranks, output, history, events, evidence, profiles."};
constexpr RouteTag kClusterTag{"cluster", "The scheduler's nodes and partitions."};
constexpr RouteTag kTokensTag{"tokens", "Who may call, and what."};
constexpr RouteTag kSecretsTag{"secrets",
                               "The caller's secrets, for jobs; nobody reads them again."};
constexpr RouteTag kIdentityTag{"identity", "Who calls, and as whom jobs run."};
constexpr RouteTag kDaemonTag{"daemon", "lockstepd itself and its agents."};
constexpr RouteTag kPrometheusTag{"prometheus", "What Prometheus reads."};
constexpr RouteTag kPageTag{"page", "The web page and its sessions."};

constexpr std::array kRows{
    // Jobs and sweeps.
    RouteRow(post, "/v1/jobs", Scope::write, kJobsTag, "submitJob", submit_job_route,
             {.takes = "JobSpec",
              .answers = "Job",
              .success = 201,
              .failures = {409, 412, 422, 429, 503, 507}}),
    RouteRow(post, "/v1/jobs/render", Scope::write, kJobsTag, "renderJob", render_job_route,
             {.takes = "JobSpec", .answers = "Render", .changes_nothing = true}),
    RouteRow(get, "/v1/jobs", Scope::read, kJobsTag, "listJobs", list_jobs_route,
             {.answers = "JobPage", .not_modified = true}),
    RouteRow(get, "/v1/jobs/{id}", Scope::read, kJobsTag, "getJob", get_job_route,
             {.answers = "Job", .failures = {404}}),
    RouteRow(get, "/v1/jobs/{id}/spec", Scope::read, kJobsTag, "getJobSpec", get_job_spec_route,
             {.answers = "JobSpec", .failures = {404}}),
    RouteRow(get, "/v1/jobs/{id}/script", Scope::read, kJobsTag, "getJobScript",
             get_job_script_route, {.type = content_type::kText, .failures = {404, 503}}),
    RouteRow(post, "/v1/jobs/{id}/cancel", Scope::write, kJobsTag, "cancelJob", cancel_job_route,
             {.answers = "Job", .failures = {404, 409, 507}}),
    RouteRow(post, "/v1/jobs/{id}/restart", Scope::write, kJobsTag, "restartJob", restart_job_route,
             {.answers = "JobCommanded", .failures = {404, 409, 422, 503, 507}}),
    RouteRow(post, "/v1/jobs/{id}/checkpoint", Scope::write, kJobsTag, "checkpointJob",
             checkpoint_job_route,
             {.answers = "JobCommanded", .failures = {404, 409, 422, 503, 507}}),
    RouteRow(post, "/v1/sweeps/{id}/cancel", Scope::write, kJobsTag, "cancelSweep",
             cancel_sweep_route, {.answers = "SweepCancelled", .failures = {404, 409, 507}}),
    // What a job does: ranks, output, history, events.
    RouteRow(get, "/v1/jobs/{id}/ranks", Scope::read, kRunTag, "getJobRanks", get_job_ranks_route,
             {.answers = "Ranks", .failures = {404}}),
    RouteRow(get, "/v1/jobs/{id}/logs", Scope::read, kRunTag, "getJobLogs", get_job_logs_route,
             {.type = content_type::kText, .failures = {404, 429, 503}}),
    RouteRow(get, "/v1/jobs/{id}/heatmap", Scope::read, kRunTag, "getJobHeatmap",
             get_job_heatmap_route, {.type = content_type::kBinary, .failures = {404}}),
    RouteRow(get, "/v1/jobs/{id}/metrics", Scope::read, kRunTag, "getJobMetricNames",
             get_job_metric_names_route, {.answers = "MetricNames", .failures = {404}}),
    RouteRow(get, "/v1/jobs/{id}/samples", Scope::read, kRunTag, "getJobSamples",
             get_job_samples_route, {.answers = "SamplesAnswer", .failures = {404}}),
    RouteRow(get, "/v1/jobs/{id}/events", Scope::read, kRunTag, "getJobEvents",
             get_job_events_route, {.answers = "EventPage", .failures = {404}}),
    RouteRow(get, "/v1/events", Scope::read, kRunTag, "streamEvents", stream_events_route,
             {.type = content_type::kEvents, .failures = {429, 503}}),
    RouteRow(get, "/v1/jobs/{id}/nodes", Scope::read, kRunTag, "getJobNodes", get_job_nodes_route,
             {.answers = "JobNodes", .failures = {404}}),
    RouteRow(get, "/v1/jobs/{id}/gpus", Scope::read, kRunTag, "getJobGpus", get_job_gpus_route,
             {.answers = "JobGpus", .failures = {404, 503}}),
    RouteRow(get, "/v1/jobs/{id}/series", Scope::read, kRunTag, "getJobSeries",
             get_job_series_route, {.answers = "SeriesAnswer", .failures = {404, 503}}),
    RouteRow(get, "/v1/jobs/{id}/logs/search", Scope::read, kRunTag, "searchJobLogs",
             search_job_logs_route, {.answers = "LogFindings", .failures = {404, 503}}),
    RouteRow(get, "/v1/jobs/{id}/evidence", Scope::read, kRunTag, "getJobEvidence",
             get_job_evidence_route, {.answers = "Evidence", .failures = {404}}),
    RouteRow(post, "/v1/jobs/{id}/evidence", Scope::write, kRunTag, "takeJobEvidence",
             take_job_evidence_route, {.answers = "Job", .failures = {404, 409, 507}}),
    RouteRow(get, "/v1/jobs/{id}/evidence/{name}", Scope::read, kRunTag, "getJobEvidenceFile",
             get_job_evidence_file_route, {.type = content_type::kText, .failures = {404, 503}}),
    RouteRow(get, "/v1/jobs/{id}/profiles", Scope::read, kRunTag, "getJobProfiles",
             get_job_profiles_route, {.answers = "Profiles", .failures = {404}}),
    RouteRow(post, "/v1/jobs/{id}/profiles", Scope::write, kRunTag, "takeJobProfile",
             take_job_profile_route,
             {.takes = "ProfileRequest",
              .answers = "ProfileAsked",
              .success = 202,
              .failures = {404, 409, 507}}),
    RouteRow(get, "/v1/jobs/{id}/profiles/{name}", Scope::read, kRunTag, "getJobProfileFile",
             get_job_profile_file_route, {.type = content_type::kText, .failures = {404, 503}}),
    // A job goes, and what it takes.
    RouteRow(delete_, "/v1/jobs/{id}", Scope::write, kJobsTag, "removeJob", remove_job_route,
             {.answers = "JobRemoved", .failures = {404, 409, 503, 507}}),
    RouteRow(get, "/v1/jobs/{id}/disk", Scope::read, kJobsTag, "getJobDisk", get_job_disk_route,
             {.answers = "JobDisk", .failures = {404, 503}}),
    // The cluster.
    RouteRow(get, "/v1/cluster", Scope::read, kClusterTag, "getCluster", get_cluster_route,
             {.answers = "Cluster"}),
    RouteRow(get, "/v1/nodes", Scope::read, kClusterTag, "listNodes", list_nodes_route,
             {.answers = "NodePage"}),
    RouteRow(get, "/v1/nodes/{name}", Scope::read, kClusterTag, "getNode", get_node_route,
             {.answers = "NodeDetail", .failures = {404, 503}}),
    // Tokens.
    RouteRow(post, "/v1/tokens", Scope::write, kTokensTag, "createToken", create_token_route,
             {.takes = "TokenRequest",
              .answers = "NewToken",
              .success = 201,
              .failures = {409, 503, 507}}),
    RouteRow(get, "/v1/tokens", Scope::read, kTokensTag, "listTokens", list_tokens_route,
             {.answers = "TokenPage"}),
    RouteRow(delete_, "/v1/tokens/{id}", Scope::write, kTokensTag, "revokeToken",
             revoke_token_route,
             {.type = kNothing, .success = 204, .failures = {404, 503, 507}, .own_token = true}),
    // The caller's secrets.
    RouteRow(get, "/v1/secrets", Scope::read, kSecretsTag, "listSecrets", list_secrets_route,
             {.answers = "SecretPage", .needs_secrets = true}),
    RouteRow(put, "/v1/secrets/{name}", Scope::secrets, kSecretsTag, "putSecret", put_secret_route,
             {.takes = "SecretValue",
              .body_limit = limits::kSecretBodyBytes,
              .answers = "Secret",
              .failures = {409, 507},
              .needs_secrets = true}),
    RouteRow(delete_, "/v1/secrets/{name}", Scope::secrets, kSecretsTag, "removeSecret",
             remove_secret_route,
             {.type = kNothing, .success = 204, .failures = {404, 507}, .needs_secrets = true}),
    // Who calls.
    RouteRow(get, "/v1/whoami", Scope::read, kIdentityTag, "whoAmI", who_am_i_route,
             {.answers = "Identity"}),
    RouteRow(put, "/v1/whoami/slurm-token", Scope::write, kIdentityTag, "putSlurmToken",
             put_slurm_token_route,
             {.takes = "SlurmToken", .answers = "Identity", .failures = {404}}),
    RouteRow(delete_, "/v1/whoami/slurm-token", Scope::write, kIdentityTag, "forgetSlurmToken",
             forget_slurm_token_route, {.type = kNothing, .success = 204, .failures = {404}}),
    // The daemon and its agents.
    RouteRow(get, "/v1/agent", Scope::agent, kDaemonTag, "connectAgent", connect_agent_route,
             {.type = kNothing, .success = 101, .failures = {426, 503}}),
    RouteRow(get, "/healthz", Scope::open, kDaemonTag, "getHealth", get_health_route,
             {.answers = "Health"}),
    RouteRow(get, "/readyz", Scope::open, kDaemonTag, "getReadiness", get_readiness_route,
             {.answers = "Health", .failures = {503}}),
    // Prometheus.
    RouteRow(get, "/metrics", Scope::metrics, kPrometheusTag, "getMetrics", get_metrics_route,
             {.type = content_type::kMetrics, .without_token = true}),
    RouteRow(get, "/metrics/jobs/{id}", Scope::metrics, kPrometheusTag, "getJobMetrics",
             get_job_metrics_route, {.type = content_type::kMetrics, .failures = {404}}),
    RouteRow(get, "/v1/prometheus/targets", Scope::metrics, kPrometheusTag, "listScrapeTargets",
             list_scrape_targets_route, {.answers = "ScrapeTargets"}),
    // The web page.
    RouteRow(post, "/v1/session/codes", Scope::read, kPageTag, "createSignInCode",
             create_sign_in_code_route,
             {.answers = "SignInCode", .success = 201, .failures = {409, 503}, .for_people = true}),
    RouteRow(post, "/v1/session", Scope::open, kPageTag, "signIn", sign_in_route,
             {.takes = "SignIn",
              .body_limit = limits::kSignInBytes,
              .answers = "Identity",
              .failures = {401, 403, 507},
              .for_people = true}),
    RouteRow(delete_, "/v1/session", Scope::open, kPageTag, "signOut", sign_out_route,
             {.type = kNothing, .success = 204, .failures = {403}, .for_people = true}),
    RouteRow(get, "/", Scope::open, kPageTag, "getPage", get_page_route,
             {.type = kPage, .not_modified = true, .for_people = true}),
    RouteRow(get, "/assets/{name}", Scope::open, kPageTag, "getPageAsset", get_page_asset_route,
             {.type = content_type::kBinary,
              .failures = {404},
              .not_modified = true,
              .for_people = true}),
    // Last: it describes every route, itself included.
    RouteRow(get, "/openapi.json", Scope::open, kDaemonTag, "getOpenApi", get_openapi_route, {}),
};

}  // namespace

std::span<const RouteRow> route_table() {
    return kRows;
}

void add_routes(Router& router, const RouteContext& context) {
    for (const RouteRow& row : route_table()) {
        if (row.shape.needs_secrets && context.secrets == nullptr) {
            continue;
        }
        RouteParts parts = row.parts(context);
        Route route;
        route.method = row.method;
        route.path = row.path;
        route.scope = row.scope;
        route.handler = std::move(parts.handler);
        route.operation = row.operation;
        route.summary = std::move(parts.summary);
        route.query = std::move(parts.query);
        route.tag = row.tag;
        route.headers = std::move(parts.headers);
        route.answer_headers = std::move(parts.answer_headers);
        route.request_schema = row.shape.takes;
        route.response_schema = row.shape.answers;
        route.response_type = row.shape.type;
        route.success = row.shape.success;
        route.failures.assign(row.shape.failures.begin(), row.shape.failures.end());
        route.not_modified = row.shape.not_modified;
        route.for_people = row.shape.for_people;
        route.without_token = row.shape.without_token;
        route.changes_nothing = row.shape.changes_nothing;
        route.own_token = row.shape.own_token;
        route.body_limit = row.shape.body_limit;
        router.add(std::move(route));
    }
    *context.openapi = openapi_document(router.routes());
}

}  // namespace lockstep
