// The verbs token, slurm-token and whoami: access tokens, and whose is used.
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/times.hpp"
#include "job/cli/views.hpp"

#include <iostream>
#include <optional>

namespace lockstep::cli {
namespace {

// "90s", "30m", "12h", "30d" in seconds.
std::optional<std::int64_t> lifetime_of(const std::string& text) {
    std::int64_t unit = 0;
    switch (text.empty() ? '\0' : text.back()) {
        case 's':
            unit = 1;
            break;
        case 'm':
            unit = 60;
            break;
        case 'h':
            unit = 3'600;
            break;
        case 'd':
            unit = 86'400;
            break;
        default:
            return std::nullopt;
    }
    const auto count = to_int(std::string_view{text}.substr(0, text.size() - 1));
    const bool sane = count && *count > 0 && *count <= 1'000'000'000;
    return sane ? std::optional{*count * unit} : std::nullopt;
}

std::string words(const Json& token) {
    std::string out;
    for (const Json& scope : items_at(token, "scopes")) {
        if (scope.is_string()) {
            out += (out.empty() ? "" : ", ") + one_line(scope.get_ref<const std::string&>());
        }
    }
    return out;
}

std::string time_or(const Json& object, std::string_view key, const char* absent) {
    const std::string text = text_at(object, key);
    return text.empty() ? absent : text;
}

Exit create(Context& context) {
    const Options& options = context.options;
    Json body = Json::object();
    body["name"] = options.token;
    if (!options.user.empty()) {
        body["user"] = options.user;
    }
    if (!options.role.empty()) {
        body["role"] = options.role;
    }
    if (!options.scopes.empty()) {
        body["scopes"] = options.scopes;
    }
    if (!options.expires.empty()) {
        const auto seconds = lifetime_of(options.expires);
        if (!seconds) {
            return report(context, {Errc::invalid, "--expires: give a time as in 30m, 12h or 30d"});
        }
        if (*seconds > limits::kTokenSeconds) {
            return report(
                context, {Errc::invalid, "--expires " + options.expires + ": at most " +
                                             std::to_string(limits::kTokenSeconds / 86'400) + "d"});
        }
        body["expires_in"] = *seconds;
    }
    const auto made = context.client.post_json("/v1/tokens", dump_json(body));
    if (!made) {
        return report(context, made.error());
    }
    if (options.json) {
        print_json(context, *made);
        return Exit::ok;
    }
    // Only the secret where a program reads it; the rest is for the person.
    context.out << text_at(*made, "token") << std::endl;
    context.err << text_at(*made, "id") << " of " << text_at(*made, "user") << ", "
                << text_at(*made, "role") << " (" << words(*made) << "), until "
                << time_or(*made, "expires_at", "it is revoked")
                << "\nThis is the only time the secret is shown.\n";
    return Exit::ok;
}

Exit list(Context& context) {
    std::vector<Json> found;
    std::string cursor;
    do {
        const auto page = context.client.get_json(
            std::string("/v1/tokens?limit=1000") + (context.options.all ? "&all=true" : "") +
            (cursor.empty() ? "" : "&cursor=" + query_encode(cursor)));
        if (!page) {
            return report(context, page.error());
        }
        const Json& items = items_at(*page, "items");
        found.insert(found.end(), items.begin(), items.end());
        cursor = text_at(*page, "next_cursor");
    } while (!cursor.empty());
    if (context.options.json) {
        Json answer = Json::object();
        answer["items"] = found;
        print_json(context, answer);
    } else {
        print(context, tokens_table(context.terminal, found, context.clock.wall()));
    }
    return Exit::ok;
}

Exit revoke(Context& context) {
    ClientRequest asked;
    asked.method = "DELETE";
    asked.target = "/v1/tokens/" + query_encode(context.options.token);
    const auto done = context.client.request(std::move(asked));
    if (!done) {
        return report(context, done.error());
    }
    context.err << one_line(context.options.token) << " is revoked\n";
    return Exit::ok;
}

}  // namespace

Lines tokens_table(const Terminal& terminal, const std::vector<Json>& tokens, UnixMillis now) {
    Table table({{"ID"},
                 {"NAME", false, true},
                 {"USER", false, true},
                 {"ROLE"},
                 {"SCOPES", false, true},
                 {"LAST USED"},
                 {"ENDS"}});
    for (const Json& token : tokens) {
        const auto end = time_at(token, "expires_at");
        const std::string used = shown_time(terminal, token, "last_used_at");
        const std::string revoked = shown_time(terminal, token, "revoked_at");
        const std::string expires = shown_time(terminal, token, "expires_at");
        const std::string ends = !revoked.empty()     ? "revoked " + revoked
                                 : end && *end <= now ? "expired"
                                 : expires.empty()    ? "never"
                                                      : expires;
        const bool over = !revoked.empty() || (end && *end <= now);
        table.row({text_at(token, "id"), text_at(token, "name"), text_at(token, "user"),
                   text_at(token, "role"), words(token), used.empty() ? "-" : used,
                   over ? paint(terminal, Style::dim, ends) : ends});
    }
    return table.lines(terminal);
}

Exit token(Context& context) {
    const std::string& action = context.options.token_action;
    if (action == "list") {
        return list(context);
    }
    if (context.options.token.empty()) {
        return report(context, {Errc::invalid, action == "create"
                                                   ? "token create NAME: say what it is for"
                                                   : "token revoke ID: see lockstep token list"});
    }
    return action == "create" ? create(context) : revoke(context);
}

Exit slurm_token(Context& context) {
    ClientRequest asked;
    asked.target = "/v1/whoami/slurm-token";
    asked.method = context.options.forget ? "DELETE" : "PUT";
    if (!context.options.forget) {
        std::string line;
        std::getline(std::cin, line);
        if (trim(line).empty()) {
            return report(context, {Errc::invalid,
                                    "standard input holds no token; run: scontrol token "
                                    "lifespan=86400 | lockstep slurm-token"});
        }
        Json body = Json::object();
        body["token"] = std::string{trim(line)};
        asked.body = dump_json(body);
        asked.headers.emplace_back("Content-Type", "application/json");
    }
    const auto done = context.client.request(std::move(asked));
    if (!done) {
        return report(context, done.error());
    }
    if (context.options.forget) {
        context.err << "the Slurm token is forgotten\n";
        return Exit::ok;
    }
    const auto answer = parse_json(done->body);
    if (!answer) {
        return report(context, answer.error());
    }
    const auto slurm = answer->find("slurm_token");
    context.err << "jobs of " << text_at(*answer, "user") << " run with this Slurm token until "
                << (slurm != answer->end() ? time_or(*slurm, "expires_at", "it is forgotten")
                                           : std::string{"it is forgotten"})
                << "\n";
    return Exit::ok;
}

Exit whoami(Context& context) {
    const auto answer = context.client.get_json("/v1/whoami");
    if (!answer) {
        return report(context, answer.error());
    }
    if (context.options.json) {
        print_json(context, *answer);
        return Exit::ok;
    }
    context.out << text_at(*answer, "user") << ", " << text_at(*answer, "role") << " ("
                << words(*answer) << ") at " << context.client.where() << std::endl;
    if (const auto shared = answer->find("shared_account");
        shared != answer->end() && *shared == true) {
        context.out << "jobs of all users run as " << text_at(*answer, "account")
                    << " here, and each can do what that user can" << std::endl;
    }
    return Exit::ok;
}

}  // namespace lockstep::cli
