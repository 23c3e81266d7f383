# The door: two commands. See README.md.
.PHONY: build test
build:
	cmake --preset release && cmake --build --preset release
test:
	cmake --preset debug && cmake --build --preset debug && ctest --preset debug
