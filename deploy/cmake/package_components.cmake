# CPack reads this once for each of its generators: what goes into Debian's packages, what into the others.
if(CPACK_GENERATOR STREQUAL "DEB")
  # CPack would only say so, and make packages that depend on nothing.
  foreach(program dpkg-shlibdeps file)
    find_program(LOCKSTEP_${program} ${program})
    if(NOT LOCKSTEP_${program})
      message(FATAL_ERROR "There is no ${program}, which finds what the packages depend on: deploy/install-deps --portable, or apt-get install dpkg-dev file")
    endif()
  endforeach()
  set(CPACK_COMPONENTS_ALL ${CPACK_LOCKSTEP_DEBIAN})
elseif(NOT CPACK_LOCKSTEP_PORTABLE)
  message(FATAL_ERROR "The portable programs are not built: deploy/install-deps --portable, then cmake and build again")
else()
  set(CPACK_COMPONENTS_ALL portable)
  set(CPACK_STRIP_FILES OFF)  # they are
endif()
