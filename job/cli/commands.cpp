// size: one short function for each subcommand
#include "job/cli/commands.hpp"

#include "job/cli/cli_limits.hpp"
#include "job/cli/disk.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/follow.hpp"
#include "job/cli/job_names.hpp"
#include "job/cli/option_names.hpp"
#include "job/cli/results.hpp"
#include "job/cli/spec_file.hpp"
#include "job/cli/spec_views.hpp"
#include "job/cli/story.hpp"
#include "job/cli/suggest.hpp"
#include "job/cli/sweeps.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

namespace lockstep::cli {
namespace {

// The sweep that a job is of, or that is named by its own id.
Result<std::string> sweep_of(Context& context, const std::string& text) {
    const auto id = named_job(context, text, false);
    LOCKSTEP_TRY(id);
    const auto job = context.client.get_json("/v1/jobs/" + *id);
    LOCKSTEP_TRY(job);
    const std::string sweep = text_at(at(*job, "sweep"), "id");
    return sweep.empty() ? *id : sweep;
}

// NAME=VALUE, as lockstep run takes it, is NAME:VALUE in the API. No name has either sign in it.
Result<std::string> label_query(const std::string& text) {
    const std::size_t sign = text.find_first_of("=:");
    if (!text.empty() && (sign == std::string::npos || sign == 0)) {
        return fail(Errc::invalid, "--label " + text + ": must be NAME=VALUE, as in team=vision");
    }
    return text.empty() ? text : text.substr(0, sign) + ":" + text.substr(sign + 1);
}

Exit jobs(Context& context) {
    const Options& options = context.options;
    const auto label = label_query(options.label);
    if (!label) {
        return report(context, label.error());
    }
    std::string sweep;
    if (!options.sweep.empty()) {
        const auto id = sweep_of(context, options.sweep);
        if (!id) {
            return report(context, id.error());
        }
        sweep = *id;
    }
    std::string query;
    for (const auto& [name, value] :
         {std::pair<const char*, const std::string&>{"state", options.state},
          {"q", options.search},
          {"user", options.user},
          {"name", options.name},
          {"label", *label},
          {"sweep", sweep}}) {
        query += value.empty() ? "" : std::string("&") + name + "=" + query_encode(value);
    }
    std::vector<Json> found;
    std::string cursor;
    // Which of a sweep are the best is known of all of them only, and all are listed if no less is
    // asked for.
    const bool all = options.all || !sweep.empty();
    const auto lines = options.all || (!sweep.empty() && options.limit == kListed)
                           ? std::numeric_limits<std::int32_t>::max()
                           : options.limit;
    do {
        const std::int64_t left =
            all ? 500 : std::min<std::int64_t>(500, options.limit - std::ssize(found));
        const auto page =
            context.client.get_json("/v1/jobs?limit=" + std::to_string(left) + query +
                                    (cursor.empty() ? "" : "&cursor=" + query_encode(cursor)));
        if (!page) {
            return report(context, page.error());
        }
        const Json& items = items_at(*page, "items");
        found.insert(found.end(), items.begin(), items.end());
        cursor = text_at(*page, "next_cursor");
    } while (!cursor.empty() && (all || std::ssize(found) < options.limit));
    if (!sweep.empty() && !options.json && !options.quiet && !found.empty()) {
        print_sweep(context, found, static_cast<std::size_t>(lines));
        return Exit::ok;
    }
    found.resize(std::min(found.size(), static_cast<std::size_t>(lines)));
    if (options.json) {
        Json answer = Json::object();
        answer["items"] = found;
        print_json(context, answer);
    } else if (options.quiet) {
        for (const Json& job : found) {
            context.out << text_at(job, "id") << "\n";
        }
    } else if (found.empty()) {
        context.err << "no jobs"
                    << (query.empty() ? " yet: lockstep submit FILE\n" : " like that\n");
    } else {
        print(context, jobs_table(context.terminal, found, context.clock.wall(),
                                  query.empty() && context.terminal.interactive));
    }
    return Exit::ok;
}

// What the job's ranks have reported of the measures that people ask for; rank 0's, since a
// validation is often its alone.
std::vector<FinalValue> final_values(Context& context, const std::string& id) {
    std::vector<FinalValue> values;
    const std::string base = "/v1/jobs/" + id;
    const auto known = context.client.get_json(base + "/metrics");
    if (!known) {
        return values;  // no rank has started, or a daemon that does not know
    }
    for (const std::string& metric : metrics_of_interest(*known)) {
        if (auto found = read_reached(context, id, metric)) {
            values.push_back({metric, *std::move(found)});
        }
    }
    return values;
}

// The first anomalies of a job that has had some, as their events say them: which rank, which step.
void print_anomalies(Context& context, const Json& job, const std::string& id) {
    constexpr int kPagesRead = 8;
    if (at(job, "anomalies").empty()) {
        return;
    }
    std::vector<std::string> lines;
    std::int64_t after = 0;
    for (int page = 0; page < kPagesRead && lines.size() < limits::kJobAnomaliesShown; ++page) {
        const auto events = context.client.get_json(
            "/v1/jobs/" + id + "/events?limit=500&after=" + std::to_string(after));
        if (!events || items_at(*events, "items").empty()) {
            break;
        }
        for (const Json& event : items_at(*events, "items")) {
            after = std::max(after, integer_at(event, "seq").value_or(0));
            if (text_at(event, "kind") == "anomaly" && lines.size() < limits::kJobAnomaliesShown) {
                const auto step = integer_at(at(event, "data"), "step");
                lines.push_back("  " + story_line(context.terminal, event).value_or("") +
                                (step && *step >= 0 ? ", step " + std::to_string(*step) : ""));
            }
        }
    }
    print(context, lines);
}

Exit show(Context& context, const std::string& id) {
    const auto job = context.client.get_json("/v1/jobs/" + id);
    if (!job) {
        return report(context, job.error());
    }
    if (context.options.environment) {
        const auto spec = context.client.get_json("/v1/jobs/" + id + "/spec");
        if (!spec) {
            return report(context, spec.error());
        }
        print(context, environment_view(*spec));
    } else if (context.options.json) {
        print_json(context, *job);
    } else {
        print(context, job_view(context.terminal, *job, context.clock.wall()));
        print_anomalies(context, *job, id);
        if (const auto spec = context.client.get_json("/v1/jobs/" + id + "/spec")) {
            print(context, spec_view(context.terminal, *spec));
        }
        print(context, results_view(context.terminal, final_values(context, id)));
        if (const auto disk = context.client.get_json("/v1/jobs/" + id + "/disk")) {
            context.out << paint(context.terminal, Style::dim,
                                 fit(context.terminal, "disk", kFactName, false))
                        << "  " << disk_text(*disk) << "\n";
        }
        // Of a hang; that there is none, or a daemon that knows of none, is no news.
        const auto evidence = context.client.get_json("/v1/jobs/" + id + kNewestEvidence);
        const Json& items = evidence ? items_at(*evidence, "items") : items_at(Json(), "");
        if (!items.empty()) {
            print(context,
                  evidence_view(context.terminal, items.front(), limits::kJobEvidenceShown));
        }
    }
    return Exit::ok;
}

Exit ranks(Context& context, const std::string& id) {
    if (context.options.watch) {
        return watch_ranks(context, id);
    }
    const auto answer = context.client.get_json("/v1/jobs/" + id + "/ranks");
    if (!answer) {
        return report(context, answer.error());
    }
    if (context.options.json) {
        print_json(context, *answer);
    } else if (items_at(*answer, "items").empty()) {
        context.err << "no rank has started yet\n";
    } else {
        print(context, ranks_table(context.terminal, *answer));
    }
    return Exit::ok;
}

Exit events(Context& context, const std::string& id) {
    std::int64_t after = 0;
    if (context.options.log_follow) {
        context.watching(id);
    }
    while (true) {
        const auto page = context.client.get_json(
            "/v1/jobs/" + id + "/events?limit=500&after=" + std::to_string(after));
        if (!page && !(context.options.log_follow && may_pass(page.error()))) {
            return report(context, page.error());
        }
        bool finished = false;
        const Json& items = page ? items_at(*page, "items") : items_at(Json(), "");
        for (const Json& event : items) {
            after = std::max(after, integer_at(event, "seq").value_or(0));
            finished = finished || text_at(event, "kind") == "finished";
            if (context.options.json) {
                // One a line: a stream has no end to close.
                context.out << harmless_json(dump_json(event)) << "\n";
            } else {
                const std::string line = event_line(context.terminal, event);
                context.out << (context.terminal.interactive
                                    ? cut(context.terminal, line, context.terminal.width)
                                    : line)
                            << "\n";
            }
        }
        context.out << std::flush;
        if (items.empty() || finished) {
            if (!context.options.log_follow || finished) {
                return Exit::ok;
            }
            context.sleep(std::chrono::milliseconds{500});
        }
    }
}

Exit spec(Context& context, const std::string& id) {
    const auto answer = context.client.get_json("/v1/jobs/" + id + "/spec");
    if (!answer) {
        return report(context, answer.error());
    }
    print_json(context, *answer);
    return Exit::ok;
}

// Otherwise what was wrong has been printed.
tl::expected<Json, Exit> rendered(Context& context, const std::string& file,
                                  const std::string& query = "") {
    const auto document = load_spec(context, file);
    if (!document) {
        return tl::unexpected(Exit::usage);
    }
    auto answer = context.client.post_json("/v1/jobs/render" + query, dump_json(document->json));
    if (!answer) {
        return tl::unexpected(report_mistakes(context, *document, answer.error()));
    }
    return std::move(*answer);
}

std::string argument_text(const Json& value) {
    const std::string text =
        value.is_string() ? one_line(value.get_ref<const std::string&>()) : dump_json(value);
    const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("-_./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    return plain ? text : dump_json(Json(text));
}

Exit render(Context& context) {
    const auto answer = rendered(context, context.options.file, "?estimate=true");
    if (!answer) {
        return answer.error();
    }
    if (context.options.json) {
        print_json(context, *answer);
        return Exit::ok;
    }
    for (const Json& warning : items_at(*answer, "warnings")) {
        context.err << "warning: " << argument_text(warning) << "\n";
    }
    // The script keeps its lines; the rest is a list of names and values.
    for (const auto& [key, value] : answer->items()) {
        if (key == "warnings" || value.is_null()) {
            continue;
        }
        const std::string title = paint(context.terminal, Style::bold, one_line(key));
        if (value.is_string() &&
            value.get_ref<const std::string&>().find('\n') != std::string::npos) {
            context.out << title << "\n" << harmless(value.get_ref<const std::string&>()) << "\n";
        } else if (value.is_array()) {
            context.out << title << " ";
            for (const Json& item : value) {
                context.out << " " << argument_text(item);
            }
            context.out << "\n";
        } else if (value.is_object()) {
            context.out << title << "\n";
            for (const auto& [name, entry] : value.items()) {
                context.out << "  " << one_line(name) << "=" << argument_text(entry) << "\n";
            }
        } else {
            context.out << title << "  " << argument_text(value) << "\n";
        }
    }
    return Exit::ok;
}

Exit print_script(Context& context, const std::string& text) {
    if (context.options.json) {
        print_json(context, Json::object({{"script", text}}));
    } else {
        context.out << harmless(text);
    }
    return Exit::ok;
}

Exit script(Context& context) {
    const std::string& what = context.options.id;
    std::error_code ec;  // a name that no file can have is a job's
    if (what == "-" || std::filesystem::is_regular_file(what, ec)) {
        const auto answer = rendered(context, what);
        if (!answer) {
            return answer.error();
        }
        const Json& text = at(*answer, "script");
        if (!text.is_string()) {
            return report(context,
                          {Errc::not_found, "this daemon's scheduler uses no batch scripts"});
        }
        return print_script(context, text.get_ref<const std::string&>());
    }
    const auto id = named_job(context, what, false);
    if (!id) {
        return report(context, id.error());
    }
    const auto answer = context.client.get("/v1/jobs/" + *id + "/script");
    if (!answer) {
        return report(context, answer.error());
    }
    return print_script(context, answer->body);
}

// That the scheduler has no partition of this name; nothing where it has, or that is not known.
std::optional<Error> no_such_partition(const Client& client, const std::string& name) {
    const auto cluster = client.get_json("/v1/cluster");
    if (!cluster || text_at(*cluster, "seen_at").empty()) {
        return std::nullopt;
    }
    std::vector<std::string> names;
    for (const Json& one : items_at(*cluster, "partitions")) {
        names.push_back(text_at(one, "name"));
    }
    if (std::find(names.begin(), names.end(), name) != names.end()) {
        return std::nullopt;
    }
    std::string why = "there is no partition " + name;
    if (names.empty()) {
        return Error{Errc::not_found, why + ": scheduler " + text_at(*cluster, "scheduler") +
                                          " has none; all nodes: lockstep nodes"};
    }
    const std::string near = nearest(name, names);
    for (std::size_t i = 0; i < names.size(); ++i) {
        why += (i == 0 ? "; there are " : ", ") + names[i];
    }
    return Error{Errc::not_found, why + (near.empty() ? "" : "; did you mean " + near + "?")};
}

Exit nodes(Context& context) {
    const Options& options = context.options;
    if (options.nodes_action == "check") {
        return check_nodes(context);
    }
    if (!options.nodes_action.empty()) {
        const auto node =
            context.client.get_json("/v1/nodes/" + query_encode(options.nodes_action));
        if (!node) {
            return report(context, node.error());
        }
        if (options.json) {
            print_json(context, *node);
        } else {
            print(context, node_view(context.terminal, *node));
        }
        return Exit::ok;
    }
    Json all = Json::object();
    all["items"] = Json::array();
    std::string cursor;
    bool known = false;  // the scheduler has been asked
    do {
        std::string query = "?limit=1000";
        for (const auto& [name, value] :
             {std::pair<const char*, const std::string&>{"partition", options.partition},
              {"state", options.state},
              {"cursor", cursor}}) {
            query += value.empty() ? "" : std::string("&") + name + "=" + query_encode(value);
        }
        const auto page = context.client.get_json("/v1/nodes" + query);
        if (!page) {
            return report(context, page.error());
        }
        for (const Json& node : items_at(*page, "items")) {
            all["items"].push_back(node);
        }
        cursor = text_at(*page, "next_cursor");
        known = known || !text_at(*page, "seen_at").empty();
    } while (!cursor.empty());
    if (all["items"].empty() && !options.partition.empty()) {
        if (const auto none = no_such_partition(context.client, options.partition)) {
            return report(context, *none);
        }
    }
    if (options.json) {
        print_json(context, all);
    } else if (all["items"].empty()) {
        const bool narrowed = !options.partition.empty() || !options.state.empty();
        context.err << (!known     ? "its nodes are being queried: try again in a moment"
                        : narrowed ? "no nodes like that"
                                   : "no nodes")
                    << "\n";
    } else {
        print(context, nodes_table(context.terminal, all));
    }
    return Exit::ok;
}

Exit cluster(Context& context) {
    const auto answer = context.client.get_json("/v1/cluster");
    if (!answer) {
        return report(context, answer.error());
    }
    if (context.options.json) {
        print_json(context, *answer);
    } else {
        print(context, cluster_view(context.terminal, *answer));
    }
    return Exit::ok;
}

// With the pointer, or the bare name of what it points to.
bool is_said_by(const std::string& message, const FieldError& field) {
    const std::string whole =
        (field.pointer.empty() ? "the document" : field.pointer) + ": " + field.message;
    const bool marked = field.pointer.starts_with('?') || field.pointer.starts_with('/');
    return message.starts_with(whole) || (marked && message.starts_with(whole.substr(1)));
}

// What helps against what denied the request.
void report_denial(Context& context) {
    const std::string from = one_line(context.client.token_from());
    const DeniedBy why = context.client.denied_by();
    if (why == DeniedBy::certificate && context.client.where().starts_with("https://")) {
        context.err << "Nothing was sent there. lockstep login " << context.client.where()
                    << " shows its certificate and keeps it if you confirm it; a script gives "
                       "--fingerprint or LOCKSTEP_FINGERPRINT.\n";
    } else if (why == DeniedBy::token && from.empty()) {
        context.err << "No token was found. Ask whoever runs lockstepd for one: lockstep token "
                       "create makes it. Then: lockstep login, LOCKSTEP_TOKEN, --token-file.\n";
    } else if (why == DeniedBy::token) {
        context.err << "The token is from " << from
                    << "; another one: --token-file, LOCKSTEP_TOKEN, lockstep login.\n";
    } else if (why == DeniedBy::rights && !from.empty()) {
        context.err << "The token is from " << from
                    << "; lockstep whoami says whose it is and what it may do.\n";
    }
}

}  // namespace

Result<std::string> named_job(Context& context, const std::string& text, bool acting) {
    auto found = find_job(context.client, text, acting);
    LOCKSTEP_TRY(found);
    if (!found->note.empty()) {
        context.err << found->note << "\n";
    }
    return std::move(found->id);
}

Exit report(Context& context, const Error& error) {
    // The message of a document with mistakes is often the first of them.
    const bool said = !error.fields.empty() && is_said_by(error.message, error.fields.front());
    if (said && error.fields.size() > 1) {
        context.err << "error: " << error.fields.size() << " mistakes\n";
    } else if (!said) {
        context.err << "error: " << one_line(error.message) << "\n";
    }
    for (const FieldError& field : error.fields) {
        context.err << (said && error.fields.size() == 1 ? "error: " : "  ")
                    << (field.pointer.empty() ? "the document"
                                              : name_of_parameter(context.options, field.pointer))
                    << ": " << one_line(field.message) << "\n";
    }
    if (nobody_answered(error)) {
        context.err << "Is lockstepd running at " << context.client.where()
                    << "? Start it with: lockstepd\n"
                       "Another address: --url or LOCKSTEP_URL.\n";
    } else if (error.code == Errc::denied) {
        report_denial(context);
    }
    return exit_code(error.code);
}

void print(Context& context, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
        context.out << line << "\n";
    }
    context.out << std::flush;
}

void print_json(Context& context, const Json& json) {
    context.out << harmless_json(dump_json_pretty(json)) << std::endl;
}

Exit run_verb(Context& context, const std::string& verb) {
    static const std::map<std::string, Exit (*)(Context&)> kPlain{
        {"run", run_job},     {"submit", submit},
        {"render", render},   {"script", script},
        {"jobs", jobs},       {"nodes", nodes},
        {"cluster", cluster}, {"token", token},
        {"whoami", whoami},   {"slurm-token", slurm_token},
        {"secret", secret},   {"open", open_page},
        {"rm", remove_jobs},  {"du", disk_use}};
    if (const auto found = kPlain.find(verb); found != kPlain.end()) {
        return found->second(context);
    }
    const bool acting = verb == "cancel" || verb == "restart" || verb == "checkpoint" ||
                        (verb == "profile" && !context.options.last);
    const auto id = named_job(context, context.options.id, acting);
    if (!id) {
        return report(context, id.error());
    }
    if (verb == "follow") {
        return follow_job(context, *id, context.options.wait);
    }
    static const std::map<std::string, Exit (*)(Context&, const std::string&)> kJob{
        {"show", show},         {"ranks", ranks},           {"logs", logs},
        {"events", events},     {"series", series},         {"cancel", cancel},
        {"spec", spec},         {"restart", restart},       {"checkpoint", checkpoint},
        {"evidence", evidence}, {"export", export_samples}, {"top", top},
        {"profile", profile}};
    return kJob.at(verb)(context, *id);
}

}  // namespace lockstep::cli
