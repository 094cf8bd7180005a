#include "job/cli/run_sweep.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/terminal.hpp"
#include "job/model/spec/spec_environment.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::cli {
namespace {

// "1..4": the numbers from one to the other, down as well. Nothing if it is no range.
std::optional<std::pair<std::int64_t, std::int64_t>> range_of(const std::string& text) {
    const std::size_t dots = text.find("..");
    if (dots == std::string::npos) {
        return std::nullopt;
    }
    const auto first = to_int(text.substr(0, dots));
    const auto last = to_int(text.substr(dots + 2));
    if (!first || !last || std::max(*first, *last) > limits::kSweepRangeNumber ||
        std::min(*first, *last) < -limits::kSweepRangeNumber) {
        return std::nullopt;
    }
    return std::pair{*first, *last};
}

// 0.1 as a number, since JSON writes it so; 1e-3 as a text, since JSON would write 0.001.
Json value_of(const std::string& text) {
    auto json = parse_json(text);
    const bool same = json && json->is_primitive() && !json->is_null() && !json->is_string() &&
                      dump_json(*json) == text;
    return same ? std::move(*json) : Json(text);
}

Result<Json> values_of(const std::string& text, const std::string& option) {
    if (text.starts_with("[")) {
        auto json = parse_json(text);
        if (!json || !json->is_array()) {
            return fail(Errc::invalid, option +
                                           ": a list in brackets must be a JSON array, as in "
                                           "'[\"a,b\", \"c\"]'");
        }
        return std::move(*json);
    }
    Json out = Json::array();
    for (const std::string& one : split(text, ',')) {
        if (one.empty()) {
            return fail(Errc::invalid, option +
                                           ": a value is empty; values have commas between, "
                                           "as in 0.1,0.01");
        }
        const auto range = range_of(one);
        if (!range) {
            out.push_back(value_of(one));
            continue;
        }
        const std::int64_t step = range->first <= range->second ? 1 : -1;
        for (std::int64_t value = range->first; value != range->second + step; value += step) {
            if (out.size() > limits::kSweepPoints) {
                break;  // lockstepd says that these are too many
            }
            out.push_back(value);
        }
    }
    return out;
}

bool stands_in(const Json& json, const std::string& placeholder) {
    if (json.is_string()) {
        return json.get_ref<const std::string&>().find(placeholder) != std::string::npos;
    }
    return json.is_structured() && std::any_of(json.begin(), json.end(), [&](const Json& item) {
               return stands_in(item, placeholder);
           });
}

bool fills_a_variable(const std::string& name) {
    return name.starts_with("environment.") || name.starts_with("command.");
}

}  // namespace

Result<Json> sweep_of_texts(const std::vector<std::string>& texts, const Json& spec) {
    Json parameters = Json::object();
    for (const std::string& text : texts) {
        const std::size_t equals = text.find('=');
        const std::string name = text.substr(0, equals);
        const std::string option = "--sweep " + one_line(name);
        if (equals == std::string::npos || name.empty()) {
            return fail(Errc::invalid, "--sweep " + one_line(text) +
                                           ": must be NAME=VALUE,VALUE, as in lr=0.1,0.01");
        }
        if (parameters.contains(name)) {
            return fail(Errc::invalid, option +
                                           ": is given twice; its values go into one, with "
                                           "commas between");
        }
        const bool placeholder = stands_in(spec, "{" + name + "}");
        if (!placeholder && name.find('.') == std::string::npos) {
            return fail(Errc::invalid, option + ": {" + one_line(name) +
                                           "} stands nowhere in the command, as in --" +
                                           one_line(name) + " {" + one_line(name) + "}");
        }
        auto values = values_of(text.substr(equals + 1), option);
        if (!values) {
            return values;
        }
        if (!placeholder && fills_a_variable(name)) {
            for (Json& value : *values) {
                const std::string words =
                    value.is_string() ? value.get<std::string>() : dump_json(value);
                value = name.starts_with("environment.") ? dollars_doubled(words) : words;
            }
        }
        parameters[name] = std::move(*values);
    }
    Json out = Json::object();
    out["parameters"] = std::move(parameters);
    return out;
}

}  // namespace lockstep::cli
