# LibTorch as the target `torch`, for CPUs or with CUDA.
#
# LOCKSTEP_TORCH: the folder of a PyTorch that pip has installed (python3 -c 'import torch; print(torch.__path__[0])');
# empty: what find_package(Torch) finds, Debian's libtorch-dev for one. A wheel is not found by its own TorchConfig.cmake:
# that of one with CUDA asks for cuBLAS, cuDNN and more of a toolkit, which only its own libraries need, at run time.
# A program that is linked with one names its folder, also once it is installed (StandIns.cmake): the wheel stays where it is.
# Sets Torch_FOUND, and LOCKSTEP_TORCH_CUDA: it is one with CUDA, and its headers compile (CUDA's runtime header is there).
# Source of the layout: https://pytorch.org/cppdocs/installing.html.
set(LOCKSTEP_TORCH "" CACHE PATH "Folder of PyTorch's wheel to link lockstep-train with (default: find_package(Torch))")
set(LOCKSTEP_TORCH_CUDA FALSE)
if(LOCKSTEP_TORCH STREQUAL "")
  find_package(Torch QUIET)
  return()
endif()
if(NOT EXISTS ${LOCKSTEP_TORCH}/lib/libtorch_cpu.so OR NOT EXISTS ${LOCKSTEP_TORCH}/include/ATen/ATen.h)
  message(FATAL_ERROR "LOCKSTEP_TORCH: ${LOCKSTEP_TORCH} has no lib/libtorch_cpu.so and include/ATen/ATen.h")
endif()
set(Torch_FOUND TRUE)
foreach(name c10 torch_cpu)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_TORCH}/lib/lib${name}.so)
  target_include_directories(${name} SYSTEM INTERFACE ${LOCKSTEP_TORCH}/include ${LOCKSTEP_TORCH}/include/torch/csrc/api/include)
endforeach()
add_library(torch INTERFACE IMPORTED GLOBAL)
target_link_libraries(torch INTERFACE torch_cpu c10)
set(folders ${LOCKSTEP_TORCH}/lib)
if(EXISTS ${LOCKSTEP_TORCH}/lib/libtorch_cuda.so AND NOT LOCKSTEP_HAVE_CUDA)
  message(WARNING "LOCKSTEP_TORCH has CUDA, but no nvcc and headers of CUDA were found (deploy/install-deps --cuda): lockstep-train will compute on CPUs only")
elseif(EXISTS ${LOCKSTEP_TORCH}/lib/libtorch_cuda.so)
  set(LOCKSTEP_TORCH_CUDA TRUE)
  foreach(name c10_cuda torch_cuda)
    add_library(${name} SHARED IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_TORCH}/lib/lib${name}.so)
  endforeach()
  # The CUDA runtime that is installed beside torch is linked, so that both have one, and the toolkit is not needed to run.
  # Which CUDA it is made with its version.py says: several may be installed beside it.
  set(runtime CUDA::cudart)
  set(said "")
  if(EXISTS ${LOCKSTEP_TORCH}/version.py)
    file(STRINGS ${LOCKSTEP_TORCH}/version.py said REGEX "^cuda.*= *'[0-9]+")
  endif()
  if(said MATCHES "= *'([0-9]+)")
    set(major ${CMAKE_MATCH_1})
    if(NOT major EQUAL CUDAToolkit_VERSION_MAJOR)
      message(FATAL_ERROR "LOCKSTEP_TORCH is made with CUDA ${major}, and nvcc is of ${CUDAToolkit_VERSION}: set CUDA_HOME to a toolkit of CUDA ${major}, or install a torch for CUDA ${CUDAToolkit_VERSION_MAJOR}")
    endif()
    file(GLOB beside ${LOCKSTEP_TORCH}/../nvidia/*/lib/libcudart.so.${major} ${LOCKSTEP_TORCH}/../nvidia/*/lib/libcudart.so.${major}.*)
    if(beside)
      list(GET beside 0 runtime)
      cmake_path(NORMAL_PATH runtime)
      cmake_path(GET runtime PARENT_PATH folder)
      list(PREPEND folders ${folder})
    endif()
  endif()
  # No symbol of ours is in torch_cuda, whose constructors bring the GPU's operations: the linker must not leave it out. What
  # it needs itself (cuBLAS, cuDNN) is installed beside torch, and found by its own run path.
  target_link_libraries(torch INTERFACE -Wl,--push-state,--no-as-needed torch_cuda -Wl,--pop-state c10_cuda ${runtime})
  target_link_options(torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs -Wl,--allow-shlib-undefined)
  target_include_directories(torch SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()
set_property(TARGET torch PROPERTY LOCKSTEP_FOLDERS ${folders})
message(STATUS "LibTorch: ${LOCKSTEP_TORCH}, with CUDA: ${LOCKSTEP_TORCH_CUDA}")
