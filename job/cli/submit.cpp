#include "job/base/ids.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/follow.hpp"
#include "job/cli/spec_file.hpp"

namespace lockstep::cli {
namespace {

constexpr int kTries = 4;
constexpr std::chrono::milliseconds kFirstPause{200};  // then twice as long each time: 1.4 s in all

// An answer that was lost may still have been a job. The key makes asking again safe.
Result<Json> post_until_answered(Context& context, const std::string& body,
                                 const std::string& key) {
    auto pause = kFirstPause;
    for (int attempt = 1;; ++attempt) {
        Headers headers{{"Idempotency-Key", key}};
        auto job = context.client.post_json("/v1/jobs", body, std::move(headers));
        const bool in_flight = !job && job.error().code == Errc::conflict &&
                               job.error().message.find("in flight") != std::string::npos;
        if (job || attempt == kTries || !(may_pass(job.error()) || in_flight)) {
            return job;
        }
        context.sleep(pause);
        pause *= 2;
    }
}

}  // namespace

Exit submit(Context& context) {
    const Options& options = context.options;
    const auto body = read_spec(options.file);
    if (!body) {
        return report(context, body.error());
    }
    const std::string key =
        options.idempotency_key.empty() ? random_secret().substr(0, 32) : options.idempotency_key;
    const auto job = post_until_answered(context, *body, key);
    if (!job) {
        const Exit end = report(context, job.error());
        if (may_pass(job.error())) {
            context.err
                << "Whether the job was accepted is not known. To try again without a second "
                   "job:\n  lockstep submit "
                << options.file << " --idempotency-key " << key << "\n";
        }
        return end;
    }
    const std::string id = text_at(*job, "id");
    const bool stay = options.wait || options.follow;
    if (options.json && !stay) {
        print_json(context, *job);
        return Exit::ok;
    }
    for (const Json& warning : items_at(*job, "warnings")) {
        if (warning.is_string()) {
            context.err << "warning: " << one_line(warning.get_ref<const std::string&>()) << "\n";
        }
    }
    // The id alone, so that ID=$(lockstep submit FILE) works; what to do next for people only.
    context.out << id << std::endl;
    if (!stay) {
        if (context.terminal.interactive) {
            context.err << "follow it: lockstep follow " << id << "\n";
        }
        return Exit::ok;
    }
    return follow_job(context, id, options.wait);
}

}  // namespace lockstep::cli
