package config

import (
	"errors"
	"strings"
)

// Names is a list of names, comma separated in the settings.
type Names []string

// UnmarshalText reads a list. An empty one is not nil.
func (n *Names) UnmarshalText(b []byte) error {
	*n = Names{}
	for name := range strings.SplitSeq(string(b), ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case len(name) > 256 || len(*n) == 64:
			return errors.New("must be at most 64 names of at most 256 characters, comma separated")
		default:
			*n = append(*n, name)
		}
	}
	return nil
}
