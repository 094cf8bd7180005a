# Whether a oneDNN that was found is the one that LibTorch calls. Two in a process share their names, and which of them
# LibTorch gets is up to the linker. Reads libraries by CMAKE_READELF.

# lockstep_onednn_entry(<library> NEEDED|SONAME <out>): "libdnnl.so.2" of its dynamic section; "" if it has none there.
function(lockstep_onednn_entry library tag out)
  execute_process(COMMAND ${CMAKE_READELF} --dynamic --wide ${library} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "\\(${tag}\\)[^\n]*\\[(libdnnl\\.so[^]]*)\\]" entry "${dynamic}")
  set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# lockstep_check_onednn(<libtorch_cpu> <onednn> <include>): nothing is configured if these are of different versions.
function(lockstep_check_onednn libtorch onednn include)
  lockstep_onednn_entry(${libtorch} NEEDED needed)
  lockstep_onednn_entry(${onednn} SONAME soname)
  file(STRINGS ${include}/oneapi/dnnl/dnnl_version.h major REGEX "define DNNL_VERSION_MAJOR ")
  string(REGEX MATCH "[0-9]+" major "${major}")
  set(remedy "Set LOCKSTEP_ONEDNN_LIBRARY and LOCKSTEP_ONEDNN_INCLUDE to LibTorch's, or LOCKSTEP_ONEDNN_LIBRARY to OFF for a build without.")
  if(NOT needed STREQUAL soname)
    message(FATAL_ERROR "${libtorch} is linked with ${needed}, and ${onednn} is ${soname}. ${remedy}")
  endif()
  if(NOT needed STREQUAL "libdnnl.so.${major}")
    message(FATAL_ERROR "${libtorch} is linked with ${needed}, and the header in ${include} is of oneDNN ${major}. ${remedy}")
  endif()
endfunction()
