//go:build race

package sqlite_test

func init() { raceEnabled = true }
