#include "job/trainer/all_reduce.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class RingSum final : public GradientSum {
  public:
    explicit RingSum(Communicator& all) : all_(all) {}
    Status sum(std::span<float> values) override { return all_.all_reduce(buffer_of(values)); }

  private:
    Communicator& all_;
};

class SumOnOne final : public GradientSum {
  public:
    explicit SumOnOne(Communicator& all) : all_(all) {}
    Status sum(std::span<float> values) override {
        const Status reduced = all_.reduce(buffer_of(values), 0);
        return reduced ? all_.broadcast(buffer_of(values), 0) : reduced;
    }

  private:
    Communicator& all_;
};

class HierarchicalSum final : public GradientSum {
  public:
    HierarchicalSum(std::unique_ptr<Communicator> node, std::unique_ptr<Communicator> leaders)
        : node_(std::move(node)), leaders_(std::move(leaders)) {}
    Status sum(std::span<float> values) override {
        Status done = node_->reduce(buffer_of(values), 0);
        if (done && leaders_ != nullptr) {
            done = leaders_->all_reduce(buffer_of(values));
        }
        return done ? node_->broadcast(buffer_of(values), 0) : done;
    }

  private:
    std::unique_ptr<Communicator> node_;     // the ranks of this node
    std::unique_ptr<Communicator> leaders_;  // the first rank of every node; null on the others
};

Result<std::unique_ptr<GradientSum>> make_hierarchical(const World& world) {
    const Result<std::vector<std::int64_t>> nodes = world.gather(world.node_rank());
    LOCKSTEP_TRY(nodes);
    std::vector<std::int32_t> mine;
    std::vector<std::int32_t> first_ranks;
    for (std::int32_t rank = 0; rank < world.size(); ++rank) {
        const auto here = nodes->begin() + rank;
        if (*here == world.node_rank()) {
            mine.push_back(rank);
        }
        if (std::find(nodes->begin(), here, *here) == here) {
            first_ranks.push_back(rank);
        }
    }
    Result<std::unique_ptr<Communicator>> node =
        world.group("node-" + std::to_string(world.node_rank()), mine);
    LOCKSTEP_TRY(node);
    std::unique_ptr<Communicator> leaders;
    if (mine.front() == world.rank()) {
        Result<std::unique_ptr<Communicator>> made = world.group("node-leaders", first_ranks);
        LOCKSTEP_TRY(made);
        leaders = std::move(*made);
    }
    return std::make_unique<HierarchicalSum>(std::move(*node), std::move(leaders));
}

}  // namespace

Result<std::unique_ptr<GradientSum>> make_gradient_sum(TrainAllReduce kind, const World& world) {
    switch (kind) {
        case TrainAllReduce::hierarchical:
            return make_hierarchical(world);
        case TrainAllReduce::reduce_to_one:
            return std::make_unique<SumOnOne>(world.all());
        case TrainAllReduce::ring:
            break;
    }
    return std::make_unique<RingSum>(world.all());
}

}  // namespace lockstep
