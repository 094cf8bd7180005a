// What Prometheus reads: /metrics, one job's part of it, and the list of those for http_sd_configs
// (https://prometheus.io/docs/prometheus/latest/http_sd/).
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/routes/routes.hpp"
#include "daemon/telemetry/exposition/shard.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {
namespace {

HttpResponse response_of(MetricsBody rendered) {
    HttpResponse response;
    response.own_type = std::move(rendered.content_type);
    response.body = std::move(rendered.body);
    response.make = std::move(rendered.make);
    return response;
}

HttpResponse metrics(Control& control, const HttpRequest& request) {
    QueryReader in{request.query};
    std::string jobs = "all";
    in.text("jobs", jobs, limits::kTextBytes);
    if (jobs != "all" && jobs != "none") {
        in.error("jobs", "is all or none");
    }
    if (const auto error = in.finish()) {
        return problem(*error);
    }
    const auto accept = request.header("accept");
    // A caller without a token must not learn whose jobs there are.
    const bool known = !request.principal.user.empty();
    return response_of(jobs == "all" && known
                           ? control.exposition().metrics(caller_of(request), accept)
                           : control.exposition().own_metrics(accept));
}

HttpResponse job_metrics(Control& control, const HttpRequest& request) {
    QueryReader in{request.query};
    std::string text = "0/1";
    in.text("shard", text, limits::kTextBytes);
    const auto shard = telemetry::parse_shard(text);
    if (!shard) {
        in.error("shard", shard.error().message);
    }
    if (const auto error = in.finish()) {
        return problem(*error);
    }
    auto body = control.exposition().job_metrics(caller_of(request), request.param(), shard.value(),
                                                 request.header("accept"));
    return body ? response_of(std::move(*body)) : problem(body.error());
}

HttpResponse targets(Control& control, const HttpRequest& request) {
    QueryReader in{request.query};
    if (const auto error = in.finish()) {
        return problem(*error);
    }
    Json list = Json::array();
    for (const ScrapeTarget& job : control.exposition().scrape_targets(caller_of(request))) {
        for (std::size_t part = 0; part < job.shards; ++part) {
            const std::string shard = std::to_string(part) + "/" + std::to_string(job.shards);
            Json group = Json::object();
            // Where Prometheus has reached this daemon it will reach it again.
            group["targets"] = Json::array({request.header("host")});
            Json& labels = group["labels"];
            labels["__metrics_path__"] = "/metrics/jobs/" + job.job;
            if (job.shards > 1) {
                labels["__param_shard"] = shard;
            }
            // Must differ: the series `up` of all targets would be one.
            labels["instance"] = job.job + "/" + std::to_string(part);
            labels["__meta_lockstep_job"] = job.job;
            labels["__meta_lockstep_name"] = job.name;
            labels["__meta_lockstep_user"] = job.user;
            labels["__meta_lockstep_framework"] = job.framework;
            labels["__meta_lockstep_allocation"] = job.allocation;
            labels["__meta_lockstep_shard"] = shard;
            list.push_back(std::move(group));
        }
    }
    return json_response(dump_json(list));
}

using Answer = HttpResponse (*)(Control&, const HttpRequest&);

FastHandler answering(const RouteContext& context, Answer answer) {
    return [&control = context.control, answer](const HttpRequest& request) {
        return answer(control, request);
    };
}

}  // namespace

RouteParts get_metrics_route(const RouteContext& context) {
    RouteParts route;
    route.handler = answering(context, metrics);
    route.summary =
        "Prometheus exposition; OpenMetrics by Accept. Of jobs, ranks and GPUs what the token may "
        "see; a program on lockstepd's machine without a token gets the daemon's own metrics "
        "(unless --metrics-auth).";
    route.query = {{"jobs", "string",
                    "all, or none: without the series of single jobs, their ranks and GPUs."}};
    return route;
}

RouteParts get_job_metrics_route(const RouteContext& context) {
    RouteParts route;
    route.handler = answering(context, job_metrics);
    route.summary =
        "One job's exposition, or a part of it; empty once the job is over, 404 thirty seconds "
        "later.";
    route.query = {{"shard", "string",
                    "k/n: the ranks with rank modulo n = k, and the GPUs of the nodes likewise; "
                    "job-wide series are in part 0. Up to 1024 parts."}};
    return route;
}

RouteParts list_scrape_targets_route(const RouteContext& context) {
    RouteParts route;
    route.handler = answering(context, targets);
    route.summary =
        "The jobs that have series, from their first allocation to their end, as targets for "
        "Prometheus' http_sd_configs; a job of more than 50,000 series in several parts.";
    return route;
}

}  // namespace lockstep
