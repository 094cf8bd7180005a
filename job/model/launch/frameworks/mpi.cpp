#include "job/model/launch/frameworks/frameworks.hpp"

namespace lockstep::frameworks {
namespace {

constexpr std::array kTaskAlone{Launch::task};

}  // namespace

const FrameworkTraits& mpi() {
    static constexpr FrameworkTraits kTraits{
        .launches = kTaskAlone,
        .no_other_launch = "only srun can give a rank its PMI",
        .hands_out_gpus = always,
    };
    return kTraits;
}

}  // namespace lockstep::frameworks
