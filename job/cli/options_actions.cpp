// Verbs of several actions (token create, nodes check): an option of one action is refused with
// another, which would leave it out without a word.
#include "job/base/text.hpp"
#include "job/cli/options_parts.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::cli {
namespace {

// The actions that the help of an option says it is for: "create: what it is for; revoke: its id",
// "set, rm: the variable". None: it is for all of them.
std::vector<std::string> actions_of(const std::string& help,
                                    const std::vector<std::string>& actions) {
    std::vector<std::string> out;
    for (const std::string& part : split(help, ';')) {
        const std::size_t colon = part.find(':');
        if (colon == std::string::npos) {
            continue;
        }
        for (const std::string& word : split(part.substr(0, colon), ',')) {
            const std::string action{trim(word)};
            if (std::find(actions.begin(), actions.end(), action) != actions.end()) {
                out.push_back(action);
            }
        }
    }
    return out;
}

void keep_to(CLI::App& app, const std::string& name, const std::string& action,
             const std::vector<std::string>& actions) {
    CLI::App* verb = app.get_subcommand(name);
    verb->callback([verb, name, &action, actions] {
        for (const CLI::Option* option : verb->get_options()) {
            const auto own = actions_of(option->get_description(), actions);
            if (option->count() == 0 || own.empty() ||
                std::find(own.begin(), own.end(), action) != own.end()) {
                continue;
            }
            std::string verbs;
            for (const std::string& one : own) {
                verbs.append(verbs.empty() ? "" : ", ").append("lockstep ").append(name);
                verbs.append(" ").append(one);
            }
            throw CLI::ValidationError(option->get_name(), "is for " + verbs);
        }
    });
}

}  // namespace

void keep_to_actions(CLI::App& app, const Options& options) {
    keep_to(app, "nodes", options.nodes_action, {"check"});
    keep_to(app, "token", options.token_action, {"create", "list", "revoke"});
    keep_to(app, "secret", options.secret_action, {"set", "list", "rm"});
}

}  // namespace lockstep::cli
