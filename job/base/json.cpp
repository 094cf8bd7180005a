#include "job/base/json.hpp"

#include "job/base/limits.hpp"

#include <cmath>

namespace lockstep {
namespace {

// Builds the document from the parser's events, so that depth, size and repeated keys are refused
// while parsing: nlohmann's own tree builder accepts all three and its copies recurse.
class Builder final : public nlohmann::json_sax<Json> {
  public:
    Json root;
    std::string problem;
    JsonProblem place_of_problem;

    bool null() override { return put(Json(nullptr)); }
    bool boolean(bool value) override { return put(Json(value)); }
    bool number_integer(number_integer_t value) override { return put(Json(value)); }
    bool number_unsigned(number_unsigned_t value) override {
        if (value > static_cast<number_unsigned_t>(INT64_MAX)) {
            return stop("a number is out of range");
        }
        return put(Json(static_cast<std::int64_t>(value)));
    }
    bool number_float(number_float_t value, const string_t&) override {
        if (!std::isfinite(value)) {
            return stop("a number is out of range");
        }
        return put(Json(value));
    }
    bool string(string_t& value) override { return put(Json(std::move(value))); }
    bool binary(binary_t&) override { return stop("binary value"); }
    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& value) override {
        // Looking a key up is linear in an ordered object, so its size is bounded too.
        if (stack_.back()->size() >= limits::kJsonKeys) {
            return stop("more than " + std::to_string(limits::kJsonKeys) + " keys in one object");
        }
        if (stack_.back()->contains(value)) {
            return stop("the key \"" + value.substr(0, 64) + "\" appears twice");
        }
        key_ = std::move(value);
        return true;
    }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::detail::exception& why) override {
        // nlohmann's text holds the offending bytes; keep only the place, the bytes may be hostile.
        // Its error has no number of its own for bad UTF-8 (101 is any syntax error, 3.11.2).
        place_of_problem = {position, std::string_view{why.what()}.find("ill-formed UTF-8 byte") !=
                                          std::string_view::npos};
        problem = std::string{"not JSON: "} +
                  (place_of_problem.bad_utf8 ? "invalid UTF-8" : "syntax error") + " at byte " +
                  std::to_string(position);
        return false;
    }

  private:
    bool stop(std::string text) {
        problem = std::move(text);
        return false;
    }
    Json* place(Json&& value) {
        if (stack_.empty()) {
            root = std::move(value);
            return &root;
        }
        Json& parent = *stack_.back();
        if (parent.is_array()) {
            parent.push_back(std::move(value));
            return &parent.back();
        }
        Json& slot = parent[key_];
        slot = std::move(value);
        return &slot;
    }
    bool put(Json&& value) {
        if (++nodes_ > limits::kJsonNodes) {
            return stop("too many values in one document");
        }
        place(std::move(value));
        return true;
    }
    bool open(Json&& value) {
        if (stack_.size() >= limits::kJsonDepth) {
            return stop("nested deeper than " + std::to_string(limits::kJsonDepth) + " levels");
        }
        if (++nodes_ > limits::kJsonNodes) {
            return stop("too many values in one document");
        }
        stack_.push_back(place(std::move(value)));
        return true;
    }
    bool close() {
        stack_.pop_back();
        return true;
    }

    std::vector<Json*> stack_;
    std::string key_;
    std::size_t nodes_ = 0;
};

}  // namespace

Result<Json> parse_json(std::string_view text) {
    JsonProblem ignored;
    return parse_json(text, ignored);
}

Result<Json> parse_json(std::string_view text, JsonProblem& problem) {
    Builder builder;
    const bool good = Json::sax_parse(text.begin(), text.end(), &builder);
    problem = builder.place_of_problem;
    if (!good) {
        return fail(Errc::invalid,
                    builder.problem.empty() ? std::string{"not JSON"} : builder.problem);
    }
    return std::move(builder.root);
}

std::string dump_json(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string dump_json_pretty(const Json& value) {
    return value.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string pointer_token(std::string_view key) {
    std::string out;
    for (const char c : key) {
        if (c == '~') {
            out += "~0";
        } else if (c == '/') {
            out += "~1";
        } else {
            out += c;
        }
    }
    return out;
}

Error field_errors(std::vector<FieldError> fields) {
    const FieldError& first = fields.front();
    std::string message =
        (first.pointer.empty() ? "the document" : first.pointer) + ": " + first.message;
    if (fields.size() > 1) {
        message += " (and " + std::to_string(fields.size() - 1) + " more)";
    }
    return Error{Errc::invalid, std::move(message), std::move(fields)};
}

ObjectReader::ObjectReader(const Json& object, std::string pointer, std::vector<FieldError>& errors)
    : object_(object), pointer_(std::move(pointer)), errors_(errors) {
    if (!object_.is_object()) {
        errors_.push_back({pointer_, "must be an object"});
    }
}

std::string ObjectReader::pointer(std::string_view key) const {
    return pointer_ + "/" + pointer_token(key);
}

void ObjectReader::error(std::string_view key, std::string message) {
    errors_.push_back({pointer(key), std::move(message)});
}

const Json* ObjectReader::raw(std::string_view key) {
    known_.emplace(key);
    if (!object_.is_object()) {
        return nullptr;
    }
    const auto found = object_.find(std::string{key});
    return found == object_.end() ? nullptr : &*found;
}

bool ObjectReader::has(std::string_view key) {
    return raw(key) != nullptr;
}

void ObjectReader::boolean(std::string_view key, bool& target) {
    if (const Json* value = raw(key)) {
        if (value->is_boolean()) {
            target = value->get<bool>();
        } else {
            error(key, "must be true or false");
        }
    }
}

template <class T>
void ObjectReader::integer_as(std::string_view key, T& target, std::int64_t min, std::int64_t max) {
    const Json* value = raw(key);
    if (value == nullptr) {
        return;
    }
    if (!value->is_number_integer()) {
        error(key, "must be an integer");
        return;
    }
    const auto number = value->get<std::int64_t>();
    if (number < min || number > max) {
        error(key, "must be " + std::to_string(min) + ".." + std::to_string(max));
        return;
    }
    target = static_cast<T>(number);
}

void ObjectReader::integer(std::string_view key, std::int32_t& target, std::int64_t min,
                           std::int64_t max) {
    integer_as(key, target, min, max);
}
void ObjectReader::integer(std::string_view key, std::int64_t& target, std::int64_t min,
                           std::int64_t max) {
    integer_as(key, target, min, max);
}

void ObjectReader::number(std::string_view key, double& target, double min, double max) {
    const Json* value = raw(key);
    if (value == nullptr) {
        return;
    }
    if (!value->is_number()) {
        error(key, "must be a number");
        return;
    }
    const double number = value->get<double>();
    if (!(number >= min && number <= max)) {
        error(key, "must be " + dump_json(Json(min)) + ".." + dump_json(Json(max)));
        return;
    }
    target = number;
}

void ObjectReader::string(std::string_view key, std::string& target, std::size_t max_bytes) {
    const Json* value = raw(key);
    if (value == nullptr) {
        return;
    }
    if (!value->is_string()) {
        error(key, "must be a string");
        return;
    }
    const auto& text = value->get_ref<const std::string&>();
    if (text.size() > max_bytes) {
        error(key, "is longer than " + std::to_string(max_bytes) + " bytes");
    } else if (text.find('\0') != std::string::npos) {
        error(key, "must not contain NUL");
    } else {
        target = text;
    }
}

void ObjectReader::strings(std::string_view key, std::vector<std::string>& target,
                           std::size_t max_items, std::size_t max_bytes) {
    const Json* value = raw(key);
    if (value == nullptr) {
        return;
    }
    if (!value->is_array()) {
        error(key, "must be an array of strings");
        return;
    }
    if (value->size() > max_items) {
        error(key, "has more than " + std::to_string(max_items) + " items");
        return;
    }
    std::vector<std::string> items;
    for (std::size_t i = 0; i < value->size(); ++i) {
        const Json& item = (*value)[i];
        const std::string at = pointer(key) + "/" + std::to_string(i);
        if (!item.is_string()) {
            errors_.push_back({at, "must be a string"});
        } else if (item.get_ref<const std::string&>().size() > max_bytes) {
            errors_.push_back({at, "is longer than " + std::to_string(max_bytes) + " bytes"});
        } else if (item.get_ref<const std::string&>().find('\0') != std::string::npos) {
            errors_.push_back({at, "must not contain NUL"});
        } else {
            items.push_back(item.get<std::string>());
        }
    }
    target = std::move(items);
}

void ObjectReader::word(std::string_view key, std::size_t& target,
                        const std::vector<std::string_view>& words) {
    std::string text;
    const Json* value = raw(key);
    if (value == nullptr) {
        return;
    }
    if (value->is_string()) {
        text = value->get<std::string>();
    }
    std::string choices;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (value->is_string() && text == words[i]) {
            target = i;
            return;
        }
        choices += (i == 0 ? "" : ", ") + std::string{words[i]};
    }
    error(key, "must be one of: " + choices);
}

void ObjectReader::finish() {
    if (!object_.is_object()) {
        return;
    }
    for (const auto& [key, value] : object_.items()) {
        if (!known_.contains(key)) {
            errors_.push_back({pointer(key.substr(0, limits::kTextBytes)),
                               "unknown field",
                               {known_.begin(), known_.end()}});
        }
    }
}

}  // namespace lockstep
