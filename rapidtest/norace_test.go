//go:build !race

package rapidtest

const raceDetector = false
