// What is done to a job that runs: cancel, restart, checkpoint.
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
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

// restart, checkpoint: said once it is on its way.
Exit ask(Context& context, const std::string& id, const std::string& what,
         const std::string& said) {
    const auto job = context.client.post_json("/v1/jobs/" + id + "/" + what, "");
    if (!job) {
        return report(context, job.error());
    }
    if (context.options.json) {
        print_json(context, *job);
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
