//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package llmadapter

// tries tells that a connection is read with a buffer at hand.
const tries = false

func (f *inflow) receive(uintptr) bool { return true }
