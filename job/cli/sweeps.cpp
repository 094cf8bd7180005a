#include "job/cli/sweeps.hpp"

#include "job/base/limits.hpp"
#include "job/cli/fields.hpp"

#include <algorithm>

namespace lockstep::cli {

Result<std::vector<Json>> jobs_of_sweep(Context& context, const std::string& first) {
    static_assert(limits::kSweepPoints <= limits::kPage);  // all of them are one page
    const auto page = context.client.get_json(
        "/v1/jobs?limit=" + std::to_string(limits::kSweepPoints) + "&sweep=" + first);
    LOCKSTEP_TRY(page);
    const Json& items = items_at(*page, "items");
    return std::vector<Json>(items.begin(), items.end());
}

std::optional<Reached> read_reached(Context& context, const std::string& id,
                                    const std::string& metric) {
    const std::string path =
        "/v1/jobs/" + id + "/series?metric=" + query_encode(metric) + "&ranks=0&points=";
    auto series = context.client.get_json(path + "2");
    if (series && !reached(*series).nonfinite.empty()) {
        // Two points do not tell where that began.
        series = context.client.get_json(path + "800");
    }
    return series ? std::optional{reached(*series)} : std::nullopt;
}

void print_sweep(Context& context, const std::vector<Json>& jobs, std::size_t lines) {
    std::vector<SweepRow> rows;
    for (const Json& job : jobs) {
        const auto loss = read_reached(context, text_at(job, "id"), "loss");
        rows.push_back({job, loss.value_or(Reached{})});
    }
    auto table = sweep_table(context.terminal, std::move(rows));
    table.resize(std::min(table.size(), lines + 1));  // with its titles
    print(context, table);
}

}  // namespace lockstep::cli
