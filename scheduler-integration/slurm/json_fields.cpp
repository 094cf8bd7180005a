#include "scheduler-integration/slurm/json_fields.hpp"

#include "job/base/text.hpp"

namespace lockstep::json_fields {

const Json* member(const Json& object, const char* key) {
    if (!object.is_object()) {
        return nullptr;
    }
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json* at(const Json& object, std::initializer_list<const char*> keys) {
    const Json* value = &object;
    for (const char* key : keys) {
        value = value != nullptr ? member(*value, key) : nullptr;
    }
    return value;
}

std::string_view text_of(const Json* value) {
    return value != nullptr && value->is_string() ? value->get_ref<const std::string&>()
                                                  : std::string_view{};
}

std::optional<std::int64_t> number_of(const Json* value) {
    if (value == nullptr) {
        return std::nullopt;
    }
    if (value->is_number_integer()) {
        return value->get<std::int64_t>();
    }
    const Json* number = member(*value, "number");
    const Json* set = member(*value, "set");
    const Json* infinite = member(*value, "infinite");
    const bool known = (set == nullptr || (set->is_boolean() && set->get<bool>())) &&
                       (infinite == nullptr || (infinite->is_boolean() && !infinite->get<bool>()));
    return number != nullptr && number->is_number_integer() && known
               ? std::optional{number->get<std::int64_t>()}
               : std::nullopt;
}

std::vector<std::string> words_of(const Json* value, std::size_t cap) {
    std::vector<std::string> out;
    if (value == nullptr) {
        return out;
    }
    if (value->is_string()) {
        for (std::string& word : split(text_of(value), ',')) {
            if (!word.empty() && out.size() < cap) {
                out.push_back(printable(word));
            }
        }
    } else if (value->is_array()) {
        for (const Json& word : *value) {
            if (word.is_string() && !text_of(&word).empty() && out.size() < cap) {
                out.push_back(printable(text_of(&word)));
            }
        }
    }
    return out;
}

ExitStatus exit_of(const Json* value) {
    ExitStatus out;
    if (value == nullptr) {
        return out;
    }
    if (const auto status = number_of(value)) {
        // wait(2): the low seven bits are the signal, the next byte above them the status.
        if (*status >= 0 && *status <= 0xffff) {
            out.code = static_cast<int>((*status >> 8) & 0xff);
            out.signal = static_cast<int>(*status & 0x7f);
        }
        return out;
    }
    if (const auto code = number_of(member(*value, "return_code")); code && *code <= 255) {
        out.code = static_cast<int>(*code);
        out.signal = 0;
    }
    if (const Json* signal = member(*value, "signal")) {
        auto id = number_of(member(*signal, "id"));
        id = id ? id : number_of(member(*signal, "signal_id"));
        if (id && *id >= 0 && *id <= 255) {
            out.signal = static_cast<int>(*id);
            out.code = out.code.value_or(0);
        }
    }
    return out;
}

std::optional<SlurmState> state_of(const Json* value) {
    if (value == nullptr || !(value->is_string() || value->is_array())) {
        return std::nullopt;
    }
    if (value->is_string()) {
        return parse_slurm_state(text_of(value));
    }
    std::vector<std::string_view> words;
    for (const Json& word : *value) {
        if (!word.is_string() || words.size() == 64) {
            return std::nullopt;
        }
        words.push_back(text_of(&word));
    }
    return parse_slurm_states(words);
}

std::vector<SlurmError> errors_of(const Json* value) {
    std::vector<SlurmError> out;
    if (value == nullptr || !value->is_array()) {
        return out;
    }
    const std::vector<std::string> texts = messages(value);
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto number = number_of(member((*value)[i], "error_number"));
        out.push_back(number && *number != 0 ? slurm_error_of(*number) : slurm_error_in(texts[i]));
    }
    return out;
}

std::vector<std::string> messages(const Json* value) {
    std::vector<std::string> out;
    if (value == nullptr || !value->is_array()) {
        return out;
    }
    for (const Json& entry : *value) {
        std::string text{text_of(&entry)};
        for (const char* key : {"description", "error"}) {
            const std::string_view part = text_of(member(entry, key));
            if (!part.empty() && text.find(part) == std::string::npos) {
                text += text.empty() ? "" : ": ";
                text += part;
            }
        }
        out.push_back(text.empty() ? dump_json(entry).substr(0, 256)
                                   : printable(text.substr(0, 1024)));
        if (out.size() == 16) {
            break;
        }
    }
    return out;
}

Meta meta_of(const Json& document) {
    Meta out;
    const Json* meta = member(document, "meta");
    if (meta == nullptr) {
        return out;
    }
    if (const Json* plugin = member(*meta, "plugin")) {
        // "openapi/v0.0.38" (type, 22.05), "data_parser/v0.0.40" (data_parser, 23.11 on).
        std::string_view version = text_of(member(*plugin, "data_parser"));
        version = version.empty() ? text_of(member(*plugin, "type")) : version;
        const auto place = version.find("v0.");
        out.data_parser =
            place == std::string_view::npos ? "" : printable(version.substr(place, 32));
        if (const Json* storage = member(*plugin, "accounting_storage")) {
            out.accounting_storage = printable(text_of(storage).substr(0, 64));
        }
    }
    const Json* slurm = member(*meta, "Slurm");  // to 23.02; in lower case after
    slurm = slurm != nullptr ? slurm : member(*meta, "slurm");
    if (slurm != nullptr) {
        out.slurm_release = printable(text_of(member(*slurm, "release")).substr(0, 64));
        out.cluster = printable(text_of(member(*slurm, "cluster")).substr(0, 64));
    }
    return out;
}

}  // namespace lockstep::json_fields
