package sqlite

import "github.com/heardlog/heardlog/webhook"

// Published gives all endpoints of all projects, for reading only: the pointer is the same until one of them changes, and costs nothing to ask for.
func (s *Store) Published() *[]webhook.Endpoint { return s.published.Load() }
