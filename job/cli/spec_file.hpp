// Reads a job specification for submission: the document as it was written, completed with what
// only its author's machine knows. What is right in it the daemon judges, so that there is one
// opinion. Blocks; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/cli/caller.hpp"
#include "job/cli/context.hpp"
#include "job/cli/document.hpp"

#include <optional>
#include <string>

namespace lockstep::cli {

// The file's text, or standard input for "-"; at most limits::kBodyBytes.
Result<std::string> read_spec(const std::string& path);

// The document, ready to be sent. Nothing: what was wrong has been printed.
std::optional<Document> load_spec(Context& context, const std::string& path);

// An answer's mistakes: each once, in the file by line and column, with the text and what was
// probably meant. How the program ends.
Exit report_mistakes(Context& context, const Document& document, const Error& error);

}  // namespace lockstep::cli
