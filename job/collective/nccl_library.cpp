#include "job/collective/nccl_library.hpp"

#include <dlfcn.h>

#include <string_view>

namespace lockstep {
namespace {

struct Wanted {
    const char* name;
    void* place;
    bool needed;
};
template <class Function>
Wanted wanted(const char* name, Function& function, bool needed = true) {
    return {name, static_cast<void*>(&function), needed};
}

template <std::size_t n>
Status find_all(void* library, const std::string& path, const Wanted (&all)[n]) {
    for (const Wanted& one : all) {
        void* symbol = ::dlsym(library, one.name);
        if (symbol == nullptr && one.needed) {
            return fail(Errc::invalid, path + " has no " + one.name);
        }
        // POSIX wants a pointer to a function to fit where a void* does.
        *static_cast<void**>(one.place) = symbol;
    }
    return {};
}

Result<void*> open(const std::string& path) {
    void* library = nullptr;
    if (path.find('/') == std::string::npos) {
        library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    }
    if (library == nullptr) {
        library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
        return fail(Errc::not_found, std::string{"cannot load "} + ::dlerror());
    }
    return library;
}

}  // namespace

std::string NcclLibrary::version_text() const {
    return std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

std::string NcclLibrary::error(nccl::Result code, nccl::Comm comm) const {
    std::string out = api.get_error_string(code);
    const char* last = api.get_last_error == nullptr ? nullptr : api.get_last_error(comm);
    if (last != nullptr && *last != '\0') {
        out += std::string{" ("} + last + ")";
    }
    return out;
}

Result<NcclLibrary> load_nccl(const std::string& path) {
    const Result<void*> library = open(path);
    if (!library) {
        return fail(library.error().in("NCCL"));
    }
    NcclLibrary out;
    nccl::Api& api = out.api;
    const Status found = find_all(
        *library, path,
        {wanted("ncclGetVersion", api.get_version), wanted("ncclGetUniqueId", api.get_unique_id),
         wanted("ncclCommInitRankConfig", api.comm_init_rank_config, false),
         wanted("ncclCommInitRankScalable", api.comm_init_rank_scalable, false),
         wanted("ncclCommFinalize", api.comm_finalize, false),
         wanted("ncclCommDestroy", api.comm_destroy), wanted("ncclCommAbort", api.comm_abort),
         wanted("ncclCommShrink", api.comm_shrink, false),
         wanted("ncclCommRevoke", api.comm_revoke, false),
         wanted("ncclCommGetAsyncError", api.comm_get_async_error),
         wanted("ncclGetErrorString", api.get_error_string),
         wanted("ncclGetLastError", api.get_last_error, false),
         wanted("ncclAllReduce", api.all_reduce), wanted("ncclReduce", api.reduce),
         wanted("ncclBroadcast", api.broadcast), wanted("ncclAllGather", api.all_gather),
         wanted("ncclReduceScatter", api.reduce_scatter), wanted("ncclSend", api.send, false),
         wanted("ncclRecv", api.recv, false)});
    if (!found) {
        return fail(found.error().in("NCCL"));
    }
    // Before 2.9 the number has one digit less for the minor version.
    if (api.get_version(&out.version) != nccl::kSuccess || out.version < nccl::kOldest) {
        return fail(Errc::invalid,
                    "NCCL: " + path + " is version " + std::to_string(out.version) +
                        " (major * 10000 + minor * 100 + patch), the oldest that will do is " +
                        std::to_string(nccl::kOldest));
    }
    return out;
}

std::string CudaDriver::error(cuda::Result code) const {
    const char* text = nullptr;
    if (api.get_error_string(code, &text) != cuda::kSuccess || text == nullptr) {
        return "CUDA error " + std::to_string(static_cast<int>(code));
    }
    return text;
}

Result<CudaDriver> load_cuda(const std::string& path) {
    const Result<void*> library = open(path);
    if (!library) {
        return fail(library.error().in("no GPU can be used"));
    }
    CudaDriver out;
    cuda::Api& api = out.api;
    const Status found = find_all(
        *library, path,
        {wanted("cuInit", api.init), wanted("cuDriverGetVersion", api.driver_get_version),
         wanted("cuGetErrorString", api.get_error_string),
         wanted("cuDeviceGetCount", api.device_get_count), wanted("cuDeviceGet", api.device_get),
         wanted("cuDevicePrimaryCtxRetain", api.primary_ctx_retain),
         wanted("cuDevicePrimaryCtxRelease_v2", api.primary_ctx_release),
         wanted("cuCtxGetCurrent", api.ctx_get_current),
         wanted("cuCtxSetCurrent", api.ctx_set_current), wanted("cuMemAlloc_v2", api.mem_alloc),
         wanted("cuMemFree_v2", api.mem_free), wanted("cuMemcpyHtoD_v2", api.memcpy_to_gpu),
         wanted("cuMemcpyDtoH_v2", api.memcpy_from_gpu), wanted("cuEventCreate", api.event_create),
         wanted("cuEventDestroy_v2", api.event_destroy), wanted("cuEventRecord", api.event_record),
         wanted("cuEventQuery", api.event_query),
         wanted("cuStreamIsCapturing", api.stream_is_capturing)});
    if (!found) {
        return fail(found.error().in("no GPU can be used"));
    }
    if (const cuda::Result code = api.init(0); code != cuda::kSuccess) {
        return fail(Errc::not_found, "no GPU can be used: " + out.error(code));
    }
    api.driver_get_version(&out.version);
    return out;
}

}  // namespace lockstep
