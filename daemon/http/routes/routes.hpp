// The routes of the API: the table, and what each row refers to. Handlers translate between HTTP
// and Control and hold no state. What the context refers to outlives the router.
#pragma once

#include "daemon/control/base/control.hpp"
#include "daemon/control/base/fair_turns.hpp"
#include "daemon/control/base/jobs_account.hpp"
#include "daemon/http/base/router.hpp"
#include "daemon/http/routes/web_page.hpp"
#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "job/async/asio.hpp"
#include "job/async/side_thread.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Identities;
class PageSessions;
class Signatures;
class SecretStore;
class TokenTable;

struct RouteContext {
    net::io_context& io;
    Control& control;
    telemetry::DaemonMetrics& metrics;
    TokenTable& tokens;
    Identities* identities = nullptr;  // the scheduler's; nullptr: it acts in lockstepd's name
    // Reads in a job's folder (folder_reads.hpp), which hang when its file system does: one that
    // hangs must stop neither the control thread nor the others, nor the daemon's end. Goes with
    // the router.
    std::shared_ptr<SideThread> readers = std::make_shared<SideThread>(io, 8);
    // Reads that have not returned, by folder: one dead file system takes half of the threads.
    using Reads = std::map<std::string, std::vector<std::weak_ptr<void>>>;
    std::shared_ptr<Reads> reads = std::make_shared<Reads>();
    std::chrono::milliseconds read_patience{10'000};
    JobsAccount account{};
    SecretStore* secrets = nullptr;    // nullptr: secrets are not supported
    PageSessions* sessions = nullptr;  // nullptr: browsers cannot sign in
    std::shared_ptr<const WebPage> page = std::make_shared<const WebPage>();
    Signatures* signatures = nullptr;  // the scheduler's; nullptr: jobs are not signed
    std::string grafana_url{};         // for the page's links; "" = none
    // Sweeps are taken up one at a time, those of users in turn: each is as much work as its jobs.
    std::shared_ptr<FairTurns> sweeps = std::make_shared<FairTurns>(io, 1, limits::kSweepsWaiting);
    std::shared_ptr<std::string> openapi = std::make_shared<std::string>();  // the whole document
};

// What the table does not say of a route: how it answers, and what OpenAPI says of it in words.
struct RouteParts {
    Handler handler;
    std::string summary;
    std::vector<ParameterDoc> query{};
    std::vector<ParameterDoc> headers{};
    std::vector<ParameterDoc> answer_headers{};
};

// A few statuses; more than fit do not compile.
class StatusList {
  public:
    constexpr StatusList() = default;
    constexpr StatusList(std::initializer_list<int> statuses) : size_(statuses.size()) {
        std::copy(statuses.begin(), statuses.end(), statuses_.begin());
    }
    constexpr const int* begin() const { return statuses_.data(); }
    constexpr const int* end() const { return statuses_.data() + size_; }

  private:
    std::array<int, 6> statuses_{};
    std::size_t size_ = 0;
};

// As the members of Route of the same or like names.
struct RouteShape {
    std::string_view takes{};  // component name; "" = no body
    std::optional<std::size_t> body_limit{};
    std::string_view answers{};  // component name; "" = not JSON
    std::string_view type = content_type::kJson;
    int success = 200;
    StatusList failures{};
    bool not_modified = false;
    bool for_people = false;
    bool without_token = false;
    bool changes_nothing = false;
    bool own_token = false;
    bool needs_secrets = false;  // only where the context has them
};

struct RouteRow {
    Method method{};
    std::string_view path;
    Scope scope{};
    RouteTag tag;
    std::string_view operation;
    RouteParts (*parts)(const RouteContext&);
    RouteShape shape{};
};

// Every route there is, in the order of /openapi.json, which is made from it. The table of
// README.md and the scopes are compared with it (tests/unit/http/route_table_test.cpp).
std::span<const RouteRow> route_table();
// All of them.
void add_routes(Router& router, const RouteContext& context);

// job_routes.cpp
RouteParts submit_job_route(const RouteContext& context);
RouteParts render_job_route(const RouteContext& context);
RouteParts list_jobs_route(const RouteContext& context);
RouteParts get_job_route(const RouteContext& context);
RouteParts get_job_spec_route(const RouteContext& context);
RouteParts get_job_script_route(const RouteContext& context);
RouteParts cancel_job_route(const RouteContext& context);
RouteParts restart_job_route(const RouteContext& context);
RouteParts checkpoint_job_route(const RouteContext& context);
RouteParts cancel_sweep_route(const RouteContext& context);
// view_routes.cpp
RouteParts get_job_ranks_route(const RouteContext& context);
RouteParts get_job_logs_route(const RouteContext& context);
RouteParts get_job_heatmap_route(const RouteContext& context);
RouteParts get_job_metric_names_route(const RouteContext& context);
RouteParts get_job_samples_route(const RouteContext& context);
RouteParts get_job_events_route(const RouteContext& context);
RouteParts stream_events_route(const RouteContext& context);
// series_routes.cpp
RouteParts get_job_nodes_route(const RouteContext& context);
RouteParts get_job_gpus_route(const RouteContext& context);
RouteParts get_job_series_route(const RouteContext& context);
// log_search_routes.cpp
RouteParts search_job_logs_route(const RouteContext& context);
// evidence_routes.cpp
RouteParts get_job_evidence_route(const RouteContext& context);
RouteParts take_job_evidence_route(const RouteContext& context);
RouteParts get_job_evidence_file_route(const RouteContext& context);
RouteParts get_job_profiles_route(const RouteContext& context);
RouteParts take_job_profile_route(const RouteContext& context);
RouteParts get_job_profile_file_route(const RouteContext& context);
// removal_routes.cpp
RouteParts remove_job_route(const RouteContext& context);
RouteParts get_job_disk_route(const RouteContext& context);
// cluster_routes.cpp
RouteParts get_cluster_route(const RouteContext& context);
RouteParts list_nodes_route(const RouteContext& context);
RouteParts get_node_route(const RouteContext& context);
// token_routes.cpp
RouteParts create_token_route(const RouteContext& context);
RouteParts list_tokens_route(const RouteContext& context);
RouteParts revoke_token_route(const RouteContext& context);
// secret_routes.cpp
RouteParts list_secrets_route(const RouteContext& context);
RouteParts put_secret_route(const RouteContext& context);
RouteParts remove_secret_route(const RouteContext& context);
// identity_routes.cpp
RouteParts who_am_i_route(const RouteContext& context);
RouteParts put_slurm_token_route(const RouteContext& context);
RouteParts forget_slurm_token_route(const RouteContext& context);
// system_routes.cpp
RouteParts get_openapi_route(const RouteContext& context);
RouteParts connect_agent_route(const RouteContext& context);
RouteParts get_health_route(const RouteContext& context);
RouteParts get_readiness_route(const RouteContext& context);
// metrics_routes.cpp
RouteParts get_metrics_route(const RouteContext& context);
RouteParts get_job_metrics_route(const RouteContext& context);
RouteParts list_scrape_targets_route(const RouteContext& context);
// session_routes.cpp
RouteParts create_sign_in_code_route(const RouteContext& context);
RouteParts sign_in_route(const RouteContext& context);
RouteParts sign_out_route(const RouteContext& context);
// web_routes.cpp
RouteParts get_page_route(const RouteContext& context);
RouteParts get_page_asset_route(const RouteContext& context);

Caller caller_of(const HttpRequest& request);
// What GET /v1/whoami answers.
std::string whoami_text(const RouteContext& context, const Principal& who);
// JSON text or the problem.
HttpResponse json_or_problem(Result<std::string> text);
// The same of a command, which is stored before it is answered: 507 where there is no room.
HttpResponse json_or_storing_problem(Result<std::string> text);

}  // namespace lockstep
