// The routes of the API, each with its scope and documentation. Handlers translate
// between HTTP and Control and hold no state. What the context refers to outlives the router.
#pragma once

#include "daemon/control/base/control.hpp"
#include "daemon/control/base/jobs_account.hpp"
#include "daemon/http/base/router.hpp"
#include "daemon/http/routes/web_page.hpp"
#include "daemon/telemetry/exposition/daemon_metrics.hpp"
#include "job/async/asio.hpp"
#include "job/async/side_thread.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
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
};

// All of them, /openapi.json included.
void add_routes(Router& router, const RouteContext& context);

void add_job_routes(Router& router, const RouteContext& context);     // submit, render, list, …
void add_view_routes(Router& router, const RouteContext& context);    // logs, series, ranks, events
void add_series_routes(Router& router, const RouteContext& context);  // charts of metrics
void add_log_search_routes(Router& router, const RouteContext& context);
void add_evidence_routes(Router& router, const RouteContext& context);  // of hangs
void add_removal_routes(Router& router, const RouteContext& context);   // DELETE, disk use
void add_cluster_routes(Router& router, const RouteContext& context);   // cluster, nodes
void add_token_routes(Router& router, const RouteContext& context);     // tokens
void add_secret_routes(Router& router, const RouteContext& context);    // one's own secrets
void add_identity_routes(Router& router, const RouteContext& context);  // whoami, Slurm token
void add_session_routes(Router& router, const RouteContext& context);   // sign in, sign out
void add_system_routes(Router& router, const RouteContext& context);    // health, agents
void add_metrics_routes(Router& router, const RouteContext& context);   // what Prometheus reads
void add_web_routes(Router& router, const RouteContext& context);       // the web page

Caller caller_of(const HttpRequest& request);
// A problem document in which "name: message" about a query parameter also has its pointer.
HttpResponse query_problem(const Error& error);
// What GET /v1/whoami answers.
std::string whoami_text(const RouteContext& context, const Principal& who);
// JSON text or the problem.
HttpResponse json_or_problem(Result<std::string> text);

}  // namespace lockstep
