#include "job/cli/submit.hpp"

#include "job/base/ids.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/follow.hpp"
#include "job/cli/sign.hpp"
#include "job/cli/spec_file.hpp"
#include "job/cli/sweeps.hpp"
#include "job/cli/typed.hpp"
#include "job/model/spec/signed_statement.hpp"
#include "job/model/spec/sweep.hpp"

#include <algorithm>

namespace lockstep::cli {
namespace {

constexpr int kSubmitTries = 4;
constexpr std::chrono::milliseconds kFirstPause{200};  // then twice as long each time: 1.4 s in all

// An answer that was lost may still have been a job. The key makes asking again safe. `lost`: there
// was such an answer; none of a request that was never sent, as nobody took the connection.
Result<Json> post_until_answered(Context& context, const std::string& body, const std::string& key,
                                 bool& lost) {
    auto pause = kFirstPause;
    Headers signature;
    for (int attempt = 1;; ++attempt) {
        Headers headers = signature;
        headers.emplace_back("Idempotency-Key", key);
        bool unsent = false;
        auto job = context.client.post_json("/v1/jobs", body, std::move(headers), &unsent);
        // Few clusters need a signature, so that is not queried in advance, but after a refusal.
        if (!job && job.error().code == Errc::denied && signature.empty()) {
            auto made = signature_headers(context, body);
            if (!made || made->empty()) {
                return made ? std::move(job) : Result<Json>{fail(made.error())};
            }
            signature = std::move(*made);
            continue;
        }
        // 409 on this route is a key in flight and nothing else: the first request is still stored.
        const bool in_flight = !job && job.error().code == Errc::conflict;
        lost = lost || (!job && may_pass(job.error()) && !unsent);
        if (job || attempt == kSubmitTries || !(may_pass(job.error()) || in_flight)) {
            return job;
        }
        context.sleep(pause);
        pause *= 2;
    }
}

// Whether there is no job for certain. A conflict may be the first request, still being stored;
// what could not be read may have been a job; and a limit may have been reached by the job whose
// answer was lost.
bool is_refusal(const Error& error, bool lost) {
    return error.code == Errc::invalid || error.code == Errc::denied ||
           error.code == Errc::not_found ||
           (!lost && (error.code == Errc::exhausted || may_pass(error)));
}

}  // namespace

Exit follow_sweep(Context& context, const std::string& first) {
    auto jobs = jobs_of_sweep(context, first);
    if (!jobs) {
        return report(context, jobs.error());
    }
    std::vector<std::string> ids;
    for (const Json& job : *jobs) {
        ids.push_back(text_at(job, "id"));
    }
    std::sort(ids.begin(), ids.end());
    Exit end = Exit::ok;
    for (const std::string& id : ids) {
        const Exit one = follow_job(context, id, context.options.wait);
        if (one == Exit::interrupted) {
            return one;
        }
        end = end == Exit::ok ? one : end;
    }
    jobs = jobs_of_sweep(context, first);  // as they are now
    if (jobs) {
        print_sweep(context, *jobs, jobs->size());
    }
    return end;
}

tl::expected<std::string, NotSubmitted> send_job(Context& context, const Document& document,
                                                 const std::string& again) {
    const Options& options = context.options;
    const std::string key =
        options.idempotency_key.empty() ? random_secret().substr(0, 32) : options.idempotency_key;
    bool lost = false;
    const auto job = post_until_answered(context, dump_json(document.json), key, lost);
    if (!job) {
        NotSubmitted why;
        why.end = report_mistakes(context, document, job.error());
        why.refused = is_refusal(job.error(), lost);
        if (lost && may_pass(job.error())) {
            context.err << "Whether the job was accepted is not known"
                        << (again.empty() ? ": " + same_lockstep(options) + " jobs\n"
                                          : ". To try again without a second job:\n  " + again +
                                                " --idempotency-key " + shell_word(key) + "\n");
        }
        return tl::unexpected(why);
    }
    std::string id = text_at(*job, "id");
    const bool stay = options.wait || options.follow;
    if (options.json && !stay) {
        print_json(context, *job);
        return id;
    }
    for (const Json& warning : items_at(*job, "warnings")) {
        if (warning.is_string()) {
            context.err << "warning: " << one_line(warning.get_ref<const std::string&>()) << "\n";
        }
    }
    // The id alone, so that ID=$(lockstep submit FILE) works; what to do next for people only.
    context.out << id << std::endl;
    const Json& sweep = at(*job, "sweep");
    if (sweep.is_object()) {
        context.err << "the first of " << integer_text(sweep, "size")
                    << " jobs; all of them: " << same_lockstep(options) << " jobs --sweep " << id
                    << "\n";
    }
    return id;
}

Exit submit(Context& context) {
    const Options& options = context.options;
    const auto document = load_spec(context, options.file);
    if (!document) {
        return Exit::usage;
    }
    const std::string stays = options.follow ? " --follow" : options.wait ? " --wait" : "";
    const auto id = send_job(
        context, *document, same_lockstep(options) + " submit " + shell_word(options.file) + stays);
    if (!id) {
        return id.error().end;
    }
    const bool stay = options.wait || options.follow;
    if (document->json.is_object() && has_sweep(document->json)) {
        return stay ? follow_sweep(context, *id) : Exit::ok;
    }
    if (!stay) {
        if (context.terminal.interactive && !options.json) {
            context.err << "follow it: " << same_lockstep(options) << " follow " << *id << "\n";
        }
        return Exit::ok;
    }
    return follow_job(context, *id, options.wait);
}

}  // namespace lockstep::cli
