#include "job/collective/reduction.hpp"

#include <gloo/types.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace lockstep {
namespace {

struct Bfloat16 {
    std::uint16_t bits;
};

// How values of a type are reckoned with: as what, and how they come back.
template <class Stored>
struct Arithmetic {
    using Wide = Stored;
    static Wide widen(Stored value) { return value; }
    static Stored narrow(Wide value) { return value; }
};
template <>
struct Arithmetic<gloo::float16> {
    using Wide = float;
    static Wide widen(gloo::float16 value) { return gloo::cpu_half2float(value); }
    static gloo::float16 narrow(Wide value) { return gloo::cpu_float2half_rn(value); }
};
template <>
struct Arithmetic<Bfloat16> {
    using Wide = float;
    static Wide widen(Bfloat16 value) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
    }
    // bfloat16 is the upper half of a float: half of the last place is added, less where the last
    // bit is even; a NaN stays one.
    static Bfloat16 narrow(Wide value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        if (value != value) {
            return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};
        }
        const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16U) & 1U);
        return {static_cast<std::uint16_t>(rounded >> 16U)};
    }
};

struct Sum {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a + b);
    }
};
struct Product {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a * b);
    }
};
struct Min {
    template <class T>
    static T apply(T a, T b) {
        return std::min(a, b);
    }
};
struct Max {
    template <class T>
    static T apply(T a, T b) {
        return std::max(a, b);
    }
};

template <class Stored, class Op>
void reduce_values(void* out, const void* a, const void* b, std::size_t count) {
    using Value = Arithmetic<Stored>;
    auto* to = static_cast<Stored*>(out);
    const auto* left = static_cast<const Stored*>(a);
    const auto* right = static_cast<const Stored*>(b);
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = Value::narrow(Op::apply(Value::widen(left[i]), Value::widen(right[i])));
    }
}

template <class Op>
ReduceFunction for_type(Dtype type) {
    switch (type) {
        case Dtype::u8:
            return reduce_values<std::uint8_t, Op>;
        // Sums that overflow wrap around, as they do on a GPU.
        case Dtype::i32:
            return reduce_values<std::uint32_t, Op>;
        case Dtype::i64:
            return reduce_values<std::uint64_t, Op>;
        case Dtype::f16:
            return reduce_values<gloo::float16, Op>;
        case Dtype::bf16:
            return reduce_values<Bfloat16, Op>;
        case Dtype::f32:
            return reduce_values<float, Op>;
        case Dtype::f64:
            return reduce_values<double, Op>;
    }
    return nullptr;
}

// The order of signed values is not that of their bits.
template <class Op>
ReduceFunction for_ordered(Dtype type) {
    switch (type) {
        case Dtype::i32:
            return reduce_values<std::int32_t, Op>;
        case Dtype::i64:
            return reduce_values<std::int64_t, Op>;
        default:
            return for_type<Op>(type);
    }
}

template <class Stored>
void divide_values(void* values, std::size_t count, std::int32_t by) {
    using Value = Arithmetic<Stored>;
    auto* all = static_cast<Stored*>(values);
    for (std::size_t i = 0; i < count; ++i) {
        all[i] = Value::narrow(Value::widen(all[i]) / static_cast<typename Value::Wide>(by));
    }
}

}  // namespace

ReduceFunction reduce_function(Dtype type, ReduceOp op) {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::average:
            return for_type<Sum>(type);
        case ReduceOp::product:
            return for_type<Product>(type);
        case ReduceOp::min:
            return for_ordered<Min>(type);
        case ReduceOp::max:
            return for_ordered<Max>(type);
    }
    return nullptr;
}

void divide(void* values, std::size_t count, Dtype type, std::int32_t by) {
    switch (type) {
        case Dtype::f16:
            return divide_values<gloo::float16>(values, count, by);
        case Dtype::bf16:
            return divide_values<Bfloat16>(values, count, by);
        case Dtype::f32:
            return divide_values<float>(values, count, by);
        case Dtype::f64:
            return divide_values<double>(values, count, by);
        default:
            return;  // the communicator refuses an average of whole numbers
    }
}

}  // namespace lockstep
