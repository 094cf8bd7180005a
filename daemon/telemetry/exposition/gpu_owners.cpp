#include "daemon/telemetry/exposition/gpu_owners.hpp"

namespace lockstep::telemetry {

GpuOwners::GpuOwners(const GpuTable& table, double now, const JobFilter& ours) {
    table.each_fresh(now, [&](const GpuSource& source, const GpuTable::Look& look) {
        if (ours(source.job)) {
            const auto slot = static_cast<std::size_t>(source.slot);
            const auto [at, first] = nodes_.try_emplace(look.node, Node{slot, false});
            at->second.shared = at->second.shared || !first;
        }
    });
    bool any = false;
    table.each_fresh(now, [&](const GpuSource& source, const GpuTable::Look& look) {
        const auto found = nodes_.find(look.node);
        if (found != nodes_.end()) {
            found->second.shared = found->second.shared || !ours(source.job);
            any = any || found->second.shared;
        }
    });
    if (any) {
        share_out(table, now, ours);
    }
}

// Jobs come in the order of their age.
void GpuOwners::share_out(const GpuTable& table, double now, const JobFilter& ours) {
    struct Claim {
        const GpuSource* source = nullptr;
        bool used = false;
    };
    std::map<GpuPlace, Claim> claims;
    table.each_fresh(now, [&](const GpuSource& source, const GpuTable::Look& look) {
        const auto node = nodes_.find(look.node);
        if (node == nodes_.end() || !node->second.shared) {
            return;
        }
        const auto claim = [&](std::uint32_t gpu, bool used) {
            Claim& owner = claims[{look.node, gpu}];
            if (owner.source == nullptr || (used && !owner.used)) {
                owner = {&source, used};
            }
        };
        for (const GpuUse& use : look.batch.uses) {
            claim(use.gpu, true);
        }
        for (const GpuSample& gpu : look.batch.gpus) {
            claim(gpu.gpu, false);
        }
        for (const GpuXidSeen& xid : look.batch.xids) {
            claim(xid.gpu, false);
        }
    });
    for (const auto& [place, owner] : claims) {
        if (ours(owner.source->job)) {
            shared_.emplace(place, static_cast<std::size_t>(owner.source->slot));
        }
    }
}

std::optional<std::size_t> GpuOwners::slot_of(std::string_view node, std::uint32_t gpu) const {
    const auto found = nodes_.find(node);
    if (found == nodes_.end()) {
        return std::nullopt;
    }
    if (!found->second.shared) {
        return found->second.slot;
    }
    const auto place = shared_.find({node, gpu});
    return place == shared_.end() ? std::nullopt : std::optional{place->second};
}

}  // namespace lockstep::telemetry
