# What `cmake --install` puts where: headers, both libraries, weft.pc for
# pkg-config, and a CMake package with the targets weft::weft (shared) and
# weft::weft_static.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(weft PROPERTIES EXPORT_NAME weft_static)
set_target_properties(weft_shared PROPERTIES EXPORT_NAME weft)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(TARGETS weft weft_shared EXPORT weft
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weft NAMESPACE weft:: FILE weft-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/weft-config.cmake.in
  ${PROJECT_BINARY_DIR}/weft-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weft-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
        DESTINATION ${package_dir})

# weft.pc finds its prefix from its own place, so that an installed tree can move.
file(RELATIVE_PATH WEFT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(WEFT_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(WEFT_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
else()
  string(REGEX REPLACE "/$" "" WEFT_PC_PREFIX "\${pcfiledir}/${WEFT_PC_PREFIX}")
  set(WEFT_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/weft.pc.in ${PROJECT_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
