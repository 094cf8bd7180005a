// YAML by yaml-cpp, which knows where everything is; it reads JSON, too, so that it finds the
// places of either.
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/document.hpp"
#include "job/cli/terminal.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <sstream>

namespace lockstep::cli {
namespace {

Place place_of(const YAML::Mark& mark) {
    Place out;
    if (!mark.is_null()) {
        out.line = static_cast<std::size_t>(mark.line) + 1;
        out.column = static_cast<std::size_t>(mark.column) + 1;
    }
    return out;
}

// Members that are text in the schema, which then need no quotes in YAML.
bool wants_text(std::string_view pointer) {
    constexpr std::array<std::string_view, 12> kTexts{"/name",
                                                      "/setup",
                                                      "/working_directory",
                                                      "/resources/time_limit",
                                                      "/resources/gpu_type",
                                                      "/slurm/account",
                                                      "/slurm/partition",
                                                      "/slurm/qos",
                                                      "/slurm/constraint",
                                                      "/slurm/reservation",
                                                      "/slurm/nodelist",
                                                      "/slurm/exclude"};
    constexpr std::array<std::string_view, 5> kBelow{
        "/command/", "/environment/", "/labels/", "/slurm/directives/", "/recorded_environment/"};
    return std::find(kTexts.begin(), kTexts.end(), pointer) != kTexts.end() ||
           std::any_of(kBelow.begin(), kBelow.end(),
                       [&](std::string_view start) { return pointer.starts_with(start); });
}

// The core schema of YAML 1.2: no yes, no, on, off and no 4:00:00 in base 60.
Json core_value(const std::string& text) {
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
        return nullptr;
    }
    if (text == "true" || text == "True" || text == "TRUE") {
        return true;
    }
    if (text == "false" || text == "False" || text == "FALSE") {
        return false;
    }
    const std::string_view digits = text.front() == '+' ? std::string_view{text}.substr(1) : text;
    if (digits.size() < text.size() && (digits.starts_with('+') || digits.starts_with('-'))) {
        return text;
    }
    if (const auto number = to_int(digits)) {
        return *number;
    }
    const bool numeric = digits.find_first_not_of("0123456789+-.eE") == std::string_view::npos &&
                         digits.find_first_of("0123456789") != std::string_view::npos;
    if (const auto number = numeric ? to_double(digits) : std::nullopt;
        number && std::isfinite(*number)) {
        return *number;
    }
    return text;
}

class YamlReader {
  public:
    explicit YamlReader(Document& document) : document_(document) {}

    // Notes the places, too; of a field that is also merged the first: the one that counts.
    Json read(const YAML::Node& node, const std::string& pointer, std::size_t depth) {
        if (!enter(node, pointer.size() + (node.IsScalar() ? node.Scalar().size() : 0), depth)) {
            return nullptr;
        }
        document_.values.try_emplace(pointer, place_of(node.Mark()));
        switch (node.Type()) {
            case YAML::NodeType::Scalar:
                return scalar(node, pointer);
            case YAML::NodeType::Sequence: {
                Json out = Json::array();
                for (std::size_t i = 0; i < node.size() && !error_; ++i) {
                    out.push_back(read(node[i], pointer + "/" + std::to_string(i), depth + 1));
                }
                return out;
            }
            case YAML::NodeType::Map:
                return map(node, pointer, depth);
            case YAML::NodeType::Null:
            case YAML::NodeType::Undefined:
                break;
        }
        // A variable that is given nothing is empty; a word of the command that is nothing is a
        // mistake, as it is in JSON.
        return wants_text(pointer) && !pointer.starts_with("/command/") ? Json("") : Json(nullptr);
    }
    std::optional<DocumentError> error_;

  private:
    // Aliases may lead in circles and multiply what is there, wherever they stand: before anything
    // is read it is counted. False: too much, error_ says so.
    bool enter(const YAML::Node& node, std::size_t bytes, std::size_t depth) {
        bytes_ += bytes;
        if (++nodes_ > limits::kJsonNodes || bytes_ > limits::kYamlReadBytes ||
            depth > limits::kJsonDepth) {
            stop("is too large or nested too deeply", node.Mark());
        }
        return !error_;
    }

    // Fields are looked for one by one.
    bool has_room(const Json& map, const YAML::Node& node) {
        if (map.size() >= limits::kJsonKeys) {
            stop("is too large: more than " + std::to_string(limits::kJsonKeys) +
                     " fields in one map",
                 node.Mark());
        }
        return !error_;
    }

    static bool is_text(const YAML::Node& node) {
        return node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str";
    }

    static Json scalar(const YAML::Node& node, const std::string& pointer) {
        const std::string& text = node.Scalar();
        return is_text(node) || wants_text(pointer) ? Json(text) : core_value(text);
    }

    Json map(const YAML::Node& node, const std::string& pointer, std::size_t depth) {
        Json out = Json::object();
        std::vector<YAML::Node> merged;
        for (const auto& entry : node) {
            if (error_) {
                return out;
            }
            if (!entry.first.IsScalar()) {
                stop("the name of a field must be plain text", entry.first.Mark());
                return out;
            }
            const std::string& key = entry.first.Scalar();
            if (key == "<<" && !is_text(entry.first)) {
                merged.push_back(entry.second);
                continue;
            }
            if (out.contains(key)) {
                stop("\"" + one_line(key.substr(0, 64)) + "\" is here twice", entry.first.Mark());
                return out;
            }
            if (!has_room(out, entry.first)) {
                return out;
            }
            const std::string at = pointer + "/" + pointer_token(key);
            document_.keys.try_emplace(at, place_of(entry.first.Mark()));
            out[key] = read(entry.second, at, depth + 1);
        }
        for (std::size_t i = 0; i < merged.size() && !error_; ++i) {
            merge(out, merged[i], pointer, depth);
        }
        return out;
    }

    // What is there already wins; of several the first.
    void merge(Json& out, const YAML::Node& other, const std::string& pointer, std::size_t depth) {
        if (!enter(other, 0, depth)) {
            return;
        }
        if (other.IsSequence()) {
            for (std::size_t i = 0; i < other.size() && !error_; ++i) {
                merge(out, other[i], pointer, depth + 1);
            }
            return;
        }
        if (!other.IsMap()) {
            stop("<< takes a map, or a list of maps", other.Mark());
            return;
        }
        const Json more = map(other, pointer, depth + 1);
        for (const auto& [key, value] : more.items()) {
            if (!out.contains(key)) {
                if (!has_room(out, other)) {
                    return;
                }
                out[key] = value;
            }
        }
    }

    void stop(std::string why, const YAML::Mark& mark) {
        if (!error_) {
            error_ = DocumentError{std::move(why), place_of(mark), {}};
        }
    }

    Document& document_;
    std::size_t nodes_ = 0;
    std::size_t bytes_ = 0;
};

// Counts documents without keeping them. yaml-cpp does not pass what cannot begin a document, a
// comma say: it reports an empty document in the same place for ever, and LoadAll keeps each of
// them.
class DocumentCounter : public YAML::EventHandler {
  public:
    explicit DocumentCounter(const std::string& text) : input_(text), parser_(input_) {}

    // How many there are; stuck() is where it does not go on. Throws YAML::Exception.
    std::size_t count() {
        while (!stuck_ && parser_.HandleNextDocument(*this)) {
        }
        return documents_;
    }
    const std::optional<YAML::Mark>& stuck() const { return stuck_; }

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (documents_ > 0 && mark.pos == last_.pos) {
            stuck_ = mark;
        }
        last_ = mark;
        ++documents_;
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
    void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
    void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  const std::string& /*value*/) override {}
    void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                         YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {}
    void OnSequenceEnd() override {}
    void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                    YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {}
    void OnMapEnd() override {}

  private:
    std::istringstream input_;
    YAML::Parser parser_;
    std::size_t documents_ = 0;
    YAML::Mark last_;
    std::optional<YAML::Mark> stuck_;
};

}  // namespace

tl::expected<Document, DocumentError> parse_yaml(std::string name, std::string text) {
    const auto refuse = [&](std::string why, Place place) {
        std::string line = line_of(text, place.line);
        if (line.find('\t') != std::string::npos && line.find_first_not_of(" \t") != 0) {
            why += "; YAML is indented with blanks, not with tabs";
        }
        if (line.find('?') != std::string::npos && why.ends_with("unknown token")) {
            why += "; between [ ] and { } text with ? in it needs quotes";
        }
        return tl::unexpected(DocumentError{std::move(why), place, std::move(line)});
    };
    try {
        DocumentCounter counter{text};
        const std::size_t documents = counter.count();
        if (const auto& stuck = counter.stuck()) {
            return refuse("not YAML: nothing can begin with this", place_of(*stuck));
        }
        if (documents != 1) {
            return refuse("must be one document, there are " + std::to_string(documents), {});
        }
        Document out;
        YamlReader reader{out};
        out.json = reader.read(YAML::Load(text), "", 0);
        if (reader.error_) {
            return refuse(reader.error_->message, reader.error_->place);
        }
        if (out.json.is_string() || out.json.is_null()) {
            return refuse(
                "is neither YAML nor JSON: a specification has fields, as in\n"
                "  name: first\n  framework: native",
                {});
        }
        out.name = std::move(name);
        out.text = std::move(text);
        return out;
    } catch (const YAML::Exception& error) {
        return refuse("not YAML: " + one_line(error.msg), place_of(error.mark));
    }
}

void find_places(const std::string& json_text, Document& document) {
    std::string text = json_text;
    std::replace(text.begin(), text.end(), '\t', ' ');
    try {
        YamlReader reader{document};
        reader.read(YAML::Load(text), "", 0);
    } catch (const YAML::Exception&) {
        document.keys.clear();
        document.values.clear();
    }
}

}  // namespace lockstep::cli
