// The frameworks, a row each: the word of the specification's `framework`, and the name of what is
// known of it, in a file of its own (job/model/launch/frameworks/). Documents list them in this
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#define LOCKSTEP_FRAMEWORKS(ROW) \
    ROW(native)                  \
    ROW(pytorch)                 \
    ROW(lightning)               \
    ROW(keras)                   \
    ROW(tensorflow)              \
    ROW(paddle)                  \
    ROW(jax)                     \
    ROW(horovod)                 \
    ROW(deepspeed)               \
    ROW(accelerate)              \
    ROW(ray)                     \
    ROW(mpi)                     \
    ROW(command)

namespace lockstep {

enum class Framework : std::uint8_t {
#define LOCKSTEP_ROW(name) name,
    LOCKSTEP_FRAMEWORKS(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
};

inline constexpr std::size_t kFrameworkCount =
    std::initializer_list<Framework>{
#define LOCKSTEP_ROW(name) Framework::name,
        LOCKSTEP_FRAMEWORKS(LOCKSTEP_ROW)
#undef LOCKSTEP_ROW
    }
        .size();

// The word of the specification.
std::string_view to_string(Framework framework);
// Those of all, by number.
std::vector<std::string_view> framework_names();

}  // namespace lockstep
