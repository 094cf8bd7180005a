// lockstep-gpu-test [GPU…]: computes on every GPU (or those named by their index) and moves its memory, and says
// what came of it, one JSON object a line: {"gpus":2}, so many will follow, then as each is done
//   {"gpu":0,"uuid":"GPU-…","name":"…","driver":13000,"gemm_flops":…,"gemm_wrong":0,"clock_hz":…,"memory_bytes":…,
//    "memory_bytes_per_second":…,"memory_wrong":0,"copy_bytes_per_second":…,"seconds":…}
// All GPUs at once, as a training has them: a node of sixteen takes no longer than one GPU and their contexts,
// and one that hangs keeps no other from its line. Printed at once: whoever reads may give this program up.
// gemm_flops: half-precision matrix products with sums in single precision, on the tensor cores by a plain kernel
// of our own: to be compared between GPUs of one model, not with a data sheet. memory: nine tenths of what is
// free, written and read back twice with different patterns; its rate counts the bytes written and read. copy: host
// (pinned) to GPU. clock: of a multiprocessor, right after the products; 0 where it cannot be told. *_wrong: values
// that are not what they must be; every one is exact, so any is a fault.
// Where a GPU cannot be used the line is {"gpu":0,"error":"…"}, with what is known of it.
// Exit status: 0 all is right; 1 something is wrong; 77 no GPU or no driver, which one line says:
// {"error":"…","code":100}, the code being CUDA's (cudaError_t; 0: there is no GPU).
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kOrder = 4096;  // of the matrices: 0.14 TFLOP a product
constexpr int kProducts = 8;
constexpr std::chrono::milliseconds kWarmUp{100};  // a GPU at rest needs so long to raise its clock
constexpr int kTile = 16;
constexpr std::size_t kCopyBytes = std::size_t{256} << 20U;
constexpr int kCopies = 4;

struct Failed {
    std::string why;
};
void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) {
        throw Failed{std::string{what} + ": " + cudaGetErrorString(code)};
    }
}

template <class T>
class OnGpu {
  public:
    explicit OnGpu(std::size_t count) { check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc"); }
    ~OnGpu() { cudaFree(data_); }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;
    T* get() const { return static_cast<T*>(data_); }

  private:
    void* data_ = nullptr;
};

class Watch {
  public:
    Watch() {
        check(cudaEventCreate(&begin_), "cudaEventCreate");
        check(cudaEventCreate(&end_), "cudaEventCreate");
        check(cudaEventRecord(begin_), "cudaEventRecord");
    }
    ~Watch() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    double seconds() {
        check(cudaEventRecord(end_), "cudaEventRecord");
        check(cudaEventSynchronize(end_), "cudaEventSynchronize");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
        return std::max(static_cast<double>(milliseconds), 1e-6) / 1e3;
    }

  private:
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
};

// Small whole numbers: every product and every sum of 4,096 of them is exact (3 * 3 * 4,096 < 2^24), in
// whatever order it is added up.
__host__ __device__ int entry(int row, int column, int salt) {
    return (row * 3 + column * 13 + salt * 5) % 7 - 3;
}

__global__ void fill_matrix(half* out, int salt) {
    const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int row = static_cast<int>(blockIdx.y);
    out[static_cast<std::size_t>(row) * kOrder + column] = __int2half_rn(entry(row, column, salt));
}

// A warp makes a tile of 32 by 32; four warps a block.
__global__ void product(const half* a, const half* b, float* c) {
    using namespace nvcuda;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int row = (static_cast<int>(blockIdx.y) * 2 + warp / 2) * 2 * kTile;
    const int column = (static_cast<int>(blockIdx.x) * 2 + warp % 2) * 2 * kTile;
    wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sum[2][2];
    for (auto& of_row : sum) {
        for (auto& of : of_row) {
            wmma::fill_fragment(of, 0.0F);
        }
    }
    for (int k = 0; k < kOrder; k += kTile) {
        wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major> left[2];
        wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major> right[2];
        for (int i = 0; i < 2; ++i) {
            wmma::load_matrix_sync(left[i], a + static_cast<std::size_t>(row + i * kTile) * kOrder + k, kOrder);
            wmma::load_matrix_sync(right[i], b + static_cast<std::size_t>(k) * kOrder + column + i * kTile, kOrder);
        }
        for (int i = 0; i < 2; ++i) {
            for (int j = 0; j < 2; ++j) {
                wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
            }
        }
    }
    for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 2; ++j) {
            wmma::store_matrix_sync(c + static_cast<std::size_t>(row + i * kTile) * kOrder + column + j * kTile,
                                    sum[i][j], kOrder, wmma::mem_row_major);
        }
    }
}

// Both matrices have a period of seven along the sum, so what an entry must be is a sum of seven products and
// the remainder.
__global__ void compare(const float* c, unsigned long long* wrong) {
    const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int row = static_cast<int>(blockIdx.y);
    int period = 0;
    int rest = 0;
    for (int k = 0; k < 7; ++k) {
        const int one = entry(row, k, 1) * entry(k, column, 2);
        period += one;
        rest += k < kOrder % 7 ? one : 0;
    }
    const float want = static_cast<float>(period * (kOrder / 7) + rest);
    if (c[static_cast<std::size_t>(row) * kOrder + column] != want) {
        atomicAdd(wrong, 1ULL);
    }
}

__device__ std::uint64_t pattern(std::uint64_t at, std::uint64_t salt) {
    std::uint64_t x = (at ^ salt) * 0x9e3779b97f4a7c15ULL;  // SplitMix64's
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    return x ^ (x >> 27U);
}
__global__ void write_pattern(std::uint64_t* out, std::size_t count, std::uint64_t salt) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
         i += std::size_t{gridDim.x} * blockDim.x) {
        out[i] = pattern(i, salt);
    }
}
__global__ void read_pattern(const std::uint64_t* in, std::size_t count, std::uint64_t salt,
                             unsigned long long* wrong) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
         i += std::size_t{gridDim.x} * blockDim.x) {
        if (in[i] != pattern(i, salt)) {
            atomicAdd(wrong, 1ULL);
        }
    }
}

// Counts cycles for a millisecond of the GPU's own timer, or for as many as no millisecond has: one that stands
// still must not hang the test.
__global__ void time_cycles(unsigned long long* cycles_and_ns) {
    constexpr unsigned long long kNanoseconds = 1000000;
    const auto now = [] {
        unsigned long long out = 0;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out));
        return out;
    };
    const unsigned long long began = now();
    const long long first = clock64();
    constexpr long long kMostCycles = 100000000;
    unsigned long long took = 0;
    while (took < kNanoseconds && clock64() - first < kMostCycles) {
        took = now() - began;
    }
    cycles_and_ns[0] = static_cast<unsigned long long>(clock64() - first);
    cycles_and_ns[1] = took;
}

struct Counter {
    Counter() : gpu{1} { check(cudaMemset(gpu.get(), 0, sizeof(unsigned long long)), "cudaMemset"); }
    unsigned long long value() {
        unsigned long long out = 0;
        check(cudaMemcpy(&out, gpu.get(), sizeof out, cudaMemcpyDeviceToHost), "cudaMemcpy");
        return out;
    }
    OnGpu<unsigned long long> gpu;
};

struct Sweep {
    double gemm_flops = 0;
    unsigned long long gemm_wrong = 0;
    double clock = 0;
    std::size_t memory_bytes = 0;
    double memory_rate = 0;
    unsigned long long memory_wrong = 0;
    double copy_rate = 0;
};

// 0: it cannot be told.
double clock_of_gpu() {
    OnGpu<unsigned long long> measured{2};
    time_cycles<<<1, 1>>>(measured.get());
    unsigned long long cycles_and_ns[2] = {0, 0};
    check(cudaMemcpy(cycles_and_ns, measured.get(), sizeof cycles_and_ns, cudaMemcpyDeviceToHost), "its clock");
    return cycles_and_ns[1] == 0
               ? 0
               : static_cast<double>(cycles_and_ns[0]) * 1e9 / static_cast<double>(cycles_and_ns[1]);
}

void sweep_gemm(Sweep& out) {
    constexpr std::size_t kEntries = std::size_t{kOrder} * kOrder;
    OnGpu<half> a{kEntries};
    OnGpu<half> b{kEntries};
    OnGpu<float> c{kEntries};
    Counter wrong;
    const dim3 rows{kOrder / 256, kOrder};
    fill_matrix<<<rows, 256>>>(a.get(), 1);
    fill_matrix<<<rows, 256>>>(b.get(), 2);
    const dim3 blocks{kOrder / (4 * kTile), kOrder / (4 * kTile)};
    const auto warm = std::chrono::steady_clock::now() + kWarmUp;
    do {
        product<<<blocks, 128>>>(a.get(), b.get(), c.get());
        check(cudaDeviceSynchronize(), "a product of matrices");
    } while (std::chrono::steady_clock::now() < warm);
    Watch watch;
    for (int i = 0; i < kProducts; ++i) {
        product<<<blocks, 128>>>(a.get(), b.get(), c.get());
    }
    out.gemm_flops = 2.0 * kOrder * kOrder * kOrder * kProducts / watch.seconds();
    out.clock = clock_of_gpu();
    compare<<<rows, 256>>>(c.get(), wrong.gpu.get());
    check(cudaGetLastError(), "a product of matrices");
    out.gemm_wrong = wrong.value();
}

void sweep_memory(Sweep& out) {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const std::size_t count = free / 10 * 9 / sizeof(std::uint64_t);
    OnGpu<std::uint64_t> memory{count};
    Counter wrong;
    constexpr int kBlocks = 4096;
    Watch watch;
    for (const std::uint64_t salt : {std::uint64_t{0x5555555555555555U}, ~std::uint64_t{0x5555555555555555U}}) {
        write_pattern<<<kBlocks, 256>>>(memory.get(), count, salt);
        read_pattern<<<kBlocks, 256>>>(memory.get(), count, salt, wrong.gpu.get());
    }
    out.memory_bytes = count * sizeof(std::uint64_t);
    out.memory_rate = 4.0 * static_cast<double>(out.memory_bytes) / watch.seconds();
    check(cudaGetLastError(), "a sweep of the memory");
    out.memory_wrong = wrong.value();
}

void sweep_copies(Sweep& out) {
    OnGpu<char> to{kCopyBytes};
    void* from = nullptr;
    check(cudaMallocHost(&from, kCopyBytes), "cudaMallocHost");
    Watch watch;
    for (int i = 0; i < kCopies; ++i) {
        check(cudaMemcpyAsync(to.get(), from, kCopyBytes, cudaMemcpyHostToDevice), "cudaMemcpyAsync");
    }
    out.copy_rate = static_cast<double>(kCopyBytes) * kCopies / watch.seconds();
    cudaFreeHost(from);
}

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
        }
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out;
}

// "GPU-12345678-…", as nvidia-smi has it.
std::string uuid_of(const cudaDeviceProp& properties) {
    std::string out = "GPU";
    for (int i = 0; i < 16; ++i) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
        out += std::string{i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : ""} + two;
    }
    return out;
}

void say(const std::string& line) {
    static std::mutex one_at_a_time;
    const std::lock_guard lock{one_at_a_time};
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

// Whether all is right.
bool test_gpu(int gpu) {
    const auto began = std::chrono::steady_clock::now();
    std::string who = "{\"gpu\":" + std::to_string(gpu);
    try {
        cudaDeviceProp properties{};
        int driver = 0;
        check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
        who += ",\"uuid\":\"" + uuid_of(properties) + "\",\"name\":\"" + escaped(properties.name) + "\"";
        check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
        check(cudaSetDevice(gpu), "cudaSetDevice");
        Sweep sweep;
        sweep_gemm(sweep);
        sweep_memory(sweep);
        sweep_copies(sweep);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        char rest[512];
        std::snprintf(rest, sizeof rest,
                      ",\"driver\":%d,\"gemm_flops\":%.4g,\"gemm_wrong\":%llu,\"clock_hz\":%.4g,\"memory_bytes\":%zu,"
                      "\"memory_bytes_per_second\":%.4g,\"memory_wrong\":%llu,\"copy_bytes_per_second\":%.4g,"
                      "\"seconds\":%.2f}",
                      driver, sweep.gemm_flops, sweep.gemm_wrong, sweep.clock, sweep.memory_bytes,
                      sweep.memory_rate, sweep.memory_wrong, sweep.copy_rate, took.count());
        say(who + rest);
        return sweep.gemm_wrong == 0 && sweep.memory_wrong == 0;
    } catch (const Failed& failed) {
        say(who + ",\"error\":\"" + escaped(failed.why) + "\"}");
        return false;
    }
}

}  // namespace

int main(int argc, char** argv) {
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess || count == 0) {
        say(std::string{"{\"error\":\"no GPU can be used: "} +
            (found == cudaSuccess ? "none is there" : cudaGetErrorString(found)) +
            "\",\"code\":" + std::to_string(static_cast<int>(found)) + "}");
        return 77;
    }
    std::vector<int> gpus;
    for (int i = 1; i < argc; ++i) {
        char* end = nullptr;
        const long gpu = std::strtol(argv[i], &end, 10);
        if (end == argv[i] || *end != '\0' || gpu < 0 || gpu >= count) {
            say("{\"error\":\"no GPU " + escaped(argv[i]) + ": there are " + std::to_string(count) + "\"}");
            return 1;
        }
        gpus.push_back(static_cast<int>(gpu));
    }
    for (int gpu = 0; argc == 1 && gpu < count; ++gpu) {
        gpus.push_back(gpu);
    }
    say("{\"gpus\":" + std::to_string(gpus.size()) + "}");
    std::vector<char> right(gpus.size());  // not bool: threads write beside each other
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        threads.emplace_back([&right, &gpus, i] { right[i] = test_gpu(gpus[i]) ? 1 : 0; });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return std::all_of(right.begin(), right.end(), [](char one) { return one != 0; }) ? 0 : 1;
}
