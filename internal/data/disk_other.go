//go:build !linux && !darwin

package data

import "errors"

// freeBytes returns an error: it is not implemented on this system.
func freeBytes(string) (int64, error) { return 0, errors.New("not on this system") }
