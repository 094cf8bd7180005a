// lockstep open: the web page in the caller's browser, signed in.
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/cli/access.hpp"
#include "job/cli/caller.hpp"
#include "job/cli/child.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"

#include <filesystem>

namespace lockstep::cli {
namespace {

// The program that shows an address, with its arguments; empty: there is none here.
std::vector<std::string> browser(const Caller& caller, const std::string& address) {
    std::vector<std::string> out;
    const std::string wanted = caller.variable("BROWSER");
    if (!wanted.empty()) {
        // As xdg-open reads it: the first of a list, %s where the address goes.
        bool placed = false;
        for (std::string& word : split(split(wanted, ':').front(), ' ')) {
            if (word.empty()) {
                continue;
            }
            if (const auto at = word.find("%s"); at != std::string::npos) {
                word.replace(at, 2, address);
                placed = true;
            }
            out.push_back(std::move(word));
        }
        if (!placed) {
            out.push_back(address);
        }
    } else if (!caller.variable("DISPLAY").empty() || !caller.variable("WAYLAND_DISPLAY").empty()) {
        out = {"xdg-open", address};
    }
    if (out.empty()) {
        return out;
    }
    const auto program = find_on_path(out.front(), caller);
    if (!program) {
        return {};
    }
    out.front() = *program;
    return out;
}

// The page's address contains a code that signs in its first user, and the arguments of a
// program are everybody's to see on this machine: the browser is given a file of the caller's own
// that sends it on.
Result<std::string> doorway(const Options& options, const Caller& caller, const std::string& url) {
    namespace fs = std::filesystem;
    const std::string runtime = caller.variable("XDG_RUNTIME_DIR");
    const fs::path folder = runtime.empty() ? fs::path{data_directory(options)} : fs::path{runtime};
    LOCKSTEP_TRY(make_private_directories(folder));
    std::string address;
    for (const char c : url) {
        address += c == '&' ? std::string{"&amp;"} : c == '"' ? "%22" : std::string(1, c);
    }
    const std::string text =
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">"
        "<meta http-equiv=\"refresh\" content=\"0;url=" +
        address + "\"><title>Lockstep</title><a href=\"" + address + "\">Lockstep</a>\n";
    const fs::path file = folder / "lockstep-open.html";
    LOCKSTEP_TRY(replace_file(file, text, 0600));
    return "file://" + file.string();
}

// The browser runs in the caller's session, with the caller's environment.
Status show_in_browser(const Options& options, const std::string& url) {
    const Caller caller = Caller::here();
    const auto address = doorway(options, caller, url);
    LOCKSTEP_TRY(address);
    const auto argv = browser(caller, *address);
    if (argv.empty()) {
        return fail(Errc::not_found, "no browser here");
    }
    std::vector<std::string> environment;
    environment.reserve(caller.environment.size());
    for (const auto& [name, value] : caller.environment) {
        environment.emplace_back(name).append("=").append(value);
    }
    const auto started = start_detached(argv, environment, "/dev/null");
    return started ? Status{} : Status{fail(started.error())};
}

}  // namespace

Exit open_page(Context& context) {
    const Options& options = context.options;
    std::string next;
    if (!options.id.empty()) {
        const auto id = named_job(context, options.id, false);
        if (!id) {
            return report(context, id.error());
        }
        next = "&next=/jobs/" + *id;
    }
    const auto code = context.client.post_json("/v1/session/codes", "");
    if (!code) {
        return report(context, code.error());
    }
    const std::string url =
        context.client.where() + "/#/signin?code=" + query_encode(text_at(*code, "code")) + next;
    if (options.json) {
        Json answer = Json::object();
        answer["url"] = url;
        answer["expires_at"] = text_at(*code, "expires_at");
        print_json(context, answer);
        return Exit::ok;
    }
    if (!options.print_url) {
        const Status shown = show_in_browser(options, url);
        if (shown) {
            context.err << "opening " << context.client.where()
                        << " in a browser; nothing opened? lockstep open --print"
                        << (options.id.empty() ? "" : " " + one_line(options.id)) << "\n";
            return Exit::ok;
        }
        context.err << one_line(shown.error().message)
                    << "; open this within a minute, it signs in once:\n";
    }
    context.out << url << std::endl;
    return Exit::ok;
}

}  // namespace lockstep::cli
