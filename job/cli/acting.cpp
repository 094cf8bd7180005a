// What is done to a job that runs: cancel, restart, checkpoint.
#include "job/base/ids.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/typed.hpp"
#include "job/cli/views.hpp"

namespace lockstep::cli {
namespace {

Exit cancel_sweep(Context& context, const std::string& id) {
    const auto answer = context.client.post_json("/v1/sweeps/" + id + "/cancel", "");
    if (!answer) {
        return report(context, answer.error());
    }
    if (context.options.json) {
        print_json(context, *answer);
    } else {
        context.out << integer_text(*answer, "cancelled") << " jobs are being cancelled\n";
    }
    return Exit::ok;
}

constexpr int kAskTries = 4;
constexpr std::chrono::milliseconds kAskPause{200};  // then twice as long each time: 1.4 s in all

// The command of a lost answer may have been done. Under the key it is done once.
Result<Json> ask_until_answered(Context& context, const std::string& target,
                                const std::string& key) {
    auto pause = kAskPause;
    for (int attempt = 1;; ++attempt) {
        Headers headers{{"Idempotency-Key", key}};
        auto job = context.client.post_json(target, "", std::move(headers));
        if (job || attempt == kAskTries || !may_pass(job.error())) {
            return job;
        }
        context.sleep(pause);
        pause *= 2;
    }
}

// restart, checkpoint: said once it is on its way.
Exit ask(Context& context, const std::string& id, const std::string& what,
         const std::string& said) {
    const std::string& given = context.options.idempotency_key;
    const std::string key = given.empty() ? random_secret().substr(0, 32) : given;
    const auto job = ask_until_answered(context, "/v1/jobs/" + id + "/" + what, key);
    if (!job) {
        const Exit end = report(context, job.error());
        if (may_pass(job.error())) {
            context.err << "Whether it was done is not known. To ask again without doing it twice:"
                           "\n  "
                        << same_lockstep(context.options) << " " << what << " " << id
                        << " --idempotency-key " << shell_word(key) << "\n";
        }
        return end;
    }
    if (context.options.json) {
        print_json(context, *job);
    } else if (!given.empty() && at(*job, "already_done") == Json(true)) {
        // Under a key of our own it was a try of this call that did it.
        context.out << id << "  the " << what
                    << " had been done already, under this key; nothing was done now\n";
    } else {
        context.out << id << "  " << said << "\n";
    }
    return Exit::ok;
}

}  // namespace

Exit cancel(Context& context, const std::string& id) {
    if (context.options.whole_sweep) {
        return cancel_sweep(context, id);
    }
    const auto job = context.client.post_json("/v1/jobs/" + id + "/cancel", "");
    if (!job) {
        return report(context, job.error());
    }
    if (context.options.json) {
        print_json(context, *job);
    } else {
        const std::string state = text_at(*job, "state");
        context.out << id << (is_final_state(state) ? "  is " + state : "  is being cancelled")
                    << "\n";
    }
    return Exit::ok;
}

Exit restart(Context& context, const std::string& id) {
    return ask(context, id, "restart", "its ranks are being started again");
}

Exit checkpoint(Context& context, const std::string& id) {
    return ask(context, id, "checkpoint", "its ranks have been asked for a checkpoint");
}

}  // namespace lockstep::cli
