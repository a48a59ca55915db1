//go:build !linux && !darwin

package data

import "errors"

// freeBytes cannot tell.
func freeBytes(string) (int64, error) { return 0, errors.New("not on this system") }
