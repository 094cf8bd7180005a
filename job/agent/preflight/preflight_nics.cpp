// Network interfaces and RDMA ports as the kernel's files tell of them (its documentation:
// ABI/testing/sysfs-class-net, ABI/stable/sysfs-class-infiniband).
#include "job/agent/preflight/preflight_facts.hpp"
#include "job/base/files.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/preflight/preflight_devices.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kBytes = 4096;

// Sorted, so that every node says them in the same order.
std::vector<std::string> names_in(const std::filesystem::path& folder) {
    std::vector<std::string> out;
    std::error_code ec;
    for (std::filesystem::directory_iterator at{folder, ec}, end; !ec && at != end;
         at.increment(ec)) {
        out.push_back(at->path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::string word_in(const std::filesystem::path& file) {
    const auto text = read_file(file, kBytes);
    return text ? std::string{trim(*text)} : std::string{};
}

void add_interface(const std::filesystem::path& net, const std::string& name,
                   const std::string& under, std::vector<NicFact>& out) {
    const std::string state = word_in(net / name / "operstate");
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const NicFact& one) { return one.name == name; });
    if (state.empty() || known || out.size() >= limits::kNics) {
        return;
    }
    out.push_back({name, under, false, false, state});
    // The links of a bond or team, what a VLAN or a bridge stands on.
    for (const std::string& link : names_in(net / name)) {
        if (link.starts_with("lower_")) {
            add_interface(net, link.substr(6), name, out);
        }
    }
}

void add_ports(const std::filesystem::path& root, const std::string& setting,
               std::vector<NicFact>& out) {
    const auto devices = root / "sys/class/infiniband";
    for (const std::string& device : names_in(devices)) {
        for (const std::string& port : names_in(devices / device / "ports")) {
            const auto number = to_int(port);
            // "4: ACTIVE"
            const std::string state = word_in(devices / device / "ports" / port / "state");
            const auto colon = state.find(": ");
            if (number && colon != std::string::npos && out.size() < limits::kNics &&
                nccl_takes_port(setting, device, static_cast<std::int32_t>(*number))) {
                NicFact nic;
                nic.name = device;
                nic.name.append(":").append(port);
                nic.rdma = true;
                nic.named = !trim(setting).empty();
                nic.state = state.substr(colon + 2);
                out.push_back(std::move(nic));
            }
        }
    }
}

}  // namespace

std::string look_at_nics(const std::filesystem::path& root,
                         const std::vector<std::string>& interfaces,
                         const std::string& nccl_ib_hca) {
    std::vector<NicFact> out;
    for (const std::string& name : interfaces) {
        if (!name.empty()) {
            add_interface(root / "sys/class/net", name, "", out);
        }
    }
    add_ports(root, nccl_ib_hca, out);
    return dump_json(to_json(out));
}

void take_nics(const std::string& answer, std::vector<NicFact>& out) {
    const auto json = parse_json(answer);
    if (auto nics = json ? parse_nics(*json) : Result<std::vector<NicFact>>{}) {
        out = std::move(*nics);
    }
}

}  // namespace lockstep
