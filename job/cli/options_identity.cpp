// The options of the verbs about who somebody is and what proves it.
#include "job/cli/checks.hpp"
#include "job/cli/options_parts.hpp"

namespace lockstep::cli {

void declare_identity(CLI::App& app, Options& options) {
    CLI::App* token = verb(
        app, "token", "Make, list or revoke access tokens; only a new one's secret is printed");
    token->add_option("ACTION", options.token_action, "What to do")
        ->required()
        ->check(one_of({"create", "list", "revoke"}))
        ->type_name("create|list|revoke");
    token->add_option("NAME|ID", options.token, "create: what it is for; revoke: its id")
        ->type_name("NAME|ID");
    token->add_option("--user", options.user, "create: its owner (default: yourself)")
        ->type_name("USER");
    token->add_option("--role", options.role, "create: own jobs, read all jobs, or everything")
        ->check(one_of({"user", "viewer", "admin"}))
        ->type_name("user|viewer|admin");
    token->add_option("--scope", options.scopes, "create: only this; may be given again")
        ->check(one_of({"metrics", "read", "write", "secrets", "admin"}))
        ->type_name("metrics|read|write|secrets|admin")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    token
        ->add_option("--expires", options.expires,
                     "create: when it ends, as in 30m, 12h, 30d (default: 30d)")
        ->type_name("TIME");
    token->add_flag("-a,--all", options.all, "list: with those that have ended");
    CLI::App* secret =
        verb(app, "secret",
             "Set, list or remove secrets, which your jobs get as variables and which cannot be "
             "read back; the value is read from standard input or a prompt");
    secret->add_option("ACTION", options.secret_action, "What to do")
        ->required()
        ->check(one_of({"set", "list", "rm"}))
        ->type_name("set|list|rm");
    secret->add_option("NAME", options.secret, "set, rm: the variable")->type_name("NAME");
    CLI::Option* const file =
        secret->add_option("--from-file", options.secret_file, "set: the value is this file, whole")
            ->type_name("FILE");
    secret->add_flag("--from-env", options.secret_from_env, "set: the value is your own variable")
        ->excludes(file);
    CLI::App* slurm = verb(app, "slurm-token",
                           "Store your Slurm token, read from standard input, as in: scontrol "
                           "token lifespan=86400 | lockstep slurm-token");
    slurm->add_flag("--forget", options.forget, "Delete the stored one");
    verb(app, "whoami", "Show whose token is used and what it may do");
    CLI::App* login = verb(app, "login", "Remember a daemon, its certificate and a token");
    login->add_option("URL", options.login_url, "Where it is: https://host:port")
        ->required()
        ->type_name("URL");
    login->add_flag("--forget", options.forget,
                    "Delete what is stored of it; the token itself works until it is revoked");
    // All verbs take these; here they answer what would be asked.
    login
        ->add_option("--fingerprint", options.fingerprint,
                     "What its certificate must hash to, as <data-dir>/fingerprint there has it; "
                     "without, it is shown and asked for")
        ->type_name("HASH");
    login
        ->add_option("--token-file", options.token_file,
                     "File that holds the token (default: LOCKSTEP_TOKEN, else it is asked for)")
        ->type_name("FILE");
}

}  // namespace lockstep::cli
