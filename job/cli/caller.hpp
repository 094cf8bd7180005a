// Who calls the program: directory, home, environment; and how the texts of a specification are
// read from there. here() looks at the process; the rest is pure. Any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct Caller {
    std::string directory;  // absolute, as the shell calls it: links are kept
    std::map<std::string, std::string> environment;

    static Caller here();
    std::string variable(const std::string& name) const;  // "" if it is not set
};

// $NAME and ${NAME} as the caller has them, $$ for a dollar sign. not_found: one that is not set.
Result<std::string> expand_variables(std::string_view text, const Caller& caller);
// An absolute path: variables, ~ and ~/, relative to `base`. not_found: a variable is not set.
Result<std::string> resolve_path(std::string_view text, const Caller& caller,
                                 const std::string& base);

// What of the caller's environment a job is given.
struct Recorded {
    Json variables = Json::object();
    std::size_t stayed = 0;             // not carried by intent (is_carried())
    std::vector<std::string> left_out;  // "NAME: why", for what would have been carried
    std::size_t bytes = 0;
};
// VIRTUAL_ENV's and CONDA_PREFIX's programs come first in PATH, also where only the variable is
// set.
Recorded record_environment(const Caller& caller);
// Variables of Lockstep that the caller has and that are for the ranks go into `environment`,
// unless it has them: they are not recorded. An `environment` that is no object stays.
void add_own_variables(Json& spec, const Caller& caller);
// The folder of programs of an active virtual or conda environment; "" = none.
std::string environment_programs(const Caller& caller);

// The program that `name` starts in the caller's shell; nothing if there is none.
std::optional<std::string> find_on_path(const std::string& name, const Caller& caller);

// Completes a specification before it is sent: `inherit_environment` gets its record (and
// add_own_variables()), `environment` its variables, relative paths and ~ become absolute (the
// working directory, the sources of mounts and an image's file from where the caller is, other
// paths from the working directory). A command that names a file here runs here, if the
// specification does not say where. `notes`: what the caller is told.
void complete_spec(Json& spec, const Caller& caller, std::vector<std::string>& notes,
                   std::vector<FieldError>& errors);

}  // namespace lockstep::cli
