# SPDX-License-Identifier: Apache-2.0
# `cmake --install`: the program, the library, the headers, and a CMake package that offers
# lockstep::lockstep. The module libraries are merged into one archive; the Rust bridge stays a
# second one, with the symbol index that the Rust compiler wrote. A consumer needs neither our build
# tree nor a Rust tool chain.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY LOCKSTEP_MODULES)
set(inputs "")
foreach(module ${modules})
  list(APPEND inputs $<TARGET_FILE:${module}>)
endforeach()
set(merged ${PROJECT_BINARY_DIR}/lib/liblockstep.a)
add_custom_command(
  OUTPUT ${merged}
  COMMAND ${CMAKE_COMMAND} -D AR=${CMAKE_AR} -D OUTPUT=${merged} "-DINPUTS=${inputs}"
    -P ${PROJECT_SOURCE_DIR}/cmake/MergeArchives.cmake
  DEPENDS ${modules} ${PROJECT_SOURCE_DIR}/cmake/MergeArchives.cmake
  COMMENT "Merging the modules into liblockstep.a"
  VERBATIM)
add_custom_target(lockstep_merged ALL DEPENDS ${merged})
install(FILES ${merged} DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(LOCKSTEP_HAS_BRIDGE OFF)
if(TARGET lockstep_bridge)
  set(LOCKSTEP_HAS_BRIDGE ON)
  get_target_property(bridge_archive lockstep_bridge IMPORTED_LOCATION)
  install(FILES ${bridge_archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

if(TARGET lockstep)
  install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE PATTERN "*test*" EXCLUDE)
install(FILES LICENSE NOTICE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake.in
  ${PROJECT_BINARY_DIR}/lockstepConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake DESTINATION ${package_dir})
