//go:build race

package rapidtest

// raceDetector says that the tests run under the race detector, which makes them some ten times slower.
const raceDetector = true
