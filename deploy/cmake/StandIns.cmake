# Debian's LibTorch is linked with OpenCV, FFmpeg, LMDB and others of which it
# calls nothing (`ldd -u` says which): 220 libraries that every rank would load and relocate. A program
# finds an empty library of the same name before them, in lib/lockstep/stand-ins beside bin/. DT_RPATH and not
# DT_RUNPATH: only that also serves the libraries that LibTorch asks for.
set(lockstep_stand_in_folder ${PROJECT_BINARY_DIR}/lib/lockstep/stand-ins)

# Makes them, once. None where LibTorch is PyTorch's wheel, does call one of the libraries or ldd says something else.
function(lockstep_make_stand_ins)
  if(NOT LOCKSTEP_TORCH STREQUAL "")
    return()
  endif()
  find_library(LOCKSTEP_TORCH_CPU torch_cpu)
  mark_as_advanced(LOCKSTEP_TORCH_CPU)
  file(REMOVE_RECURSE ${lockstep_stand_in_folder})
  execute_process(COMMAND ldd -u ${LOCKSTEP_TORCH_CPU} OUTPUT_VARIABLE unused ERROR_QUIET)
  string(REGEX MATCHALL "lib(opencv_[a-z0-9]+|avcodec|avformat|avutil|swscale|swresample|zmq|lmdb|leveldb)\\.so[.0-9a-z]*"
         names "${unused}")
  if(NOT names)
    message(STATUS "No stand-ins for what LibTorch does not use: ldd -u named nothing")
    return()
  endif()
  file(MAKE_DIRECTORY ${lockstep_stand_in_folder})
  set(empty ${PROJECT_BINARY_DIR}/generated/stand_in.c)
  file(WRITE ${empty} "")
  foreach(name ${names})
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -shared -nostdlib -s -x c ${empty} -Wl,-soname,${name}
                            -o ${lockstep_stand_in_folder}/${name}
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  # The loader is asked, before anything is built on it, whether anything is missing with them.
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${lockstep_stand_in_folder}
                          ldd -r ${LOCKSTEP_TORCH_CPU}
                  OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE status)
  if(status OR said MATCHES "undefined symbol|not found|no version information")
    message(STATUS "No stand-ins for what LibTorch does not use: it misses something with them")
    file(REMOVE_RECURSE ${lockstep_stand_in_folder})
    return()
  endif()
  list(LENGTH names count)
  message(STATUS "Stand-ins for ${count} libraries that LibTorch does not use")
  install(DIRECTORY ${lockstep_stand_in_folder} DESTINATION lib/lockstep COMPONENT lockstep-train)
endfunction()

# lockstep_finds_torch(<program>): in bin/ or tests/ of the build, and in bin/ of an installation, it finds the LibTorch that it
# is linked with: Debian's where the loader looks, behind the stand-ins; a wheel where that is.
function(lockstep_finds_torch program)
  get_target_property(folders torch LOCKSTEP_FOLDERS)
  if(NOT folders)
    set(folders "\$ORIGIN/../lib/lockstep/stand-ins")
  endif()
  set_target_properties(${program} PROPERTIES BUILD_RPATH "${folders}" INSTALL_RPATH "${folders}")
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endfunction()
