// Removing a job that is over, and what a job takes on disk.
#include "daemon/control/actor/job_folder.hpp"
#include "daemon/http/base/problem.hpp"
#include "daemon/http/base/query_reader.hpp"
#include "daemon/http/routes/folder_reads.hpp"
#include "daemon/http/routes/routes.hpp"
#include "job/base/limits.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

namespace lockstep {
namespace {

struct CountedFolder {
    std::string directory;
    DiskUse use;
};

CountedFolder count_folder(const DiskPlace& place, std::chrono::steady_clock::time_point until) {
    std::error_code ec;
    const bool first =
        !place.first_directory.empty() && std::filesystem::is_directory(place.first_directory, ec);
    CountedFolder out;
    out.directory = first ? place.first_directory : place.directory;
    out.use = disk_use(out.directory, limits::kFilesCounted, until);
    return out;
}

Json disk_json(const DiskPlace& place, const CountedFolder& counted) {
    const DiskUse& use = counted.use;
    Json out = Json::object();
    out["directory"] = counted.directory;
    out["total_bytes"] =
        use.logs + use.evidence + use.checkpoints + use.other + place.history_bytes;
    out["logs_bytes"] = use.logs;
    out["evidence_bytes"] = use.evidence;
    out["checkpoints_bytes"] = use.checkpoints;
    out["other_bytes"] = use.other;
    out["history_bytes"] = place.history_bytes;
    out["files"] = use.files;
    if (use.partly) {
        out["partly"] = true;
    }
    return out;
}

Task<HttpResponse> remove_job(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    std::string checkpoints;
    in.text("checkpoints", checkpoints, limits::kTextBytes);
    if (!checkpoints.empty() && checkpoints != "keep" && checkpoints != "remove") {
        in.error("checkpoints", "must be keep or remove");
    }
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    auto done =
        co_await context.control.remove(caller_of(request), std::move(id), checkpoints == "keep");
    co_return json_or_storing_problem(std::move(done));
}

Task<HttpResponse> disk_of(RouteContext context, HttpRequest request) {
    QueryReader in{request.query};
    if (const auto error = in.finish()) {
        co_return problem(*error);
    }
    std::string id{request.param()};
    const auto place = co_await context.control.disk(caller_of(request), std::move(id));
    if (!place) {
        co_return problem(place.error());
    }
    const auto until = std::chrono::steady_clock::now() + limits::kCountPatience;
    const std::function<CountedFolder()> count = [of = *place, until] {
        return count_folder(of, until);
    };
    std::string folder = place->first_directory.empty() ? place->directory : place->first_directory;
    const auto counted = co_await read_in_folder<CountedFolder>(context, std::move(folder), count);
    co_return counted ? json_response(dump_json(disk_json(*place, *counted)))
                      : problem(counted.error());
}

}  // namespace

RouteParts remove_job_route(const RouteContext& context) {
    RouteParts route;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return remove_job(context, std::move(request)); }};
    route.summary =
        "Remove a job that is over: its record at once, then its logs, evidence, telemetry, the "
        "checkpoints in lockstepd's own folder and the snapshot that no other job uses. 409: it is "
        "not over, Slurm still holds it, or a job waits for it; 503: its agents are still leaving.";
    route.query = {
        {"checkpoints", "string", "keep: those below the runs directory stay; remove (default)."}};
    return route;
}

RouteParts get_job_disk_route(const RouteContext& context) {
    RouteParts route;
    route.handler = SlowHandler{
        [context](HttpRequest request) { return disk_of(context, std::move(request)); }};
    route.summary =
        "Disk space used by the job, counted now: its directory below lockstepd's runs directory "
        "and its telemetry. Files it writes elsewhere are not counted.";
    return route;
}

}  // namespace lockstep
