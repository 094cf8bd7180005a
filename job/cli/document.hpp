// A specification as people write it: YAML, or JSON that may have comments and commas before a
// closing bracket. Every value knows its line and column, so that what is wrong can be pointed at.
// Pure; any thread.
#pragma once

#include "job/base/json.hpp"

#include <tl/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::cli {

// From 1; line 0: not known.
struct Place {
    std::size_t line = 0;
    std::size_t column = 0;
};

// Who wrote a document: a person, or this program from the options of a verb.
enum class MadeBy : std::uint8_t { file, run, check };

struct Document {
    Json json;
    MadeBy made_by = MadeBy::file;
    std::string name;  // of the file, for messages; "" = made by this program
    std::string text;
    std::map<std::string, Place> keys;    // by RFC 6901 pointer: where the name of the field is
    std::map<std::string, Place> values;  // likewise, its value
};

// Why a text is no document.
struct DocumentError {
    std::string message;
    Place place;
    std::string line;  // the text of that line
};

// YAML 1.2 (core schema, one document, `<<` merges) unless the text is JSON: by the name's ending,
// otherwise by its first character. Where the specification wants a text, YAML's plain numbers and
// words are taken as they are written: --lr 0.10 stays 0.10.
tl::expected<Document, DocumentError> parse_document(std::string name, std::string text);

// "train.yaml:3:5", "train.yaml", or "" when the document has no name.
std::string place_text(const Document& document, const Place& place);
// The line with a mark under the column; "" when the place is not known. `line`: its text.
std::string excerpt(const std::string& line, const Place& place);
std::string line_of(const std::string& text, std::size_t number);

// Comments and trailing commas as blanks: what is left has every byte where it was.
std::string blanked_json(std::string_view text);

// YAML. document_yaml.cpp.
tl::expected<Document, DocumentError> parse_yaml(std::string name, std::string text);
// Where the values of a JSON text are; none when that cannot be told.
void find_places(const std::string& json_text, Document& document);

}  // namespace lockstep::cli
