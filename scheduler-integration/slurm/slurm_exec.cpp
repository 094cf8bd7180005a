#include "scheduler-integration/slurm/slurm_exec.hpp"

#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/model/wire/wire.hpp"
#include "scheduler-integration/exec/exec_limits.hpp"

#include <functional>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kTicketBytes = 4000;

ProgramOutput output_of(const ExecReply& reply) {
    ProgramOutput out;
    if (reply.signal != 0) {
        out.signal = reply.signal;
    } else {
        out.exit_status = reply.exit;
    }
    out.overflowed = reply.out.size() >= limits::kExecOutputBytes;
    out.out = reply.out;
    out.err = reply.err;
    return out;
}

ExecOrder order_of(const AttemptRequest& request) {
    ExecOrder out;
    out.verb = exec::Verb::submit;
    out.job = request.job.value;
    out.attempt = static_cast<std::uint32_t>(request.attempt);
    out.point = static_cast<std::uint32_t>(request.signed_point);
    return out;
}

}  // namespace

SlurmExec::SlurmExec(net::io_context& io, SlurmCli::Options cli, SlurmCli::Called called,
                     std::shared_ptr<SlurmSigners> signers, std::string user)
    : cli_(io, cli, called),
      options_(std::move(cli)),
      called_(std::move(called)),
      signers_(std::move(signers)),
      user_(std::move(user)) {}

Task<Result<ExecReply>> SlurmExec::call(ExecOrder order, std::string what,
                                        std::shared_ptr<const AttemptRequest> request) {
    const auto patience = order.verb == exec::Verb::submit && order.what == exec::What::none
                              ? options_.submit_timeout
                              : options_.query_timeout;
    const auto began = std::chrono::steady_clock::now();
    // The reply owns a descriptor: it cannot be copied.
    using Answer = std::shared_ptr<Result<ExecReply>>;
    const std::function<Answer()> work = [signers = signers_, user = user_, order, request,
                                          patience]() -> Answer {
        if (request == nullptr) {
            return std::make_shared<Result<ExecReply>>(signers->ask(user, order, patience));
        }
        ExecOrder whole = order;
        const auto signature = signers->kept(user, request->signature);
        if (!signature) {
            return std::make_shared<Result<ExecReply>>(fail(signature.error()));
        }
        whole.credential = signature->credential;
        whole.statement = signature->statement;
        auto ticket = read_plain_file(
            std::filesystem::path{request->own_directory} / wire::kAttemptFileName, kTicketBytes);
        if (!ticket) {
            return std::make_shared<Result<ExecReply>>(
                fail(Errc::unavailable, ticket.error().message));
        }
        whole.ticket = std::move(*ticket);
        return std::make_shared<Result<ExecReply>>(signers->client().call(whole, patience));
    };
    const Answer answer = co_await on_thread<Answer>(calls_, work);
    if (called_) {
        const bool good =
            *answer && (*answer)->status == exec::Status::done && (*answer)->exit == 0;
        called_(what, good,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    if (*answer && (*answer)->status != exec::Status::done) {
        co_return fail(exec_error(**answer));
    }
    co_return std::move(*answer);
}

// Its agents may be looking for lockstepd, whose address may be another one since it was handed
// over.
Task<void> SlurmExec::took_up(AttemptRequest request) {
    if (request.intent_at == 0 || request.intent_is_fresh) {
        co_return;
    }
    ExecOrder order = order_of(request);
    order.what = exec::What::refresh;
    const std::string job = request.job.value;
    const auto shared = std::make_shared<const AttemptRequest>(std::move(request));
    const auto reply = co_await call(std::move(order), "refresh", shared);
    if (!reply) {
        log::warn("cannot pass the daemon's address to the agents of an attempt",
                  {{"job", job}, {"what", reply.error().message}});
    }
}

Task<SubmitReply> SlurmExec::submit_attempt(AttemptRequest request, slurm::BatchSite site) {
    ExecOrder order = order_of(request);
    order.exclude = slurm::excluded_nodes(request);
    order.time = slurm::default_time(site);
    order.nil = slurm::has_nil(site.release);
    const auto shared = std::make_shared<const AttemptRequest>(std::move(request));
    const auto reply = co_await call(std::move(order), "sbatch", shared);
    if (reply) {
        co_return parse_sbatch(output_of(*reply));
    }
    SubmitReply out;
    out.message = reply.error().message;
    switch (reply.error().code) {
        case Errc::denied:
        case Errc::not_found:
            out.kind = SubmitReply::Kind::rejected;
            break;
        case Errc::corrupt:
        case Errc::timed_out:
            out.kind = SubmitReply::Kind::ambiguous;
            break;
        default:
            out.kind = SubmitReply::Kind::not_submitted;
    }
    co_return out;
}

Task<SubmitReply> SlurmExec::submit(std::string path) {
    SubmitReply out;
    out.kind = SubmitReply::Kind::rejected;
    out.message = path + ": lockstep-exec takes no script";
    co_return out;
}

Task<Result<JobTable>> SlurmExec::jobs() {
    if (user_.empty()) {
        co_return JobTable{};
    }
    ExecOrder order;
    order.what = exec::What::jobs;
    const std::string fence = random_secret().substr(0, 24);
    order.fence = fence;
    const auto reply = co_await call(std::move(order), "squeue");
    LOCKSTEP_CO_TRY(reply);
    co_return parse_squeue(output_of(*reply), fence);
}

Task<Result<JobTable>> SlurmExec::history(std::string job_name, std::int64_t since) {
    ExecOrder order;
    order.what = exec::What::history;
    order.name = std::move(job_name);
    order.since = std::max<std::int64_t>(0, since);
    const auto reply = co_await call(std::move(order), "sacct");
    LOCKSTEP_CO_TRY(reply);
    co_return parse_sacct(output_of(*reply), options_.uid);
}

Task<Status> SlurmExec::cancel(std::int64_t id, std::string name) {
    ExecOrder order;
    order.verb = exec::Verb::cancel;
    order.slurm_job = id;
    order.name = std::move(name);
    const auto reply = co_await call(std::move(order), "scancel");
    LOCKSTEP_CO_TRY(reply);
    co_return scancel_status(output_of(*reply));
}

Task<Result<SlurmJobDetail>> SlurmExec::detail(std::int64_t id, std::string name) {
    ExecOrder order;
    order.what = exec::What::job;
    order.slurm_job = id;
    const auto reply = co_await call(std::move(order), "scontrol");
    LOCKSTEP_CO_TRY(reply);
    co_return parse_show_job(output_of(*reply), name);
}

void SlurmExec::stop() {
    signers_->client().stop();
    cli_.stop();
}

}  // namespace lockstep
