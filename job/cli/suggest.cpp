#include "job/cli/suggest.hpp"

#include "job/base/text.hpp"
#include "job/model/spec/spec_schema.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace lockstep::cli {
namespace {

constexpr std::size_t kMostListed = 40;  // names in a message

std::string lower_case(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

// Letters added, left out, changed, or swapped with their neighbour (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> now(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        now[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            now[j] = std::min(
                {last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = std::min(now[j], before[j - 2] + 1);
            }
        }
        std::swap(before, last);
        std::swap(last, now);
    }
    return last[b.size()];
}

// As SpecField has it: "/roles/3/count" is "roles[].count".
std::string path_of(const std::string& pointer) {
    std::string out;
    const auto keys = split(pointer, '/');  // the first is empty
    for (std::size_t i = 1; i < keys.size(); ++i) {
        out += to_int(keys[i]) ? "[]" : (out.empty() ? "" : ".") + keys[i];
    }
    return out;
}

// The names that stand beside the one the pointer names.
std::vector<std::string> neighbours(const std::string& pointer) {
    std::string parent = path_of(pointer.substr(0, pointer.rfind('/')));
    parent += parent.empty() ? "" : ".";
    std::vector<std::string> out;
    for (const SpecField& field : spec_fields()) {
        if (field.path.starts_with(parent) &&
            field.path.find_first_of(".[", parent.size()) == std::string::npos) {
            out.push_back(field.path.substr(parent.size()));
        }
    }
    return out;
}

std::string last_key(const std::string& pointer) {
    return pointer.substr(pointer.rfind('/') + 1);
}

// The words that a field of the specification may have; none where it is not one of words.
std::vector<std::string> choices(const std::string& pointer) {
    const std::string path = path_of(pointer);
    const auto& fields = spec_fields();
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const SpecField& one) { return one.path == path; });
    std::vector<std::string> out;
    if (field != fields.end() && field->schema.contains("enum")) {
        for (const Json& word : field->schema["enum"]) {
            if (word.is_string()) {
                out.push_back(word.get<std::string>());
            }
        }
    }
    return out;
}

}  // namespace

std::string nearest(std::string_view typed, const std::vector<std::string>& words) {
    const std::string wanted = lower_case(typed);
    if (wanted.empty() || wanted.size() > 64) {
        return "";
    }
    std::string best;
    std::size_t least = std::string::npos;
    for (const std::string& word : words) {
        const std::string known = lower_case(word);
        std::size_t apart = distance(wanted, known);
        const bool part =
            wanted.size() >= 3 && (known.starts_with(wanted) || known.ends_with(wanted) ||
                                   (known.size() >= 3 && wanted.starts_with(known)));
        const std::size_t allowed = std::max<std::size_t>(1, wanted.size() / 3);
        if (part) {
            apart = std::min(apart, allowed);
        }
        if (apart <= allowed && apart < least) {
            least = apart;
            best = word;
        }
    }
    return best;
}

bool is_unknown_field(const std::string& pointer) {
    const auto words = neighbours(pointer);
    return !pointer.empty() && !words.empty() && !to_int(last_key(pointer)) &&
           std::find(words.begin(), words.end(), last_key(pointer)) == words.end();
}

std::string suggestion(const FieldError& field, const Json* value) {
    std::vector<std::string> words;
    std::string typed;
    const bool unknown = is_unknown_field(field.pointer);
    if (unknown) {
        words = neighbours(field.pointer);
        typed = last_key(field.pointer);
    } else if (value != nullptr && value->is_string()) {
        words = choices(field.pointer);
        typed = value->get<std::string>();
    }
    if (std::find(words.begin(), words.end(), typed) != words.end()) {
        return "";  // the word is right, something else is not
    }
    if (const std::string near = nearest(typed, words); !near.empty()) {
        return "; did you mean " + near + "?";
    }
    if (!unknown || words.empty() || words.size() > kMostListed) {
        return "";
    }
    std::string all;
    for (const std::string& word : words) {
        all += (all.empty() ? "" : ", ") + word;
    }
    return "; there are " + all;
}

}  // namespace lockstep::cli
