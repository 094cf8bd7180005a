#include "job/cli/login.hpp"

#include "job/async/http_client.hpp"
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/client.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/listener.hpp"
#include "job/cli/terminal.hpp"

#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>

namespace lockstep::cli {
namespace {

// What standard input was like before its echo was switched off.
termios before_silence{};

extern "C" void on_interrupt_in_silence(int /*signal*/) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_silence);
    ::_exit(static_cast<int>(Exit::interrupted));
}

class Silence {
  public:
    Silence() : on_(::tcgetattr(STDIN_FILENO, &before_silence) == 0) {
        if (!on_) {
            return;
        }
        interrupt_ = std::signal(SIGINT, on_interrupt_in_silence);
        terminate_ = std::signal(SIGTERM, on_interrupt_in_silence);
        termios quiet = before_silence;
        quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    }
    ~Silence() {
        if (on_) {
            ::tcsetattr(STDIN_FILENO, TCSANOW, &before_silence);
            std::signal(SIGINT, interrupt_);
            std::signal(SIGTERM, terminate_);
        }
    }
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;
    bool on() const { return on_; }

  private:
    bool on_;
    void (*interrupt_)(int) = SIG_DFL;
    void (*terminate_)(int) = SIG_DFL;
};

// Where to log in, in the form that is kept.
Result<std::string> login_url(const std::string& given) {
    const std::string url = with_scheme(given);
    const auto endpoint = parse_endpoint(url);
    LOCKSTEP_TRY(endpoint);
    if (!endpoint->tls && !is_loopback(url)) {
        return fail(Errc::invalid,
                    "a token is not sent over the network unencrypted: use https://" +
                        endpoint->authority());
    }
    const std::string place = endpoint->authority() + url_path(url);
    if (place.find_first_of("\"'\\ ") != std::string::npos) {
        return fail(Errc::invalid, "the URL names no host");
    }
    return (endpoint->tls ? "https://" : "http://") + place;
}

// What to pin; "" = nothing, for plain HTTP on loopback and for what the authorities vouch for.
Result<std::string> settle_certificate(const Options& options, const std::string& url,
                                       const Dialog& dialog, std::ostream& err) {
    const auto endpoint = parse_endpoint(url);
    if (!endpoint || !endpoint->tls) {
        return std::string{};
    }
    if (!options.fingerprint.empty()) {
        return parse_fingerprint(options.fingerprint);
    }
    ClientRequest request;
    request.target = url_path(url) + "/healthz";
    request.deadline = limits::kLoginPatience;
    const auto vouched = http_request_now(*endpoint, std::move(request));
    if (vouched) {
        return std::string{};
    }
    if (vouched.error().code != Errc::denied) {
        return fail(vouched.error());
    }
    auto shown = certificate_now(*endpoint, limits::kLoginPatience);
    if (!shown) {
        return shown;
    }
    err << url
        << " presents a certificate that is not signed by an authority this system trusts:\n  "
        << *shown << "\n";
    const auto known = read_config(options);
    if (known && !known->fingerprint.empty() && same_daemon(with_scheme(known->url), url) &&
        known->fingerprint != *shown) {
        err << "It is ANOTHER one than before:\n  " << known->fingerprint << "\n";
    }
    err << "lockstepd logs its own at the start and keeps it in <data-dir>/fingerprint.\n";
    const auto yes = dialog.confirm("Are they the same? [y/N] ");
    LOCKSTEP_TRY(yes);
    if (!*yes) {
        return fail(Errc::denied, "not logged in");
    }
    return shown;
}

Result<std::string> settle_token(const Options& options, const Dialog& dialog) {
    auto token = given_token(options);
    if (token && token->empty()) {
        token = dialog.secret("Token: ");
    }
    if (token && trim(*token).empty()) {
        return fail(Errc::invalid, "no token: LOCKSTEP_TOKEN, --token-file or a line of input");
    }
    return token ? Result<std::string>{std::string{trim(*token)}} : token;
}

constexpr std::string_view kLoginMark = "# written by lockstep login\n";

// Beside the configuration file.
Result<std::filesystem::path> token_path(const std::filesystem::path& config) {
    std::error_code ec;
    auto token = std::filesystem::absolute(config, ec).parent_path() / "token";
    if (ec) {  // the directory that it is relative to is not there any more
        return fail(Errc::invalid, "settings file " + config.string() + ": " + ec.message());
    }
    return token;
}

Status keep(const Options& options, const Access& access) {
    const std::filesystem::path config = config_path(options);
    const auto beside = token_path(config);
    LOCKSTEP_TRY(beside);
    const std::filesystem::path& token = *beside;
    if (token.string().find_first_of("\"\n") != std::string::npos) {
        return fail(Errc::invalid, "a quote in the path " + printable(token.string()));
    }
    if (Status made = make_private_directories(token.parent_path()); !made) {
        return made;
    }
    if (Status written = write_file_atomic(token, access.token + "\n", 0600); !written) {
        return written;
    }
    std::string text = std::string{kLoginMark} + "url = \"" + access.url + "\"\ntoken-file = \"" +
                       token.string() + "\"\n";
    if (!access.fingerprint.empty()) {
        text += "fingerprint = \"" + access.fingerprint + "\"\n";
    }
    for (const uid_t user : access.listeners) {
        text += "listener = " + std::to_string(user) + "\n";
    }
    return write_file_atomic(config, text, 0600);
}

// Who listens there on this machine, if it takes no TLS and is neither this user's nor root's.
std::optional<uid_t> other_listener(const std::string& url) {
    const auto endpoint = parse_endpoint(url);
    if (!endpoint || endpoint->tls) {
        return std::nullopt;
    }
    const auto port = static_cast<std::uint16_t>(to_int(endpoint->port).value_or(0));
    std::vector<std::string> names{endpoint->host};
    if (endpoint->host == "localhost") {
        names = {"127.0.0.1", "::1"};
    }
    for (const std::string& name : names) {
        ErrorCode ec;
        const auto address = net::ip::make_address(name, ec);
        const auto found = ec ? std::nullopt : stranger_at(address, port, {});
        if (found) {
            return found;
        }
    }
    return std::nullopt;
}

Status remove_kept(const std::filesystem::path& file) {
    std::error_code ec;
    std::filesystem::remove(file, ec);  // one that is not there is no error
    return ec ? fail(errno_error(file.string(), ec.value())) : Status{};
}

// What has been removed. Only what login wrote: a file that somebody made may hold more, or be
// used elsewhere.
Result<std::string> forget_login(const Options& options) {
    const std::string url = with_scheme(options.login_url);
    const auto known = read_config(options);
    LOCKSTEP_TRY(known);
    const std::string path = config_path(options);
    if (known->url.empty() || !same_daemon(with_scheme(known->url), url)) {
        return fail(Errc::not_found, "login keeps nothing of " + url +
                                         (known->url.empty() ? "" : ", but of " + known->url));
    }
    const auto text = read_file(path, limits::kSettingBytes);
    LOCKSTEP_TRY(text);
    if (!text->starts_with(kLoginMark)) {
        return fail(Errc::invalid, path +
                                       " was not written by lockstep login: remove it, or what "
                                       "it says of " +
                                       url + ", yourself");
    }
    const auto token = token_path(path);
    LOCKSTEP_TRY(token);
    std::string removed = path;
    if (known->token_file == token->string()) {
        LOCKSTEP_TRY(remove_kept(*token));  // first: without the other nobody would find it
        removed += " and " + known->token_file;
    }
    LOCKSTEP_TRY(remove_kept(path));
    return "forgot " + url + ": removed " + removed +
           "\nThe token itself works until it ends or is revoked: lockstep token revoke ID";
}

// Who the daemon says we are.
Result<std::string> try_and_keep(const Options& options, const Dialog& dialog, std::ostream& err) {
    const auto url = login_url(options.login_url);
    LOCKSTEP_TRY(url);
    const auto fingerprint = settle_certificate(options, *url, dialog, err);
    LOCKSTEP_TRY(fingerprint);
    const auto token = settle_token(options, dialog);
    LOCKSTEP_TRY(token);
    Access access{*url, *token, *fingerprint};
    if (const auto listener = other_listener(*url)) {
        err << "note: " << user_text(*listener) << " listens at " << *url
            << "; no other user there is sent the token\n";
        access.listeners = {*listener};
    }
    const auto client = Client::connect(access);
    LOCKSTEP_TRY(client);
    const auto who = client->get_json("/v1/whoami");
    LOCKSTEP_TRY(who);
    LOCKSTEP_TRY(keep(options, access));
    if (const auto shared = who->find("shared_account"); shared != who->end() && *shared == true) {
        err << "note: jobs of all users run as " << one_line(text_at(*who, "account"))
            << " there, and each can do what that user can\n";
    }
    return "logged in to " + *url + " as " + one_line(text_at(*who, "user")) + " (" +
           one_line(text_at(*who, "role")) + ")";
}

}  // namespace

Dialog terminal_dialog(std::ostream& err) {
    Dialog out;
    out.confirm = [&err](const std::string& question) -> Result<bool> {
        if (::isatty(STDIN_FILENO) == 0) {
            return fail(Errc::invalid, "there is no terminal to ask on: give --fingerprint");
        }
        err << question << std::flush;
        std::string line;
        std::getline(std::cin, line);
        return line == "y" || line == "Y" || line == "yes";
    };
    out.secret = [&err](const std::string& prompt) -> Result<std::string> {
        const Silence silence;
        if (silence.on()) {
            err << prompt << std::flush;
        }
        std::string line;
        std::getline(std::cin, line);
        if (silence.on()) {
            err << "\n";
        }
        return line;
    };
    return out;
}

Exit log_in(const Options& options, const Dialog& dialog, std::ostream& out, std::ostream& err) {
    const auto done = options.forget ? forget_login(options) : try_and_keep(options, dialog, err);
    if (!done) {
        err << "error: " << one_line(done.error().message) << "\n";
        return exit_code(done.error().code);
    }
    out << *done << "\n";
    return Exit::ok;
}

}  // namespace lockstep::cli
