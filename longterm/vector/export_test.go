package vector

// EachWord is eachWord for tests.
var EachWord = eachWord

// Residents returns how many indexes are in memory.
func (s *Service) Residents() int { return len(s.indexes.Keys()) }

// Body returns the body of a document's record.
func Body(d *Document) []byte {
	b, err := d.body()
	if err != nil {
		panic(err)
	}
	return b
}
