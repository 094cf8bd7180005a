#include "job/cli/explain.hpp"

#include "job/base/text.hpp"
#include "job/cli/manual.hpp"
#include "job/cli/suggest.hpp"
#include "job/model/spec/spec_schema.hpp"
#include "job/model/state.hpp"

#include <algorithm>

namespace lockstep::cli {
namespace {

constexpr std::size_t kExplainWidth = 80;

std::string schema_value(const Json& value) {
    return value.is_string() ? value.get<std::string>() : dump_json(value);
}

// "integer, 1..16384, default 1" · "string, one of: rank node task"
std::string kind_of_field(const SpecField& field) {
    std::string out = field.type;
    const Json& schema = field.schema;
    if (const auto choices = schema.find("enum"); choices != schema.end()) {
        out += ", one of:";
        for (const Json& choice : *choices) {
            out += " " + (choice == "" ? std::string("\"\"") : schema_value(choice));
        }
    }
    const auto low = schema.find("minimum");
    const auto high = schema.find("maximum");
    if (low != schema.end() && high != schema.end()) {
        out += ", " + schema_value(*low) + ".." + schema_value(*high);
    } else if (low != schema.end()) {
        out += ", at least " + schema_value(*low);
    } else if (high != schema.end()) {
        out += ", at most " + schema_value(*high);
    }
    if (const auto value = schema.find("default");
        value != schema.end() && *value != "" && !value->is_structured()) {
        out += ", default " + schema_value(*value);
    }
    return field.required ? out + ", required" : out;
}

std::string first_sentence(const std::string& text) {
    const std::size_t end = text.find(". ");
    return end == std::string::npos ? text : text.substr(0, end + 1);
}

void wrap_words(const std::string& text, std::size_t indent, std::size_t width,
                std::vector<std::string>& lines) {
    const std::string blanks(indent, ' ');
    std::string line;
    for (const std::string& word : split(text, ' ')) {
        if (!line.empty() && indent + visible_width(line) + 1 + visible_width(word) > width) {
            lines.push_back(blanks + line);
            line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
    }
    if (!line.empty()) {
        lines.push_back(blanks + line);
    }
}

std::string example_of_field(const SpecField& field) {
    const auto examples = field.schema.find("examples");
    if (examples == field.schema.end() || !examples->is_array() || examples->empty()) {
        return "";
    }
    return dump_json(examples->front());
}

// Of resources: resources.nodes, not resources.a.b; of "": name.
bool lies_below(const std::string& path, const std::string& parent) {
    std::string rest = path;
    if (!parent.empty()) {
        const bool inside = path.starts_with(parent + ".") || path.starts_with(parent + "[].");
        if (!inside) {
            return false;
        }
        rest = path.substr(path.find('.', parent.size()) + 1);
    }
    return rest.find('.') == std::string::npos;
}

// People write roles.count, roles[0].count and /resources/nodes, too.
std::string plain_path(std::string path) {
    std::replace(path.begin(), path.end(), '/', '.');
    if (path.starts_with('.')) {
        path.erase(0, 1);
    }
    std::string out;
    for (std::size_t at = 0; at < path.size(); ++at) {
        if (path[at] == '[') {
            at = std::min(path.find(']', at), path.size());
        } else {
            out += path[at];
        }
    }
    return out;
}

// What each cause says about the job, and what to do next.
const char* meaning(CauseClass cause) {
    switch (cause) {
        case CauseClass::none:
            return "The job has not ended, or it succeeded.";
        case CauseClass::user_error:
            return "The script or the specification is wrong: a program that is not there, a "
                   "folder that cannot be entered, a mistake in the arguments. Ranks are not "
                   "started again. The message and the log of the rank say where.";
        case CauseClass::rank_exit:
            return "A rank ended by itself with an exit code, or an exception that nobody caught. "
                   "lockstep show ID has its traceback, lockstep logs ID --failed what it printed.";
        case CauseClass::rank_signal:
            return "A signal ended a rank: a crash in native code (SIGSEGV, SIGABRT), or somebody "
                   "killed it. lockstep logs ID --failed has what it printed last.";
        case CauseClass::oom:
            return "A node ran out of memory and the kernel killed a rank. Take a smaller batch or "
                   "fewer loader workers, or ask for more: lockstep run --mem 64G, which is "
                   "resources.memory_mb_per_node.";
        case CauseClass::node_lost:
            return "A node was no longer heard from: it failed, or its network did. Or it could "
                   "not start its ranks for a reason of its own, a full disk say. With "
                   "resources.spares or resources.min_nodes the job goes on without it.";
        case CauseClass::gpu_fault:
            return "A GPU failed the pre-flight, or reported an error of its own (XID 48, 64, 74, "
                   "79, 95) about when a rank failed. With recovery a spare takes its node's "
                   "place, "
                   "or another attempt goes without it. lockstep nodes NAME has the faults of a "
                   "node; it should be looked at before it is used again.";
        case CauseClass::hang:
            return "No rank made a step for longer than recovery allows. lockstep evidence ID "
                   "shows what each rank was doing, those that the others waited for first.";
        case CauseClass::nonfinite_loss:
            return "The loss was not a finite number. A lower learning rate or clipped gradients "
                   "often help; lockstep series ID loss shows how it came to that.";
        case CauseClass::rendezvous_timeout:
            return "Not every node called in and met the others within five minutes. lockstep "
                   "nodes check tests whether nodes can reach each other.";
        case CauseClass::preempted:
            return "The scheduler took the nodes for another job. With recovery the job is queued "
                   "again.";
        case CauseClass::time_limit:
            return "The time limit came before the end. Ask for a longer one, or let the job "
                   "write checkpoints and resume from them.";
        case CauseClass::scheduler:
            return "The scheduler refused the job or ended it, at its deadline for example; the "
                   "message has its words.";
        case CauseClass::cancelled_by_user:
            return "Somebody cancelled it; lockstep events ID says who.";
        case CauseClass::internal:
            return "Lockstep itself failed. Please report it, with the log of lockstepd.";
        case CauseClass::dependency:
            return "A job that it was to run after did not succeed.";
        case CauseClass::restart_requested:
            return "Of a generation: somebody asked for a restart, lockstep restart ID; the next "
                   "one resumes from the newest checkpoint.";
        case CauseClass::node_returned:
            return "Of a generation: a node that had been lost is back, and the next one has more "
                   "nodes.";
    }
    return "";
}

const SpecField* find_field(const std::string& path) {
    for (const SpecField& field : spec_fields()) {
        if (plain_path(field.path) == plain_path(path)) {
            return &field;
        }
    }
    return nullptr;
}

Error no_such_field(const std::string& path) {
    std::vector<std::string> paths;
    std::vector<std::string> last;
    for (const SpecField& field : spec_fields()) {
        paths.push_back(field.path);
        last.push_back(field.path.substr(field.path.rfind('.') + 1));
    }
    std::string message = "no field of a specification and no cause is named " + one_line(path);
    std::string meant;
    for (std::size_t i = 0; i < last.size() && meant.empty(); ++i) {
        meant = last[i] == path ? paths[i] : "";  // spares: resources.spares
    }
    if (meant.empty()) {
        std::vector<std::string> known = paths;
        for (std::size_t i = 0; i < kCauseClasses; ++i) {
            known.emplace_back(to_string(static_cast<CauseClass>(i)));
        }
        meant = nearest(path, known);
    }
    if (meant.empty()) {
        const std::string close = nearest(path.substr(path.rfind('.') + 1), last);
        const auto found = std::find(last.begin(), last.end(), close);
        meant = close.empty() ? "" : paths[static_cast<std::size_t>(found - last.begin())];
    }
    return {Errc::not_found, meant.empty() ? message : message + "; did you mean " + meant + "?"};
}

Json json_of_field(const SpecField& field) {
    Json out = Json::object();
    out["field"] = field.path;
    out["type"] = field.type;
    out["required"] = field.required;
    out["description"] = field.description;
    return out;
}

}  // namespace

Result<Json> explain_json(const std::string& path) {
    Json out = Json::object();
    std::string parent;
    if (!path.empty()) {
        const SpecField* field = find_field(path);
        const auto cause = parse_cause_class(path);
        if (field == nullptr && cause) {
            out["cause"] = path;
            out["description"] = meaning(*cause);
            return out;
        }
        if (field == nullptr) {
            return fail(no_such_field(path));
        }
        parent = field->path;
        out = json_of_field(*field);
        out["schema"] = field->schema;
    }
    out["fields"] = Json::array();
    for (const SpecField& field : spec_fields()) {
        if (lies_below(field.path, parent)) {
            out["fields"].push_back(json_of_field(field));
        }
    }
    return out;
}

Result<std::vector<std::string>> explain_field(const Terminal& terminal, const std::string& path) {
    const std::size_t width =
        terminal.interactive ? std::max<std::size_t>(terminal.width, 40) : kExplainWidth;
    std::vector<std::string> lines;
    std::string parent;
    if (!path.empty()) {
        const SpecField* field = find_field(path);
        if (const auto cause = parse_cause_class(path); cause && field == nullptr) {
            lines.push_back(paint(terminal, Style::bold, path));
            lines.emplace_back("  why a job, an attempt or a generation ended");
            lines.emplace_back();
            wrap_words(meaning(*cause), 2, width, lines);
            return lines;
        }
        if (field == nullptr) {
            return fail(no_such_field(path));
        }
        parent = field->path;
        lines.push_back(paint(terminal, Style::bold, parent));
        wrap_words(kind_of_field(*field), 2, width, lines);
        lines.emplace_back();
        wrap_words(field->description, 2, width, lines);
        if (const std::string example = example_of_field(*field); !example.empty()) {
            lines.emplace_back();
            lines.push_back("  " + paint(terminal, Style::dim, "for example ") + example);
        }
    } else {
        lines.push_back(
            "The fields of a job's specification; lockstep explain FIELD says more, and "
            "lockstep explain CAUSE what a cause like rank_exit means.");
    }
    bool titled = false;
    for (const SpecField& field : spec_fields()) {
        if (!lies_below(field.path, parent)) {
            continue;
        }
        if (!titled) {
            lines.emplace_back();
            titled = true;
        }
        lines.push_back("  " + paint(terminal, Style::bold, field.path) + "  " +
                        paint(terminal, Style::dim, cut(terminal, kind_of_field(field), 60)));
        wrap_words(first_sentence(field.description), 6, width, lines);
    }
    return lines;
}

std::string job_man_page(std::string_view version, std::string_view date) {
    std::string out = ".TH LOCKSTEP\\-JOB 5 \"" + std::string(date) + "\" \"lockstep " +
                      std::string(version) +
                      "\" \"Lockstep\"\n.SH NAME\n"
                      "lockstep\\-job \\- job specification of Lockstep\n.SH DESCRIPTION\n";
    out += man_text(
        "A job is described by one JSON object, which lockstep submit FILE sends to "
        "lockstepd; lockstep run makes it from its arguments. lockstep submit also reads "
        "YAML, and JSON with comments and trailing commas. A field that does not exist, or "
        "that would have no effect, is an error that names it. The smallest one is "
        "{\"name\": \"first\", \"framework\": \"native\"}.");
    out += ".PP\n" + man_text(
                         "In the names below a dot leads into an object, [] stands for each item "
                         "of an array and * for any key. lockstep explain FIELD prints the same.");
    out += ".SH FIELDS\n";
    for (const SpecField& field : spec_fields()) {
        out += ".TP\n\\fB" + man_words(field.path) + "\\fR (" + man_words(kind_of_field(field)) +
               ")\n" + man_text(field.description);
        if (const std::string example = example_of_field(field); !example.empty()) {
            out += ".br\n" + man_text("For example: " + example);
        }
    }
    out += ".SH SEE ALSO\n.BR lockstep (1),\n.BR lockstepd (8)\n";
    return out;
}

}  // namespace lockstep::cli
