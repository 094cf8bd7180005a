#include "job/cli/spec_file.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/option_names.hpp"
#include "job/cli/suggest.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <array>
#include <cstdio>
#include <filesystem>

namespace lockstep::cli {
namespace {

// One text of the specification that `change` makes another of; absent ones stay absent.
template <class Change>
void change_text(Json& object, const char* key, const std::string& pointer,
                 std::vector<FieldError>& errors, const Change& change) {
    if (!object.is_object()) {
        return;
    }
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string() ||
        found->get_ref<const std::string&>().empty()) {
        return;
    }
    auto made = change(found->template get_ref<const std::string&>());
    if (made) {
        *found = std::move(*made);
    } else {
        errors.push_back({pointer, made.error().message});
    }
}

Json* object_at(Json& spec, const char* key) {
    const auto found = spec.find(key);
    return found == spec.end() || !found->is_object() ? nullptr : &*found;
}

// SOURCE:DESTINATION[:ro|:rw]
void complete_mounts(Json& container, const Caller& caller, std::vector<FieldError>& errors) {
    const auto mounts = container.find("mounts");
    if (mounts == container.end() || !mounts->is_array()) {
        return;
    }
    for (std::size_t i = 0; i < mounts->size(); ++i) {
        Json& mount = (*mounts)[i];
        if (!mount.is_string()) {
            continue;
        }
        const std::string text = mount.get<std::string>();
        const std::size_t colon = text.find(':');
        const auto source = resolve_path(text.substr(0, colon), caller, caller.directory);
        if (!source) {
            errors.push_back({"/container/mounts/" + std::to_string(i), source.error().message});
        } else if (colon != std::string::npos) {
            mount = *source + text.substr(colon);
        } else {
            mount = *source + ":" + *source;  // the same place inside
        }
    }
}

// A registry's name looks like a relative path: docker://…, nvcr.io/nvidia/pytorch. A path is what
// begins as one, or is a file here.
Result<std::string> resolve_image(const std::string& text, const Caller& caller) {
    auto image = expand_variables(text, caller);
    if (!image || image->empty() || image->front() == '/') {
        return image;
    }
    std::error_code ec;
    const bool path = image->front() == '~' || image->front() == '.' ||
                      (image->find('\0') == std::string::npos &&
                       std::filesystem::is_regular_file(caller.directory + "/" + *image, ec));
    return path ? resolve_path(text, caller, caller.directory) : image;
}

// $NAME of the caller in one value of the environment. Other types are the parser's to refuse.
void expand_value(Json& value, const std::string& pointer, const Caller& caller,
                  std::vector<FieldError>& errors) {
    if (!value.is_string()) {
        return;
    }
    const auto text = expand_variables(value.get_ref<const std::string&>(), caller);
    if (text) {
        value = dollars_doubled(*text);
    } else {
        errors.push_back({pointer, text.error().message});
    }
}

// A sweep's parameter environment.NAME has the values of a variable.
void expand_swept(Json& spec, const Caller& caller, std::vector<FieldError>& errors) {
    Json* sweep = object_at(spec, "sweep");
    Json* parameters = sweep == nullptr ? nullptr : object_at(*sweep, "parameters");
    if (parameters == nullptr) {
        return;
    }
    for (auto& [path, values] : parameters->items()) {
        if (!path.starts_with("environment.") || !values.is_array()) {
            continue;
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
            expand_value(values[i],
                         "/sweep/parameters/" + pointer_token(path) + "/" + std::to_string(i),
                         caller, errors);
        }
    }
}

// A program of the caller's virtual or conda environment, which the job, going by its PATH, may
// find elsewhere or not at all. Nothing where the specification says what the environment is to be.
void note_environment(const Json& spec, const Caller& caller, std::vector<std::string>& notes) {
    const auto command = spec.find("command");
    const auto variables = spec.find("environment");
    const bool has_path =
        variables != spec.end() && variables->is_object() && variables->contains("PATH");
    if (spec.contains("inherit_environment") || spec.contains("setup") ||
        spec.contains("container") || has_path || command == spec.end() || !command->is_array() ||
        command->empty() || !command->front().is_string()) {
        return;
    }
    const std::string& name = command->front().get_ref<const std::string&>();
    const std::string programs = environment_programs(caller);
    if (programs.empty() || name.find('/') != std::string::npos ||
        find_on_path(name, caller) != programs + "/" + name) {
        return;
    }
    notes.push_back("warning: the job does not get this shell's environment: " + name +
                    " may be another one there than " + programs + "/" + name +
                    ", or none. inherit_environment: true gives it");
}

void complete_environment(Json& spec, const Caller& caller, std::vector<std::string>& notes,
                          std::vector<FieldError>& errors) {
    if (Json* environment = object_at(spec, "environment")) {
        for (auto& [name, value] : environment->items()) {
            expand_value(value, "/environment/" + pointer_token(name), caller, errors);
        }
    }
    expand_swept(spec, caller, errors);
    note_environment(spec, caller, notes);
    const auto inherit = spec.find("inherit_environment");
    if (inherit != spec.end() && inherit->is_boolean() && inherit->get<bool>() &&
        !spec.contains("recorded_environment")) {
        Recorded recorded = record_environment(caller);
        spec["recorded_environment"] = std::move(recorded.variables);
        add_own_variables(spec, caller);
        for (const std::string& one : recorded.left_out) {
            notes.push_back("warning: not carried to the job: " + one);
        }
    }
}

// A command that names a file of this folder can only mean it; elsewhere it would not be found.
void complete_directory(Json& spec, const Caller& caller, std::vector<std::string>& notes) {
    const auto command = spec.find("command");
    if (spec.contains("working_directory") || spec.contains("container") || command == spec.end() ||
        !command->is_array()) {
        return;
    }
    for (const Json& word : *command) {
        if (!word.is_string()) {
            continue;
        }
        const auto& text = word.get_ref<const std::string&>();
        std::error_code ec;
        if (!text.empty() && text.front() != '/' && text.front() != '-' &&
            text.find('\0') == std::string::npos &&
            std::filesystem::is_regular_file(caller.directory + "/" + text, ec)) {
            // First: a new member may move the others, and `text` with them.
            notes.push_back("working_directory: " + caller.directory + ", where " + text + " is");
            spec["working_directory"] = caller.directory;
            return;
        }
    }
}

struct Shown {
    std::string place;
    std::string excerpt;
};

Shown show_place(const Document& document, const FieldError& field) {
    const auto& places = is_unknown_field(field.pointer) ? document.keys : document.values;
    auto found = places.find(field.pointer);
    if (found == places.end() || found->second.line == 0) {
        found = document.keys.find(field.pointer);
        if (found == document.keys.end()) {
            return {one_line(document.name), ""};
        }
    }
    const Place& place = found->second;
    return {place_text(document, place), excerpt(line_of(document.text, place.line), place)};
}

const Json* value_at(const Json& json, const std::string& pointer) {
    try {
        const Json::json_pointer at{pointer};
        return json.contains(at) ? &json.at(at) : nullptr;
    } catch (const Json::exception&) {
        return nullptr;
    }
}

}  // namespace

Result<std::string> read_spec(const std::string& path) {
    if (path != "-") {
        std::error_code ec;
        if (std::filesystem::is_directory(path, ec)) {
            return fail(Errc::invalid, path + " is a directory");
        }
        auto text = read_file(path, limits::kBodyBytes);
        if (!text) {
            // Whatever is wrong with the file is wrong with the arguments.
            return fail(Errc::invalid, text.error().message);
        }
        return text;
    }
    std::string text;
    std::array<char, 16'384> buffer{};
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
        text.append(buffer.data(), count);
        if (text.size() > limits::kBodyBytes) {
            return fail(Errc::invalid, "standard input: larger than 1 MiB");
        }
    }
    return text;
}

void complete_spec(Json& spec, const Caller& caller, std::vector<std::string>& notes,
                   std::vector<FieldError>& errors) {
    if (!spec.is_object()) {
        return;  // the daemon says so
    }
    complete_directory(spec, caller, notes);
    change_text(
        spec, "working_directory", "/working_directory", errors,
        [&](const std::string& text) { return resolve_path(text, caller, caller.directory); });
    const std::string base =
        spec.contains("working_directory") ? text_at(spec, "working_directory") : caller.directory;
    const auto from_base = [&](const std::string& text) {
        return resolve_path(text, caller, base);
    };
    if (Json* checkpoint = object_at(spec, "checkpoint")) {
        change_text(*checkpoint, "directory", "/checkpoint/directory", errors, from_base);
    }
    if (Json* train = object_at(spec, "train")) {
        if (Json* dataset = object_at(*train, "dataset")) {
            change_text(*dataset, "path", "/train/dataset/path", errors, from_base);
        }
    }
    if (Json* container = object_at(spec, "container")) {
        complete_mounts(*container, caller, errors);
        change_text(*container, "image", "/container/image", errors,
                    [&](const std::string& text) { return resolve_image(text, caller); });
    }
    complete_environment(spec, caller, notes, errors);
}

std::optional<Document> load_spec(Context& context, const std::string& path) {
    auto text = read_spec(path);
    if (!text) {
        report(context, text.error());
        return std::nullopt;
    }
    const std::string name = path == "-" ? "standard input" : path;
    auto document = parse_document(name, std::move(*text));
    if (!document) {
        const DocumentError& error = document.error();
        Document named;
        named.name = name;
        context.err << "error: " << place_text(named, error.place) << ": " << error.message << "\n";
        if (const std::string shown = excerpt(error.line, error.place); !shown.empty()) {
            context.err << shown << "\n";
        }
        return std::nullopt;
    }
    std::vector<std::string> notes;
    std::vector<FieldError> errors;
    complete_spec(document->json, Caller::here(), notes, errors);
    if (!errors.empty()) {
        report_mistakes(context, *document, field_errors(std::move(errors)));
        return std::nullopt;
    }
    for (const std::string& note : notes) {
        context.err << one_line(note) << "\n";
    }
    return std::move(*document);
}

Exit report_mistakes(Context& context, const Document& document, const Error& error) {
    if (error.fields.empty()) {
        return report(context, error);
    }
    if (error.fields.size() > 1) {
        context.err << "error: " << error.fields.size() << " mistakes\n";
    }
    for (const FieldError& field : error.fields) {
        const Shown shown = show_place(document, field);
        const std::string what =
            field.pointer.empty() ? "the document" : name_of_field(document, field.pointer);
        context.err << (error.fields.size() > 1 ? "" : "error: ")
                    << (shown.place.empty() ? "" : shown.place + ": ") << one_line(what) << ": "
                    << one_line(with_option_names(document, field.message))
                    << suggestion(field, value_at(document.json, field.pointer)) << "\n";
        if (!shown.excerpt.empty()) {
            context.err << shown.excerpt << "\n";
        }
    }
    return exit_code(error.code);
}

}  // namespace lockstep::cli
