#include "job/trainer/attention.hpp"

#include "job/trainer/device.hpp"
#include "job/trainer/products.hpp"
#include "job/trainer/text_kernels.hpp"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "without OpenMP at::parallel_for is a loop on one thread"
#endif

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr std::int64_t kGrain = 32'768;  // values that are worth a thread

// Where the parts of one head of one text lie: rows of `part` floats, `step` apart, in what has
// three times the width.
struct Heads {
    Heads(const at::Tensor& all, std::int64_t heads)
        : count(heads),
          batch(all.size(0)),
          length(all.size(1)),
          width(all.size(2) / 3),
          part(width / heads),
          scale(1.0F / std::sqrt(static_cast<float>(part))) {}

    std::int64_t count;
    std::int64_t batch;
    std::int64_t length;
    std::int64_t width;
    std::int64_t part;
    float scale;

    // `which`: 0 query, 1 key, 2 value.
    std::int64_t in(std::int64_t number, std::int64_t which) const {
        return number / count * length * 3 * width + which * width + number % count * part;
    }
    std::int64_t out(std::int64_t number) const {
        return number / count * length * width + number % count * part;
    }
    std::int64_t scores(std::int64_t number) const { return number * length * length; }

    template <class Function>
    void each(Function&& function) const {
        at::parallel_for(0, batch * count, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t number = begin; number < end; ++number) {
                function(number);
            }
        });
    }
};

struct CausalAttention : torch::autograd::Function<CausalAttention> {
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                              std::int64_t heads) {
        const at::Tensor all = input.contiguous();
        const Heads head{all, heads};
        at::Tensor weights =
            at::empty({head.batch * heads, head.length, head.length}, all.options());
        at::Tensor out = at::empty({head.batch, head.length, head.width}, all.options());
        const float* from = all.data_ptr<float>();
        float* scores = weights.data_ptr<float>();
        float* to = out.data_ptr<float>();
        const std::int64_t step = 3 * head.width;
        head.each([&](std::int64_t number) {
            float* mine = scores + head.scores(number);
            multiply({head.length, head.length, head.part}, head.scale,
                     {from + head.in(number, 0), step}, {from + head.in(number, 1), step, true},
                     mine, head.length);
            kernels::causal_softmax(mine, static_cast<std::size_t>(head.length));
            multiply({head.length, head.part, head.length}, 1.0F, {mine, head.length},
                     {from + head.in(number, 2), step}, to + head.out(number), head.width);
        });
        context->save_for_backward({all, weights});
        context->saved_data["heads"] = heads;
        return out;
    }

    // With W the weights, G the gradient of what comes out and S that of the scores:
    //   ∂value = Wᵀ·G, S = W ∘ (G·valueᵀ − its row's mean by W) · scale, ∂query = S·key,
    //   ∂key = Sᵀ·query.
    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& all = saved[0];
        const Heads head{all, context->saved_data["heads"].toInt()};
        const at::Tensor gradient = gradients[0].contiguous();
        at::Tensor out = at::empty(all.sizes(), all.options());
        const float* from = all.data_ptr<float>();
        const float* weights = saved[1].data_ptr<float>();
        const float* upstream = gradient.data_ptr<float>();
        float* to = out.data_ptr<float>();
        const std::int64_t n = head.length;
        const std::int64_t step = 3 * head.width;
        head.each([&](std::int64_t number) {
            thread_local std::vector<float> scores;
            scores.resize(static_cast<std::size_t>(n * n));
            const Factor g{upstream + head.out(number), head.width};
            const float* mine = weights + head.scores(number);
            multiply({n, n, head.part}, 1.0F, g, {from + head.in(number, 2), step, true},
                     scores.data(), n);
            multiply({n, head.part, n}, 1.0F, {mine, n, true}, g, to + head.in(number, 2), step);
            kernels::softmax_gradient(mine, scores.data(), static_cast<std::size_t>(n),
                                      static_cast<std::size_t>(n), head.scale);
            multiply({n, head.part, n}, 1.0F, {scores.data(), n}, {from + head.in(number, 1), step},
                     to + head.in(number, 0), step);
            multiply({n, head.part, n}, 1.0F, {scores.data(), n, true},
                     {from + head.in(number, 0), step}, to + head.in(number, 1), step);
        });
        return {out, {}};
    }
};

struct Gelu : torch::autograd::Function<Gelu> {
    // NOLINTNEXTLINE(readability-identifier-naming): the names are LibTorch's
    static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
        const at::Tensor x = input.contiguous();
        at::Tensor y = at::empty(x.sizes(), x.options());
        const float* from = x.data_ptr<float>();
        float* to = y.data_ptr<float>();
        at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
            kernels::gelu(from + begin, to + begin, static_cast<std::size_t>(end - begin));
        });
        context->save_for_backward({x});
        return y;
    }
    static tensor_list backward(AutogradContext* context, tensor_list gradients) {
        const at::Tensor x = context->get_saved_variables()[0];
        const at::Tensor g = gradients[0].contiguous();
        at::Tensor out = at::empty(x.sizes(), x.options());
        const float* from = x.data_ptr<float>();
        const float* upstream = g.data_ptr<float>();
        float* to = out.data_ptr<float>();
        at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
            kernels::gelu_gradient(from + begin, upstream + begin, to + begin,
                                   static_cast<std::size_t>(end - begin));
        });
        return {out};
    }
};

bool is_ours(const at::Tensor& x) {
    return own_loops(x) && x.scalar_type() == at::kFloat;
}

at::Tensor portable_attention(const at::Tensor& rows, std::int64_t heads) {
    const std::int64_t batch = rows.size(0);
    const std::int64_t length = rows.size(1);
    const std::int64_t width = rows.size(2) / 3;
    const at::Tensor all = rows.view({batch, length, 3, heads, width / heads})
                               .permute({2, 0, 3, 1, 4});  // [3, batch, heads, length, part]
#if TORCH_VERSION_MAJOR >= 2
    const at::Tensor seen = at::scaled_dot_product_attention(all[0], all[1], all[2], {}, 0.0, true);
#else
    const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads));
    const at::Tensor scores = at::matmul(all[0], all[1].transpose(-2, -1)) * scale;
    const at::Tensor later =
        at::ones({length, length}, rows.options().dtype(at::kBool)).triu(/*diagonal=*/1);
    const at::Tensor weights =
        at::softmax(scores.masked_fill(later, -std::numeric_limits<float>::infinity()), /*dim=*/-1);
    const at::Tensor seen = at::matmul(weights, all[2]);
#endif
    return seen.transpose(1, 2).reshape({batch, length, width});
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& all, std::int64_t heads) {
    return is_ours(all) ? CausalAttention::apply(all, heads) : portable_attention(all, heads);
}

at::Tensor fused_gelu(const at::Tensor& x) {
    return is_ours(x) ? Gelu::apply(x) : at::gelu(x);
}

}  // namespace lockstep
