#include "job/trainer/gru.hpp"

#include "job/trainer/kernels.hpp"
#include "job/trainer/products.hpp"
#include "job/trainer/text_kernels.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct GruSizes {
    explicit GruSizes(const at::Tensor& inputs)
        : batch(inputs.size(0)), length(inputs.size(1)), width(inputs.size(2) / 3) {}
    std::int64_t batch;
    std::int64_t length;
    std::int64_t width;
};

std::size_t unsigned_of(std::int64_t value) {
    return static_cast<std::size_t>(value);
}

struct GruStates : torch::autograd::Function<GruStates> {
    // What backward needs is kept place by place: [length, batch, …].
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                              const at::Tensor& first, const at::Tensor& weights,
                              const at::Tensor& offset) {
        const at::Tensor inputs = given.contiguous();
        const at::Tensor kernel = weights.contiguous();
        const at::Tensor bias = offset.contiguous();
        const GruSizes n{inputs};
        at::Tensor before = at::empty({n.length, n.batch, n.width}, inputs.options());
        at::Tensor gates = at::empty({n.length, n.batch, 3 * n.width}, inputs.options());
        at::Tensor fresh = at::empty({n.length, n.batch, n.width}, inputs.options());
        at::Tensor states = at::empty({n.batch, n.length, n.width}, inputs.options());
        before[0].copy_(first);
        float* to = states.data_ptr<float>();
        for (std::int64_t place = 0; place < n.length; ++place) {
            float* old = before.data_ptr<float>() + place * n.batch * n.width;
            float* gate = gates.data_ptr<float>() + place * n.batch * 3 * n.width;
            multiply({n.batch, 3 * n.width, n.width}, 1.0F, {old, n.width},
                     {kernel.data_ptr<float>(), n.width, true}, gate, 3 * n.width);
            kernels::gru_place({unsigned_of(n.batch), unsigned_of(n.width),
                                inputs.data_ptr<float>() + place * 3 * n.width,
                                unsigned_of(n.length * 3 * n.width), bias.data_ptr<float>(), old,
                                gate, fresh.data_ptr<float>() + place * n.batch * n.width,
                                to + place * n.width, unsigned_of(n.length * n.width)});
            for (std::int64_t text = 0; place + 1 < n.length && text < n.batch; ++text) {
                std::copy_n(to + (text * n.length + place) * n.width, n.width,
                            old + (n.batch + text) * n.width);
            }
        }
        context->save_for_backward({before, gates, fresh, kernel});
        return states;
    }

    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& before = saved[0];
        const at::Tensor& gates = saved[1];
        const at::Tensor& fresh = saved[2];
        const at::Tensor& kernel = saved[3];
        const at::Tensor upstream = gradients[0].contiguous();
        const std::int64_t length = before.size(0);
        const std::int64_t batch = before.size(1);
        const std::int64_t width = before.size(2);
        at::Tensor in_gradient = at::empty({batch, length, 3 * width}, before.options());
        at::Tensor gate_gradients = at::empty(gates.sizes(), before.options());
        at::Tensor carry = at::zeros({batch, width}, before.options());
        at::Tensor more = at::empty({batch, width}, before.options());
        for (std::int64_t place = length; place-- > 0;) {
            float* gate = gate_gradients.data_ptr<float>() + place * batch * 3 * width;
            kernels::gru_place_gradient({unsigned_of(batch), unsigned_of(width),
                                         before.data_ptr<float>() + place * batch * width,
                                         gates.data_ptr<float>() + place * batch * 3 * width,
                                         fresh.data_ptr<float>() + place * batch * width,
                                         upstream.data_ptr<float>() + place * width,
                                         unsigned_of(length * width), carry.data_ptr<float>(),
                                         in_gradient.data_ptr<float>() + place * 3 * width,
                                         unsigned_of(length * 3 * width), gate});
            multiply({batch, width, 3 * width}, 1.0F, {gate, 3 * width},
                     {kernel.data_ptr<float>(), width}, more.data_ptr<float>(), width);
            kernels::add_scaled(carry.data_ptr<float>(), more.data_ptr<float>(),
                                unsigned_of(batch * width), 1.0F);
        }
        at::Tensor kernel_gradient = at::empty({3 * width, width}, before.options());
        multiply({3 * width, width, length * batch}, 1.0F,
                 {gate_gradients.data_ptr<float>(), 3 * width, true},
                 {before.data_ptr<float>(), width}, kernel_gradient.data_ptr<float>(), width);
        return {in_gradient, carry, kernel_gradient,
                gate_gradients.view({length * batch, 3 * width}).sum(0)};
    }
};

}  // namespace

at::Tensor gru_states(const at::Tensor& inputs, const at::Tensor& state, const at::Tensor& kernel,
                      const at::Tensor& bias) {
    return GruStates::apply(inputs, state, kernel, bias);
}

}  // namespace lockstep
