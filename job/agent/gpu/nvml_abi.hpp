// The part of NVML's binary interface that is used here, declared anew: its header is not on
// machines without CUDA, and one agent serves every node. Names are NVIDIA's without the prefix
// "nvml". Source of every layout, number and symbol: NVIDIA's nvml.h as kept in NVIDIA/go-nvml,
// gen/nvml/nvml.h (12.2.140 and later) and NVML_FI_* of NVIDIA's Python bindings.
// Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::nvml {

// nvmlReturn_t
enum Return : int {
    kSuccess = 0,
    kErrorUninitialized = 1,
    kErrorInvalidArgument = 2,
    kErrorNotSupported = 3,
    kErrorNoPermission = 4,
    kErrorNotFound = 6,
    kErrorInsufficientSize = 7,
    kErrorDriverNotLoaded = 9,
    kErrorTimeout = 10,
    kErrorGpuIsLost = 15,
    kErrorUnknown = 999,
};

struct DeviceOpaque;
using Device = DeviceOpaque*;
struct EventSetOpaque;
using EventSet = EventSetOpaque*;
struct GpmSampleOpaque;
using GpmSample = GpmSampleOpaque*;

struct Utilization {  // nvmlUtilization_t, percent
    unsigned int gpu;
    unsigned int memory;
};
static_assert(sizeof(Utilization) == 8);

struct Memory {  // nvmlMemory_t, bytes
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
static_assert(sizeof(Memory) == 24);

struct MemoryV2 {  // nvmlMemory_v2_t, bytes
    unsigned int version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};
static_assert(sizeof(MemoryV2) == 40 && offsetof(MemoryV2, used) == 32);
inline constexpr unsigned int kMemoryV2 = sizeof(MemoryV2) | (2U << 24U);  // NVML_STRUCT_VERSION

struct PciInfo {  // nvmlPciInfo_t
    char bus_id_legacy[16];
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pci_device_id;
    unsigned int pci_subsystem_id;
    char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68 && offsetof(PciInfo, bus_id) == 36);

struct ProcessInfoV1 {  // nvmlProcessInfo_v1_t
    unsigned int pid;
    unsigned long long used_memory;  // bytes; all ones = not available
};
static_assert(sizeof(ProcessInfoV1) == 16);

struct ProcessInfo {  // nvmlProcessInfo_v2_t, of the calls _v2 and _v3
    unsigned int pid;
    unsigned long long used_memory;
    unsigned int gpu_instance;
    unsigned int compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24 && offsetof(ProcessInfo, gpu_instance) == 16);
inline constexpr unsigned long long kMemoryNotAvailable = ~0ULL;  // NVML_VALUE_NOT_AVAILABLE

enum ValueType : unsigned int {  // nvmlValueType_t
    kDouble = 0,
    kUnsignedInt = 1,
    kUnsignedLong = 2,
    kUnsignedLongLong = 3,
    kSignedLongLong = 4,
    kSignedInt = 5,
    kUnsignedShort = 6,
};

union Value {  // nvmlValue_t
    double d;
    int si;
    unsigned int ui;
    unsigned long ul;
    unsigned long long ull;
    signed long long sll;
    unsigned short us;
};

struct FieldValue {  // nvmlFieldValue_t
    unsigned int field;
    unsigned int scope;  // of NVLink fields the link; all ones = the sum of all links
    long long timestamp;
    long long latency_us;
    ValueType type;
    Return result;  // whether `value` holds something
    Value value;
};
static_assert(sizeof(FieldValue) == 40 && offsetof(FieldValue, result) == 28 &&
              offsetof(FieldValue, value) == 32);
inline constexpr unsigned int kAllLinks = ~0U;

// NVML_FI_DEV_…
namespace field {
inline constexpr unsigned int kEccCorrected = 3;             // ECC_SBE_VOL_TOTAL
inline constexpr unsigned int kEccUncorrected = 4;           // ECC_DBE_VOL_TOTAL
inline constexpr unsigned int kNvlinkRecoveryTotal = 59;     // NVLINK_RECOVERY_ERROR_COUNT_TOTAL
inline constexpr unsigned int kThrottleSwPower = 74;         // PERF_POLICY_POWER, ns
inline constexpr unsigned int kThrottleSyncBoost = 76;       // PERF_POLICY_SYNC_BOOST, ns
inline constexpr unsigned int kMemoryTemperature = 82;       // MEMORY_TEMP, °C
inline constexpr unsigned int kEnergy = 83;                  // TOTAL_ENERGY_CONSUMPTION, mJ
inline constexpr unsigned int kPcieReplays = 94;             // PCIE_REPLAY_COUNTER
inline constexpr unsigned int kNvlinkDataTx = 138;           // NVLINK_THROUGHPUT_DATA_TX, KiB
inline constexpr unsigned int kNvlinkDataRx = 139;           // NVLINK_THROUGHPUT_DATA_RX, KiB
inline constexpr unsigned int kRemappedCorrected = 142;      // REMAPPED_COR
inline constexpr unsigned int kRemappedUncorrected = 143;    // REMAPPED_UNC
inline constexpr unsigned int kRemapPending = 144;           // REMAPPED_PENDING
inline constexpr unsigned int kRemapFailure = 145;           // REMAPPED_FAILURE
inline constexpr unsigned int kNvlinkEccTotal = 160;         // NVLINK_ECC_DATA_ERROR_COUNT_TOTAL
inline constexpr unsigned int kNvlinkRecovery = 162;         // NVLINK_ERROR_DL_RECOVERY
inline constexpr unsigned int kPowerAverage = 185;           // POWER_AVERAGE, mW over 1 s
inline constexpr unsigned int kPowerInstant = 186;           // POWER_INSTANT, mW
inline constexpr unsigned int kPowerLimit = 190;             // POWER_CURRENT_LIMIT, mW
inline constexpr unsigned int kPcieTx = 197;                 // PCIE_COUNT_TX_BYTES, wraps
inline constexpr unsigned int kPcieRx = 198;                 // PCIE_COUNT_RX_BYTES, wraps
inline constexpr unsigned int kNvlinkXmitBytes = 202;        // NVLINK_COUNT_XMIT_BYTES
inline constexpr unsigned int kNvlinkRcvBytes = 204;         // NVLINK_COUNT_RCV_BYTES
inline constexpr unsigned int kNvlinkRemoteErrors = 209;     // NVLINK_COUNT_RCV_REMOTE_ERRORS
inline constexpr unsigned int kNvlinkGeneralErrors = 210;    // NVLINK_COUNT_RCV_GENERAL_ERRORS
inline constexpr unsigned int kNvlinkIntegrityErrors = 211;  // …LOCAL_LINK_INTEGRITY_ERRORS
inline constexpr unsigned int kNvlinkDiscards = 212;         // NVLINK_COUNT_XMIT_DISCARDS
inline constexpr unsigned int kNvlinkRecoveryFailed = 214;   // …LINK_RECOVERY_FAILED_EVENTS
inline constexpr unsigned int kNvlinkRecoveryEvents = 215;   // NVLINK_COUNT_LINK_RECOVERY_EVENTS
inline constexpr unsigned int kRecoveryAction = 230;         // GET_GPU_RECOVERY_ACTION
// CLOCKS_EVENT_REASON_{SW_THERM,HW_THERM,HW_POWER_BRAKE}_SLOWDOWN, ns. Drivers do not agree on
// their numbers: either of these, and what the other one is then is no 64-bit number.
inline constexpr unsigned int kThrottleSwThermal = 251;
inline constexpr unsigned int kThrottleHwThermal = 252;
inline constexpr unsigned int kThrottleHwPowerBrake = 253;
inline constexpr unsigned int kThrottleSwThermalOther = 269;
inline constexpr unsigned int kThrottleHwThermalOther = 270;
inline constexpr unsigned int kThrottleHwPowerBrakeOther = 271;
}  // namespace field

inline constexpr int kTemperatureGpu = 0;  // NVML_TEMPERATURE_GPU
inline constexpr int kClockSm = 1;         // NVML_CLOCK_SM
inline constexpr int kClockMemory = 2;     // NVML_CLOCK_MEM

struct GpmSupport {  // nvmlGpmSupport_t
    unsigned int version;
    unsigned int supported;
};
static_assert(sizeof(GpmSupport) == 8);

struct GpmMetric {  // nvmlGpmMetric_t
    unsigned int id;
    Return result;
    double value;
    const char* short_name;
    const char* long_name;
    const char* unit;
};
static_assert(sizeof(GpmMetric) == 40);

inline constexpr unsigned int kGpmVersion = 1;     // NVML_GPM_{SUPPORT,METRICS_GET}_VERSION
inline constexpr std::size_t kGpmMetricMax = 333;  // NVML_GPM_METRIC_MAX of 13; it was 98 first
struct GpmMetricsGet {  // nvmlGpmMetricsGet_t: the library touches `count` elements only
    unsigned int version;
    unsigned int count;
    GpmSample before;
    GpmSample now;
    GpmMetric metrics[kGpmMetricMax];
};
static_assert(offsetof(GpmMetricsGet, metrics) == 24);

namespace gpm {  // NVML_GPM_METRIC_…, percent
inline constexpr unsigned int kSmUtil = 2;
inline constexpr unsigned int kSmOccupancy = 3;
inline constexpr unsigned int kAnyTensorUtil = 5;
inline constexpr unsigned int kDramBandwidthUtil = 10;
}  // namespace gpm

// nvmlMemoryErrorType_t, nvmlEccCounterType_t: errors since the driver was loaded
inline constexpr int kUncorrected = 1;  // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
inline constexpr int kVolatile = 0;     // NVML_VOLATILE_ECC
inline constexpr int kEnabled = 1;      // NVML_FEATURE_ENABLED of nvmlEnableState_t

// NVML_NVLINK_MAX_LINKS of driver 590 on; it was 6, 12 and 18 before. A GPU says of a link that it
// has not that it is not supported, or no argument.
inline constexpr unsigned int kLinks = 36;
// nvmlNvLinkErrorCounter_t
inline constexpr int kLinkReplays = 0;     // NVML_NVLINK_ERROR_DL_REPLAY
inline constexpr int kLinkRecoveries = 1;  // NVML_NVLINK_ERROR_DL_RECOVERY
inline constexpr int kLinkCrcFlit = 2;     // NVML_NVLINK_ERROR_DL_CRC_FLIT
inline constexpr int kLinkCrcData = 3;     // NVML_NVLINK_ERROR_DL_CRC_DATA

struct EventData {  // nvmlEventData_t
    Device device;
    unsigned long long type;
    unsigned long long data;  // of an Xid event its number
    unsigned int gpu_instance;
    unsigned int compute_instance;
};
static_assert(sizeof(EventData) == 32);
inline constexpr unsigned long long kEventXid = 0x8;  // nvmlEventTypeXidCriticalError

// The symbols, by the member's name below. Null = this driver does not have it.
struct Api {
    Return (*init)() = nullptr;
    Return (*shutdown)() = nullptr;
    const char* (*error_string)(Return) = nullptr;
    Return (*driver_version)(char*, unsigned int) = nullptr;
    Return (*count)(unsigned int*) = nullptr;
    Return (*handle)(unsigned int, Device*) = nullptr;
    Return (*uuid)(Device, char*, unsigned int) = nullptr;
    Return (*name)(Device, char*, unsigned int) = nullptr;
    Return (*minor)(Device, unsigned int*) = nullptr;
    Return (*pci)(Device, PciInfo*) = nullptr;
    Return (*utilization)(Device, Utilization*) = nullptr;
    Return (*memory)(Device, Memory*) = nullptr;
    Return (*memory_v2)(Device, MemoryV2*) = nullptr;
    Return (*temperature)(Device, int, unsigned int*) = nullptr;
    Return (*clock)(Device, int, unsigned int*) = nullptr;    // MHz
    Return (*power)(Device, unsigned int*) = nullptr;         // mW
    Return (*power_limit)(Device, unsigned int*) = nullptr;   // mW
    Return (*energy)(Device, unsigned long long*) = nullptr;  // mJ
    Return (*fields)(Device, int, FieldValue*) = nullptr;
    Return (*processes)(Device, unsigned int*, ProcessInfo*) = nullptr;
    Return (*processes_v1)(Device, unsigned int*, ProcessInfoV1*) = nullptr;
    Return (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;
    // corrected, uncorrected rows; whether one waits; whether one failed
    Return (*remapped_rows)(Device, unsigned int*, unsigned int*, unsigned int*,
                            unsigned int*) = nullptr;
    Return (*retired_pages_pending)(Device, int*) = nullptr;
    Return (*mig_mode)(Device, unsigned int*, unsigned int*) = nullptr;  // current, after a reset
    Return (*clock_reasons)(Device, unsigned long long*) = nullptr;
    Return (*link_state)(Device, unsigned int, int*) = nullptr;
    Return (*link_errors)(Device, unsigned int, int, unsigned long long*) = nullptr;
    Return (*gpm_support)(Device, GpmSupport*) = nullptr;
    Return (*gpm_alloc)(GpmSample*) = nullptr;
    Return (*gpm_free)(GpmSample) = nullptr;
    Return (*gpm_sample)(Device, GpmSample) = nullptr;
    Return (*gpm_metrics)(GpmMetricsGet*) = nullptr;
    Return (*events_create)(EventSet*) = nullptr;
    Return (*events_free)(EventSet) = nullptr;
    Return (*events_register)(Device, unsigned long long, EventSet) = nullptr;
    Return (*events_wait)(EventSet, EventData*, unsigned int) = nullptr;  // ms
};

}  // namespace lockstep::nvml
