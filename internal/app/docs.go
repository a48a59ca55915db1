package app

import "html"

// docsPage gives the description as a page.
func docsPage(spec []byte) ([]byte, error) {
	return []byte("<!doctype html><title>Heardlog</title><pre>" + html.EscapeString(string(spec)) + "</pre>"), nil
}
