#include "daemon/control/control_service.hpp"

#include "daemon/control/job_actor.hpp"

#include <utility>

namespace lockstep {

ControlService::ControlService(ControlContext& context)
    : context_(context),
      registry_(context),
      history_(context),
      notifier_(context),
      ingest_(context, [this](JobActor& actor) { lifecycle_.reported(actor); }),
      gate_(context, registry_, ingest_),
      streams_(context, registry_),
      series_(context, history_),
      metrics_(context, registry_),
      admission_(context, registry_),
      lifecycle_(context, registry_, admission_, gate_, streams_, series_, history_, metrics_,
                 notifier_, ingest_),
      start_(context, registry_, lifecycle_, admission_, gate_, history_),
      submissions_(context, registry_, admission_, lifecycle_),
      commands_(context, registry_),
      removal_(context, registry_, gate_, lifecycle_) {}

ControlService::~ControlService() = default;

void ControlService::begin(AgentsListener agents, const std::string& page_url) {
    context_.settings.agents = std::move(agents);
    history_.begin();
    removal_.begin();
    notifier_.begin(page_url);
    start_.take_up();
}

Task<void> ControlService::stop() {
    gate_.close();
    admission_.halt();
    ingest_.stop();
    history_.halt();
    removal_.halt();
    notifier_.halt();
    lifecycle_.stop();
    co_await context_.tasks.join();
    lifecycle_.forget_agents();
    context_.files.join();
    history_.stop();
}

}  // namespace lockstep
