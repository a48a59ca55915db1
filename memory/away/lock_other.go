//go:build !unix

package away

import "os"

// lock does nothing: the store itself is locked.
func lock(*os.File) error { return nil }
