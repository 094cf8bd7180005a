// What is looked at before the ranks meet: /preflight.
#include "job/base/enum_table.hpp"
#include "job/model/spec/spec_fields.hpp"

#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kModes{"on", "only", "off"};
static_assert(names_all_of<PreflightMode>(kModes));

}  // namespace

void read_preflight(ObjectReader& parent, PreflightSpec& out, std::vector<FieldError>& errors) {
    const Json* json = parent.raw("preflight");
    if (json == nullptr) {
        return;
    }
    ObjectReader in{*json, parent.pointer("preflight"), errors};
    std::size_t mode = 0;
    in.word("mode", mode, {kModes.begin(), kModes.end()});
    out.mode = static_cast<PreflightMode>(mode);
    in.boolean("require_same_versions", out.require_same_versions);
    in.boolean("cpu_test", out.cpu_test);
    in.boolean("gpu_test", out.gpu_test);
    in.boolean("pair_test", out.pair_test);
    in.boolean("nccl_test", out.nccl_test);
    for (const auto& [name, wanted] :
         {std::pair{"cpu_test", out.cpu_test}, std::pair{"gpu_test", out.gpu_test},
          std::pair{"pair_test", out.pair_test}, std::pair{"nccl_test", out.nccl_test}}) {
        if (wanted && out.mode == PreflightMode::off) {
            in.error(name, "has no effect with mode off");
        }
    }
    in.finish();
}

Json to_json(const PreflightSpec& preflight) {
    const PreflightSpec standard;
    Json out = Json::object();
    if (preflight.mode != standard.mode) {
        out["mode"] = kModes[static_cast<std::size_t>(preflight.mode)];
    }
    if (preflight.require_same_versions != standard.require_same_versions) {
        out["require_same_versions"] = preflight.require_same_versions;
    }
    if (preflight.cpu_test != standard.cpu_test) {
        out["cpu_test"] = preflight.cpu_test;
    }
    if (preflight.gpu_test != standard.gpu_test) {
        out["gpu_test"] = preflight.gpu_test;
    }
    if (preflight.pair_test != standard.pair_test) {
        out["pair_test"] = preflight.pair_test;
    }
    if (preflight.nccl_test != standard.nccl_test) {
        out["nccl_test"] = preflight.nccl_test;
    }
    return out;
}

}  // namespace lockstep
