#include "daemon/http/base/entity_query.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <utility>

namespace lockstep {
namespace {

void take_set(QueryReader& in, const char* name, std::size_t most,
              std::vector<std::int32_t>& target) {
    std::string text;
    in.text(name, text, limits::kTextBytes * 8);
    if (text.empty() || text == "all") {
        return;
    }
    if (auto set = parse_rank_set(text, most)) {
        target = std::move(*set);
    } else {
        in.error(name, set.error().message);
    }
}

}  // namespace

void take_entities(QueryReader& in, EntityQuery& query, std::vector<std::int32_t>& ranks,
                   std::size_t most, std::string& metric) {
    std::string entity = "rank";
    in.text("entity", entity, limits::kTextBytes);
    if (entity != "rank" && entity != "gpu") {
        in.error("entity", "must be rank or gpu");
    }
    query.of_gpus = entity == "gpu";
    take_set(in, "ranks", most, ranks);
    take_set(in, "gpus", most, query.gpus);
    if (in.has("gpus") && !query.of_gpus) {
        in.error("gpus", "only with entity=gpu");
    } else if (!query.gpus.empty() && !ranks.empty()) {
        in.error("gpus", "cannot be given together with ranks");
    }
    if (query.of_gpus && !in.has("metric")) {
        metric = kGpuMetricIfNone;
    }
}

ParameterDoc entity_parameter() {
    return {"entity",
            "string",
            "Whose history: rank (if not given), or gpu: of the GPUs of the job, whose metrics "
            "GET /v1/jobs/{id}/gpus names.",
            {"rank", "gpu"}};
}

ParameterDoc gpus_parameter() {
    return {"gpus", "string",
            "With entity=gpu, which GPUs, by id as GET /v1/jobs/{id}/gpus has it, as 0-7,12, or "
            "all. With ranks instead: those that these ranks use, or used last."};
}

}  // namespace lockstep
