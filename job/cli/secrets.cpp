// The verb secret: what one's jobs get as variables and no document has. A value comes from
// standard input, a file or a variable, never from an argument, which everybody on the machine can
// read.
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/login.hpp"
#include "job/cli/times.hpp"
#include "job/cli/views.hpp"
#include "job/model/spec/spec_secrets.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>

namespace lockstep::cli {
namespace {

// One line end, which echo and editors add, is not meant.
std::string without_line_end(std::string text) {
    if (text.ends_with('\n')) {
        text.pop_back();
    }
    if (text.ends_with('\r')) {
        text.pop_back();
    }
    return text;
}

// All of it, or one more byte than a secret may have.
std::string standard_input() {
    std::string out;
    for (char c = 0; out.size() <= limits::kSecretBytes + 2 && std::cin.get(c);) {
        out += c;
    }
    return out;
}

Result<std::string> secret_value(Context& context) {
    const Options& options = context.options;
    if (!options.secret_file.empty()) {
        std::error_code ec;
        if (std::filesystem::is_directory(options.secret_file, ec)) {
            return fail(Errc::invalid, "--from-file: " + options.secret_file + " is a folder");
        }
        auto text = read_file(options.secret_file, limits::kSecretBytes);
        // Whatever is wrong with the file is wrong with the arguments.
        return text ? std::move(text) : fail(Errc::invalid, "--from-file: " + text.error().message);
    }
    if (options.secret_from_env) {
        const char* value = std::getenv(options.secret.c_str());
        if (value == nullptr) {
            return fail(Errc::invalid, "--from-env: there is no variable " + options.secret);
        }
        return std::string{value};
    }
    if (::isatty(STDIN_FILENO) != 0) {
        return terminal_dialog(context.err).secret("Value of " + options.secret + ": ");
    }
    return without_line_end(standard_input());
}

Exit set_secret(Context& context) {
    const std::string& name = context.options.secret;
    if (const Status good = check_secret_name(name); !good) {
        return report(context, good.error().in(one_line(name)));
    }
    const auto value = secret_value(context);
    if (!value) {
        return report(context, value.error());
    }
    if (const Status good = check_secret_value(*value); !good) {
        return report(context, good.error().in("the value"));
    }
    Json body = Json::object();
    body["value"] = *value;
    ClientRequest asked;
    asked.method = "PUT";
    asked.target = "/v1/secrets/" + query_encode(name);
    asked.body = dump_json(body);
    asked.headers.emplace_back("Content-Type", "application/json");
    const auto done = context.client.request(std::move(asked));
    if (!done) {
        return report(context, done.error());
    }
    context.err << name << " is set: lockstep run --secret " << name << " -- …, or \"secrets\": [\""
                << name << "\"]\n";
    return Exit::ok;
}

Exit list_secrets(Context& context) {
    const auto found = context.client.get_json("/v1/secrets");
    if (!found) {
        return report(context, found.error());
    }
    if (context.options.json) {
        print_json(context, *found);
        return Exit::ok;
    }
    Table table({{"NAME", false, true}, {"SET"}});
    for (const Json& secret : items_at(*found, "items")) {
        table.row({text_at(secret, "name"), shown_time(context.terminal, secret, "set_at")});
    }
    print(context, table.lines(context.terminal));
    return Exit::ok;
}

Exit remove_secret(Context& context) {
    ClientRequest asked;
    asked.method = "DELETE";
    asked.target = "/v1/secrets/" + query_encode(context.options.secret);
    const auto done = context.client.request(std::move(asked));
    if (!done) {
        return report(context, done.error());
    }
    context.err << one_line(context.options.secret)
                << " is removed; jobs that are yet to start and name it will fail\n";
    return Exit::ok;
}

}  // namespace

Exit secret(Context& context) {
    const std::string& action = context.options.secret_action;
    if (action == "list") {
        return list_secrets(context);
    }
    if (context.options.secret.empty()) {
        return report(context, {Errc::invalid, "secret " + action + " NAME: say which"});
    }
    return action == "set" ? set_secret(context) : remove_secret(context);
}

}  // namespace lockstep::cli
