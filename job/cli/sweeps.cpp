#include "job/cli/sweeps.hpp"

#include "job/base/limits.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/results.hpp"

#include <algorithm>

namespace lockstep::cli {

Result<std::vector<Json>> jobs_of_sweep(Context& context, const std::string& first) {
    static_assert(limits::kSweepPoints <= limits::kPage);  // all of them are one page
    const auto page = context.client.get_json(
        "/v1/jobs?limit=" + std::to_string(limits::kSweepPoints) + "&sweep=" + first);
    if (!page) {
        return fail(page.error());
    }
    const Json& items = items_at(*page, "items");
    return std::vector<Json>(items.begin(), items.end());
}

void print_sweep(Context& context, const std::vector<Json>& jobs, std::size_t lines) {
    std::vector<SweepRow> rows;
    for (const Json& job : jobs) {
        SweepRow row{job, {}};
        const auto series = context.client.get_json("/v1/jobs/" + text_at(job, "id") +
                                                    "/series?metric=loss&ranks=0&points=2");
        if (series) {
            row.loss = reached(*series);
        }
        rows.push_back(std::move(row));
    }
    auto table = sweep_table(context.terminal, std::move(rows));
    table.resize(std::min(table.size(), lines + 1));  // with its titles
    print(context, table);
}

}  // namespace lockstep::cli
