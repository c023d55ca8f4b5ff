//go:build race

package local_test

// raceDetector says that memory is that of the race detector too, and proves nothing.
const raceDetector = true
