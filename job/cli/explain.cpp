#include "job/cli/explain.hpp"

#include "job/base/text.hpp"
#include "job/cli/manual.hpp"
#include "job/cli/suggest.hpp"
#include "job/model/spec/spec_schema.hpp"

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
    std::string message = "a specification has no field " + one_line(path);
    std::string meant;
    for (std::size_t i = 0; i < last.size() && meant.empty(); ++i) {
        meant = last[i] == path ? paths[i] : "";  // spares: resources.spares
    }
    if (meant.empty()) {
        meant = nearest(path, paths);
    }
    if (meant.empty()) {
        const std::string close = nearest(path.substr(path.rfind('.') + 1), last);
        const auto found = std::find(last.begin(), last.end(), close);
        meant = close.empty() ? "" : paths[static_cast<std::size_t>(found - last.begin())];
    }
    return {Errc::not_found, meant.empty() ? message : message + "; did you mean " + meant + "?"};
}

}  // namespace

Result<std::vector<std::string>> explain_field(const Terminal& terminal, const std::string& path) {
    const std::size_t width =
        terminal.interactive ? std::max<std::size_t>(terminal.width, 40) : kExplainWidth;
    std::vector<std::string> lines;
    std::string parent;
    if (!path.empty()) {
        const SpecField* field = find_field(path);
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
        lines.push_back("The fields of a job's specification; lockstep explain FIELD says more.");
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
