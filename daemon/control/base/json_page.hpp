// {"items": […], "next_cursor": "…"} of items that are JSON already: without parsing them again.
#pragma once

#include "job/base/json.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// `next`: "" = this is the last page.
inline std::string json_page(const std::vector<std::string_view>& items, const std::string& next) {
    std::string out = "{\"items\":[";
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) {
            out += ',';
        }
        out += items[i];
    }
    out += ']';
    if (!next.empty()) {
        out += ",\"next_cursor\":" + dump_json(Json(next));
    }
    out += '}';
    return out;
}

}  // namespace lockstep
