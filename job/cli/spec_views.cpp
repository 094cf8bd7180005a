#include "job/cli/spec_views.hpp"

#include "job/cli/fields.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <map>

namespace lockstep::cli {
namespace {

void add_fact(std::vector<std::string>& lines, const Terminal& terminal, std::string_view name,
              const std::string& value) {
    if (!value.empty()) {
        lines.push_back(paint(terminal, Style::dim, fit(terminal, name, 12, false)) + "  " + value);
    }
}

std::map<std::string, std::string> variables_at(const Json& spec, const char* key) {
    std::map<std::string, std::string> out;
    const Json& object = at(spec, key);
    if (object.is_object()) {
        for (const auto& [name, value] : object.items()) {
            out[name] = value.is_string() ? value.get<std::string>() : dump_json(value);
        }
    }
    return out;
}

}  // namespace

std::vector<std::string> spec_view(const Terminal& terminal, const Json& spec) {
    std::vector<std::string> lines;
    std::string command;
    for (const Json& word : items_at(spec, "command")) {
        command += (command.empty() ? "" : " ") +
                   (word.is_string() ? one_line(word.get_ref<const std::string&>()) : "?");
    }
    add_fact(lines, terminal, "command", command);
    add_fact(lines, terminal, "directory", text_at(spec, "working_directory"));
    add_fact(lines, terminal, "setup", one_line(text_at(spec, "setup")));
    const std::size_t recorded = variables_at(spec, "recorded_environment").size();
    const std::size_t own = variables_at(spec, "environment").size();
    if (recorded > 0 || own > 0) {
        add_fact(
            lines, terminal, "environment",
            (recorded > 0 ? std::to_string(recorded) + " variables of the submitting shell" : "") +
                (recorded > 0 && own > 0 ? ", " : "") +
                (own > 0 ? std::to_string(own) + " of its own" : "") +
                ": lockstep show ID --environment");
    }
    std::string secrets;
    for (const Json& name : items_at(spec, "secrets")) {
        secrets += (secrets.empty() ? "" : ", ") +
                   (name.is_string() ? one_line(name.get_ref<const std::string&>()) : "?");
    }
    add_fact(lines, terminal, "secrets", secrets);
    return lines;
}

std::vector<std::string> environment_view(const Json& spec) {
    auto all = variables_at(spec, "recorded_environment");
    for (const auto& [name, value] : variables_at(spec, "environment")) {
        std::string plain;  // $$ is a dollar sign
        for (std::size_t i = 0; i < value.size(); ++i) {
            plain += value[i];
            i += value.compare(i, 2, "$$") == 0 ? 1 : 0;
        }
        all[name] = plain;
    }
    std::vector<std::string> lines;
    lines.reserve(all.size());
    for (const auto& [name, value] : all) {
        lines.push_back(one_line(name) + "=" +
                        (is_secret_name(name) ? std::string{kMaskedValue} : one_line(value)));
    }
    return lines;
}

}  // namespace lockstep::cli
