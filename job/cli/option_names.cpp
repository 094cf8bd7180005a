#include "job/cli/option_names.hpp"

#include "job/base/text.hpp"
#include "job/cli/terminal.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr std::size_t kShownTyped = 64;

// What stands behind the option in a message.
enum class Behind {
    value,     // what the document has there: --time 5x
    member,    // the name of the member: --env HOME; its value may be long, or a secret
    pair,      // both: --label team=vision
    argument,  // the word itself
    nothing,   // a mistake of the whole; what is in it has a row of its own, or no option
};

struct OptionRow {
    std::string_view pointer;  // itself, and for lists and objects also what is in them
    std::string_view run;      // "" = no option of run makes it
    std::string_view check;    // nodes check
    Behind behind = Behind::value;
};

constexpr std::array kOptionRows{
    OptionRow{"/name", "--name", ""},
    OptionRow{"/framework", "--framework", ""},
    OptionRow{"/command", "COMMAND", "", Behind::argument},
    OptionRow{"/launch", "--launch", ""},
    OptionRow{"/resources/nodes", "--nodes", "--nodes"},
    OptionRow{"/resources/min_nodes", "--min-nodes", ""},
    OptionRow{"/resources/ranks_per_node", "--ranks-per-node", ""},
    OptionRow{"/resources/gpus_per_node", "--gpus-per-node", "--gpus"},
    OptionRow{"/resources/ranks_per_gpu", "--ranks-per-gpu", ""},
    OptionRow{"/resources/cpus_per_rank", "--cpus-per-rank", ""},
    OptionRow{"/resources/gpu_type", "--gpu-type", ""},
    OptionRow{"/resources/memory_mb_per_node", "--mem", ""},
    OptionRow{"/resources/time_limit", "--time", "--time"},
    OptionRow{"/resources", "--nodes, --ranks-per-node", "--nodes", Behind::nothing},
    OptionRow{"/slurm/partition", "--partition", "--partition"},
    OptionRow{"/slurm/account", "--account", "--account"},
    OptionRow{"/slurm/qos", "--qos", "--qos"},
    OptionRow{"/slurm/constraint", "--constraint", "--constraint"},
    OptionRow{"/slurm/reservation", "--reservation", "--reservation"},
    OptionRow{"/slurm/nodelist", "--nodelist", "--nodelist"},
    OptionRow{"/slurm/exclude", "--exclude", "--exclude"},
    OptionRow{"/slurm/exclusive", "--exclusive", ""},
    OptionRow{"/slurm/directives", "--sbatch", "", Behind::pair},
    OptionRow{"/preflight/cpu_test", "", "--cpu-test"},
    OptionRow{"/preflight/gpu_test", "", "--gpu-test"},
    OptionRow{"/preflight/pair_test", "", "--pair-test"},
    OptionRow{"/preflight/nccl_test", "", "--nccl-test"},
    OptionRow{"/working_directory", "--chdir", ""},
    OptionRow{"/environment", "--env", "", Behind::member},
    OptionRow{"/setup", "--setup", ""},
    OptionRow{"/recovery/max_restarts", "--max-restarts", ""},
    OptionRow{"/secrets", "--secret", ""},
    OptionRow{"/notify", "--notify", ""},
    OptionRow{"/labels", "--label", "", Behind::pair},
    OptionRow{"/sweep/max_parallel", "--max-parallel", ""},
    OptionRow{"/sweep/parameters", "--sweep", "", Behind::member},
    OptionRow{"/sweep", "--sweep", "", Behind::member},
};

struct ParameterRow {
    std::string_view pointer;
    std::string_view option;
    std::string Options::* value = nullptr;
};

constexpr std::array kParameterRows{
    ParameterRow{"?label", "--label", &Options::label},
    ParameterRow{"?q", "--search", &Options::search},
    ParameterRow{"?user", "--user", &Options::user},
    ParameterRow{"?name", "--name", &Options::name},
    ParameterRow{"?state", "--state", &Options::state},
    ParameterRow{"?partition", "--partition", &Options::partition},
    ParameterRow{"?metric", "METRIC", &Options::metric},
    ParameterRow{"?ranks", "--rank", &Options::ranks},
    ParameterRow{"?points", "--points"},
    ParameterRow{"/ranks", "--ranks", &Options::ranks},  // of a profile
    ParameterRow{"/seconds", "--seconds"},
    ParameterRow{"/name", "NAME", &Options::token},  // of a token
    ParameterRow{"/user", "--user", &Options::user},
    ParameterRow{"/role", "--role", &Options::role},
    ParameterRow{"/scopes", "--scope"},
    ParameterRow{"/expires_in", "--expires", &Options::expires},
};

std::string_view option_in(const OptionRow& row, const Document& document) {
    return document.made_by == MadeBy::run     ? row.run
           : document.made_by == MadeBy::check ? row.check
                                               : std::string_view{};
}

const Json* found_at(const Json& json, const std::string& pointer) {
    try {
        const Json::json_pointer at{pointer};
        return json.contains(at) ? &json.at(at) : nullptr;
    } catch (const Json::exception&) {
        return nullptr;
    }
}

std::string value_text(const Json* value) {
    if (value == nullptr || value->is_structured() || value->is_null() || value->is_boolean()) {
        return "";
    }
    const std::string text = value->is_string() ? value->get<std::string>() : dump_json(*value);
    return text.empty() ? "\"\"" : one_line(text.substr(0, kShownTyped));
}

// The last name of the pointer as it was before RFC 6901 escaped it.
std::string member_text(const std::string& pointer) {
    std::string text = pointer.substr(pointer.rfind('/') + 1);
    for (const auto& [from, to] : {std::pair{"~1", "/"}, {"~0", "~"}}) {
        for (std::size_t at = text.find(from); at != std::string::npos;
             at = text.find(from, at + 1)) {
            text.replace(at, 2, to);
        }
    }
    return one_line(text.substr(0, kShownTyped));
}

std::string what_is_behind(const OptionRow& row, const Document& document,
                           const std::string& pointer) {
    std::string value = value_text(found_at(document.json, pointer));
    if (row.behind == Behind::value || row.behind == Behind::argument) {
        return value;
    }
    if (pointer.size() == row.pointer.size()) {
        return "";  // all of it, not one
    }
    const std::string member = member_text(pointer);
    return row.behind == Behind::pair ? member + "=" + value : member;
}

// As --sweep resources.nodes=1,2 names a field.
std::string swept_name(const std::string& pointer) {
    std::string path = pointer.substr(pointer.empty() ? 0 : 1);
    std::replace(path.begin(), path.end(), '/', '.');
    return path;
}

bool is_swept(const Document& document, const std::string& path) {
    const Json* parameters = found_at(document.json, "/sweep/parameters");
    return parameters != nullptr && parameters->is_object() && parameters->contains(path);
}

bool ends_a_name(const std::string& text, std::size_t at) {
    return at >= text.size() || (std::isalnum(static_cast<unsigned char>(text[at])) == 0 &&
                                 text[at] != '_' && text[at] != '-' && text[at] != '/');
}

}  // namespace

std::string name_of_field(const Document& document, const std::string& pointer) {
    for (const OptionRow& row : kOptionRows) {
        const bool inside =
            row.behind != Behind::nothing && pointer.starts_with(std::string{row.pointer} + "/");
        const std::string_view option = option_in(row, document);
        if (option.empty() || (pointer != row.pointer && !inside)) {
            continue;
        }
        if (const std::string path = swept_name(pointer); is_swept(document, path)) {
            return "--sweep " + one_line(path.substr(0, kShownTyped));
        }
        const std::string behind = what_is_behind(row, document, pointer);
        return std::string{option} + (behind.empty() ? "" : " " + behind);
    }
    return one_line(pointer);
}

std::string name_of_parameter(const Options& options, const std::string& pointer) {
    for (const ParameterRow& row : kParameterRows) {
        if (pointer == row.pointer) {
            const std::string value = row.value == nullptr ? "" : options.*row.value;
            return std::string{row.option} +
                   (value.empty() ? "" : " " + one_line(value.substr(0, kShownTyped)));
        }
    }
    return one_line(pointer);
}

std::string with_option_names(const Document& document, std::string text) {
    for (const OptionRow& row : kOptionRows) {
        const std::string_view option = option_in(row, document);
        // /name could be somebody's folder.
        const bool distinct =
            row.pointer.find('/', 1) != std::string_view::npos || row.pointer == "/environment";
        if (option.empty() || !distinct) {
            continue;
        }
        for (std::size_t at = text.find(row.pointer); at != std::string::npos;
             at = text.find(row.pointer, at + 1)) {
            const bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '(';
            if (begins && ends_a_name(text, at + row.pointer.size())) {
                text.replace(at, row.pointer.size(), option);
            }
        }
    }
    return text;
}

}  // namespace lockstep::cli
